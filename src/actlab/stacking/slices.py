"""The optimiser of a stack, whose parameters are split where the members' settings differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from pytorch_lightning.cli import OptimizerCallable
from torch import Tensor, nn

from actlab import optim
from actlab.errors import ActlabError
from actlab.stacking.layers import WHOLE
from actlab.stacking.network import MemberParameter, StackedNetwork, member_parameters
from actlab.tasks import Task
from actlab.tasks.building import checked_optimizer


class Slices:
    """Split stacked parameters along the run axis where the optimiser's settings change.

    It builds the optimiser, and moves, clips and penalises by member. It computes no gradient, and
    the members' schedules belong to the task.

    Neighbouring members with equal settings share a slice and a parameter group, so a stack with
    three learning rates has three groups whatever its size. A slice shares storage with its
    parameter, in which each member's numbers fill whole vectors (`layers.WHOLE`). An optimiser that
    works elementwise updates each member as in a stack of one, in every bit.
    """

    def __init__(self, network: StackedNetwork, members: Sequence[Task]) -> None:
        self.size = len(members)
        self.owners: list[int] = []  # the first run of each parameter group

        # What `_parts` enters: the slices of each parameter that is split, and the runs
        # and the column of norms (`clip_norms`) of each slice and of each parameter
        # that stays whole.
        self.sliced: dict[nn.Parameter, list[nn.Parameter]] = {}
        self._runs: dict[nn.Parameter, slice] = {}
        self._columns: dict[nn.Parameter, int] = {}

        # Number the parameters of a member.
        self._member_parameters = member_parameters(network)
        self._column_by_name: dict[str, int] = {}  # by the name in a member
        for parameter in self._member_parameters.values():
            self._column_by_name.setdefault(parameter.name, len(self._column_by_name))

        # Move the parameters; then the members' own networks view the new memory.
        self._rows = _stored_in_vectors(network, self._member_parameters)
        for r, member in enumerate(members):
            network.share(r, member.network)

        # Neighbours share a group if settings and schedules are equal, and no schedule
        # has a state. Parameters that decay and parameters that do not are separate
        # groups.
        member_kinds = optim.kinds(members[0].network, members[0].activations)
        kinds = {}
        for name, parameter in self._member_parameters.items():
            kinds[name] = member_kinds[parameter.name]
        groups: list[dict[str, Any]] = []
        numbers = range(len(members))
        for key, neighbours in groupby(
            numbers, lambda r: _shared_by_neighbours(members[r], r)
        ):
            settings, _schedules, _stateful_run = key
            indices = list(neighbours)
            runs = slice(indices[0], indices[-1] + 1)
            for names, decay in optim.groups(kinds, members[runs.start].l2):
                parts = list(self._parts(network, names, runs))
                if parts:
                    groups.append({**settings, **decay, "params": parts})
                    self.owners.append(runs.start)
        build_optimizer = _optimizer_of_all(members)
        self.optimizer = build_optimizer(groups)

        # torch gives the parameters of all groups the initial value of the first group.
        if isinstance(self.optimizer, torch.optim.Adagrad):
            for group in self.optimizer.param_groups:
                for part in group["params"]:
                    self.optimizer.state[part]["sum"].fill_(
                        group["initial_accumulator_value"]
                    )

    def _parts(
        self, network: StackedNetwork, names: Sequence[str], runs: slice
    ) -> Iterable[nn.Parameter]:
        """Yield what the optimiser updates of some parameters: slices, or whole parameters."""
        for name in names:
            part = network.get_parameter(name)
            member_name, run = self._member_parameters[name]
            if run is None:
                # Split it, unless these are all runs and it was not padded.
                rows = self._rows[name]
                if runs != slice(0, self.size) or rows.shape != part.shape:
                    slices = self.sliced.setdefault(part, [])
                    part = nn.Parameter(rows[runs])
                    slices.append(part)
                self._runs[part] = runs
            elif runs.start <= run < runs.stop:
                self._runs[part] = slice(run, run + 1)
            else:  # of a run in another group
                continue
            self._columns[part] = self._column_by_name[member_name]
            yield part

    @torch.no_grad()
    def penalty(self) -> Tensor:
        """Return ½·decay·Σw² of each run, ``(R,)``; see `actlab.optim.penalty`."""
        penalties = next(iter(self._runs)).new_zeros(self.size)
        # The members of a group have the same decay.
        for group in self.optimizer.param_groups:
            if not group["weight_decay"]:
                continue
            for part in group["params"]:
                runs = self._runs[part]
                squares = part.square().reshape(runs.stop - runs.start, -1).sum(1)
                penalties[runs] += group["weight_decay"] / 2 * squares
        return penalties

    @torch.no_grad()
    def clip_norms(self, most: float) -> None:
        """Scale the gradient of each run, in place, to a norm of at most ``most``.

        As ``clip_grad_norm_``, of which this adds up the norms in the order of a member.
        """
        # View the gradients as one row per run.
        gradients = {}
        for part, runs in self._runs.items():
            if part.grad is not None:
                gradients[part] = part.grad.view(runs.stop - runs.start, -1)

        # Compute the norms of each run's parameters.
        norms = next(iter(gradients.values())).new_zeros(
            self.size, len(self._column_by_name)
        )
        for part, gradient in gradients.items():
            column = self._columns[part]
            norms[self._runs[part], column] = torch.linalg.vector_norm(gradient, dim=1)

        # Scale the gradients.
        scales = (most / (torch.linalg.vector_norm(norms, dim=1) + 1e-6)).clamp(max=1.0)
        for part, gradient in gradients.items():
            gradient.mul_(scales[self._runs[part]].unsqueeze(1))

    def take_gradients(self) -> None:
        """Move each parameter's gradient to its slices, as views where it fills whole vectors."""
        for parameter, parts in self.sliced.items():
            gradient = parameter.grad
            if gradient is None:
                continue
            # The optimiser updates only the slices.
            parameter.grad = None

            # Slices of a padded parameter have rows of numbers.
            if parts[0].shape[1:] != parameter.shape[1:]:
                gradient = _padded(gradient)
            for part in parts:
                part.grad = gradient[self._runs[part]]


