"""The optimiser of a stack: parameters are split along the run axis where the members' settings differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from pytorch_lightning.cli import OptimizerCallable
from torch import Tensor, nn

from actlab import optim
from actlab.errors import ActlabError
from actlab.stacking.layers import WHOLE
from actlab.stacking.network import StackedNetwork, member_names
from actlab.tasks import Task
from actlab.tasks.building import checked_optimizer


class Slices:
    """Split stacked parameters along the run axis where the optimiser's settings change.

    Neighbouring members with equal settings share a slice and a parameter group, so a stack with
    three learning rates has three groups whatever its size. A slice shares storage with its
    parameter, in which each member's numbers fill whole vectors (`layers.WHOLE`). An optimiser that
    works elementwise updates each member as in a stack of one, in every bit.
    """

    def __init__(self, network: StackedNetwork, members: Sequence[Task]) -> None:
        self.sliced: dict[
            nn.Parameter, list[nn.Parameter]
        ] = {}  # slices of each parameter that has some
        self._runs: dict[nn.Parameter, slice] = {}
        self._columns: dict[nn.Parameter, int] = {}  # number of the parameter's name in a member
        self.size = len(members)
        self.owners: list[int] = []  # the first run of each parameter group
        self._names = member_names(network)
        own_kinds = optim.kinds(members[0].network, members[0].activations)
        kinds = {name: own_kinds[inner] for name, (inner, _) in self._names.items()}
        self._in_member = list(dict.fromkeys(inner for inner, _ in self._names.values()))
        self._rows = {
            name: _in_whole_vectors(network.get_parameter(name))
            for name, (_, owner) in self._names.items()
            if owner is None
        }
        for r, member in enumerate(members):
            network.share(r, member.network)
        groups: list[dict[str, Any]] = []
        for (settings, _, _), run in groupby(
            range(len(members)), key=lambda r: _settings(members[r], r)
        ):
            indices = list(run)
            runs = slice(indices[0], indices[-1] + 1)
            for names, decay in optim.groups(kinds, members[runs.start].l2):
                parts = list(self._parts(network, names, runs))
                if parts:
                    groups.append({**settings, **decay, "params": parts})
                    self.owners.append(runs.start)
        self.optimizer = _shared(members)(groups)
        # torch gives the parameters of all groups the initial value of the first group
        if isinstance(self.optimizer, torch.optim.Adagrad):
            for group in self.optimizer.param_groups:
                for part in group["params"]:
                    self.optimizer.state[part]["sum"].fill_(group["initial_accumulator_value"])

    def _parts(
        self, network: StackedNetwork, names: Sequence[str], runs: slice
    ) -> Iterable[nn.Parameter]:
        for name in names:
            whole, (inner, owner) = network.get_parameter(name), self._names[name]
            part = whole  # its gradient is that of the optimiser's parameter
            if owner is not None and not runs.start <= owner < runs.stop:
                continue
            if owner is None and (
                runs != slice(0, self.size) or self._rows[name].shape != whole.shape
            ):
                part = nn.Parameter(self._rows[name][runs])
                self.sliced.setdefault(whole, []).append(part)
            self._runs[part] = runs if owner is None else slice(owner, owner + 1)
            self._columns[part] = self._in_member.index(inner)
            yield part

    @torch.no_grad()
    def penalty(self) -> Tensor:
        """Return ½·decay·Σw² of each run, ``(R,)``; see `actlab.optim.penalty`."""
        first = next(iter(self._runs))
        penalties = first.new_zeros(self.size)
        for group in self.optimizer.param_groups:
            for part in group["params"] if group["weight_decay"] else ():
                runs = self._runs[part]
                squares = part.square().reshape(runs.stop - runs.start, -1).sum(1)
                penalties[runs] += group["weight_decay"] / 2 * squares
        return penalties

    @torch.no_grad()
    def clip_norms(self, most: float) -> None:
        """Scale the gradient of each run, in place, to a norm of at most ``most``, as ``clip_grad_norm_``."""
        gradients = [
            (part.grad.view(runs.stop - runs.start, -1), runs, self._columns[part])
            for part, runs in self._runs.items()
            if part.grad is not None
        ]
        norms = gradients[0][0].new_zeros(self.size, len(self._in_member))
        for gradient, runs, column in gradients:
            norms[runs, column] = torch.linalg.vector_norm(gradient, dim=1)
        scales = (most / (torch.linalg.vector_norm(norms, dim=1) + 1e-6)).clamp(max=1.0)
        for gradient, runs, _ in gradients:
            gradient.mul_(scales[runs].unsqueeze(1))

    def take_gradients(self) -> None:
        """Move each parameter's gradient to its slices, as views where it fills whole vectors."""
        for whole, parts in self.sliced.items():
            gradient, whole.grad = whole.grad, None
            if gradient is None:
                continue
            if parts[0].shape[1:] != whole.shape[1:]:
                gradient = _padded(gradient)
            for part in parts:
                part.grad = gradient[self._runs[part]]


def _padded(tensor: Tensor) -> Tensor:
    """Return the numbers of each run, followed by zeros up to whole vectors, ``(R, P)``."""
    numbers = tensor.reshape(len(tensor), -1)
    return F.pad(numbers, (0, -numbers.shape[1] % WHOLE))


def _in_whole_vectors(parameter: nn.Parameter) -> Tensor:
    """Return the storage of a stacked parameter, ``(R, P)`` if it had to be padded, else of its own shape."""
    values = parameter.detach()
    numbers = values[0].numel()
    if numbers % WHOLE == 0:
        return values
    rows = _padded(values)
    parameter.data = rows[:, :numbers].view(values.shape)
    return rows


def _settings(member: Task, r: int) -> tuple[dict[str, Any], dict[str, optim.Schedule], int | None]:
    group = member.optimizer([nn.Parameter(torch.zeros(1))]).param_groups[0]
    settings = {name: value for name, value in group.items() if name != "params"}
    if member.l2 is not None:
        settings["penalty"] = member.l2.weight_decay
    return settings, member.schedules, r if optim.is_stateful(member.schedules) else None


def _shared(members: Sequence[Task]) -> OptimizerCallable:
    optimizers = [checked_optimizer(member, [nn.Parameter(torch.zeros(1))]) for member in members]
    kinds = dict.fromkeys(type(optimizer).__name__ for optimizer in optimizers)
    if len(kinds) > 1:
        raise ActlabError(f"members of one stack have different optimisers: {', '.join(kinds)}")
    return members[0].optimizer
