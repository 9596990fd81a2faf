"""The optimiser of a stack: parameters are split along the run axis where the members' settings differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import torch
from pytorch_lightning.cli import OptimizerCallable
from torch import Tensor, nn

from actlab import optim
from actlab.errors import ActlabError
from actlab.stacking.network import StackedNetwork, member_names
from actlab.tasks import Task
from actlab.tasks.building import checked_optimizer


class Slices:
    """Split stacked parameters along the run axis where the optimiser's settings change.

    Neighbouring members with equal settings share a slice and a parameter group, so a stack with three learning
    rates has three groups whatever its size. A slice shares storage with its parameter. An optimiser that works
    elementwise updates each member as in a run alone.
    """

    def __init__(self, network: StackedNetwork, members: Sequence[Task]) -> None:
        self.sliced: list[tuple[nn.Parameter, nn.Parameter, slice]] = []  # parameter, slice, runs
        self._runs: dict[nn.Parameter, slice] = {}
        self.size = len(members)
        self.owners: list[int] = []  # the first run of each parameter group
        self._names = member_names(network)
        self._wholes = [(network.get_parameter(name), owner) for name, (_, owner) in self._names.items()]
        own_kinds = optim.kinds(members[0].network, members[0].units)
        kinds = {name: own_kinds[inner] for name, (inner, _) in self._names.items()}
        groups: list[dict[str, Any]] = []
        for (settings, _, _), run in groupby(range(len(members)), key=lambda r: _settings(members[r], r)):
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

    def _parts(self, network: StackedNetwork, names: Sequence[str], runs: slice) -> Iterable[nn.Parameter]:
        for name in names:
            whole, (_, owner) = network.get_parameter(name), self._names[name]
            if owner is None and runs != slice(0, self.size):
                part = nn.Parameter(whole.detach()[runs])
                self.sliced.append((whole, part, runs))
            elif owner is None or runs.start <= owner < runs.stop:
                part = whole  # its gradient is that of the optimiser's parameter
            else:
                continue
            self._runs[part] = runs if owner is None else slice(owner, owner + 1)
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
        gradients = [(p.grad, owner) for p, owner in self._wholes if p.grad is not None]
        norms = gradients[0][0].new_zeros(len(gradients), self.size)
        for norms_of_runs, (gradient, owner) in zip(norms, gradients, strict=True):
            if owner is None:
                norms_of_runs.copy_(torch.linalg.vector_norm(gradient.reshape(self.size, -1), dim=1))
            else:
                norms_of_runs[owner] = torch.linalg.vector_norm(gradient)
        scales = (most / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        for gradient, owner in gradients:
            gradient.mul_(scales.view(-1, *[1] * (gradient.dim() - 1)) if owner is None else scales[owner])

    def take_gradients(self) -> None:
        """Set each slice's gradient to a view of its parameter's gradient."""
        for whole, part, runs in self.sliced:
            part.grad = None if whole.grad is None else whole.grad[runs]


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