def _padded(tensor: Tensor) -> Tensor:
    """Return the numbers of each run, followed by zeros up to whole vectors, ``(R, P)``."""
    numbers = tensor.reshape(len(tensor), -1)
    padding = -numbers.shape[1] % WHOLE
    return F.pad(numbers, (0, padding))


def _stored_in_vectors(
    network: StackedNetwork, parameters: Mapping[str, MemberParameter]
) -> dict[str, Tensor]:
    """Move each parameter of all runs to whole vectors; return the new storage by name."""
    rows = {}
    for name, (_, run) in parameters.items():
        if run is None:
            rows[name] = _in_whole_vectors(network.get_parameter(name))
    return rows


def _in_whole_vectors(parameter: nn.Parameter) -> Tensor:
    """Return the storage of a stacked parameter, ``(R, P)`` if it was padded, else in its shape."""
    values = parameter.detach()
    numbers = values[0].numel()
    if numbers % WHOLE == 0:
        return values

    # The parameter becomes a view of the padded numbers.
    rows = _padded(values)
    parameter.data = rows[:, :numbers].view(values.shape)
    return rows


def _shared_by_neighbours(
    member: Task, r: int
) -> tuple[dict[str, Any], dict[str, optim.Schedule], int | None]:
    """Return the settings of the optimiser, the schedules, and the run if a schedule has a state.

    Neighbours with equal values share a group; a run with a state equals no neighbour.
    """
    optimizer = member.optimizer([nn.Parameter(torch.zeros(1))])
    settings = dict(optimizer.param_groups[0])
    del settings["params"]
    if member.l2 is not None:
        settings["penalty"] = member.l2.weight_decay
    stateful_run = r if optim.is_stateful(member.schedules) else None
    return settings, member.schedules, stateful_run


def _optimizer_of_all(members: Sequence[Task]) -> OptimizerCallable:
    """Return the factory of the members' optimiser; reject members with different ones."""
    kinds: list[str] = []
    for member in members:
        optimizer = checked_optimizer(member, [nn.Parameter(torch.zeros(1))])
        kind = type(optimizer).__name__
        if kind not in kinds:
            kinds.append(kind)
    if len(kinds) > 1:
        raise ActlabError(
            f"members of one stack have different optimisers: {', '.join(kinds)}"
        )
    return members[0].optimizer
