"""Applies schedules to optimiser groups and dropout layers, for a single run or a stack of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from actlab.errors import ActlabError, unknown
from actlab.optim.schedules import Plateau, Schedule, Total

OF_GROUPS = ("lr", "beta1", "momentum", "weight_decay")
OF_DROPOUT = ("dropout", "inner_dropout")  # inner: between the layers of a stack in `ConvStacks`
SETTINGS = OF_GROUPS + OF_DROPOUT


class Scheduler:
    """Applies schedules to the settings of a fresh optimiser and the dropout of a network.

    ``members`` are the schedules by setting of one run or each of the R runs of a stack; ``owners`` the run of
    each optimiser group, where runs with equal schedules may share a group; ``dropouts`` layers
    `actlab.networks.Dropout`; ``states`` those of plateau schedules by ``"{member} {setting}"``, updated in
    place, for checkpoints; ``total`` returns the number of all epochs or updates, for schedules by shares of
    the training, and is first called by `move`, when the Trainer has its data.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        members: Sequence[Mapping[str, Schedule]],
        owners: Sequence[int],
        dropouts: Sequence[Any] = (),
        states: dict[str, list[float]] | None = None,
        total: Total | None = None,
    ) -> None:
        self.optimizer, self.members, self.owners, self.dropouts = optimizer, members, owners, dropouts
        self.total = total
        self.states = {} if states is None else states
        for setting in {name for schedules in members for name in schedules}:
            if setting not in SETTINGS:
                raise unknown("setting of a schedule", setting, SETTINGS)
            if setting in OF_DROPOUT and not any(layer.setting == setting for layer in dropouts):
                raise ActlabError(
                    f"the network has no {setting!r} that a schedule could change: leave out model.schedules."
                    f"{setting}, or give the network layers actlab.networks.Dropout with a probability above 0"
                )
            if setting in OF_GROUPS and _read(optimizer.param_groups[0], setting) is None:
                name = type(optimizer).__name__
                raise ActlabError(f"{name} has no {setting!r} that a schedule could change")
        self.start = [{s: _read(group, s) or 0.0 for s in OF_GROUPS} for group in optimizer.param_groups]
        for run, schedules in enumerate(members):
            own = [start for start, owner in zip(self.start, owners, strict=True) if owner == run]
            for setting in (s for s in schedules if s in OF_GROUPS and own):
                if not any(start[setting] for start in own):
                    raise ActlabError(f"{setting} is 0: a schedule multiplies it, so it would never change")

    @cached_property
    def _whole(self) -> Sequence[Mapping[str, Schedule]]:
        if self.total is None:
            return self.members
        return [{name: one.over(self.total) for name, one in own.items()} for own in self.members]

    def factor(self, member: int, setting: str, epoch: int, update: int) -> float:
        """Return the current factor of a run's setting, for an epoch and update counted from 0."""
        schedule = self._whole[member][setting]
        if isinstance(schedule, Plateau):
            return (self.states.get(f"{member} {setting}") or [1.0])[0]
        return schedule.factor(epoch if schedule.by == "epoch" else update)

    def move(self, epoch: int, update: int) -> None:
        """Set all scheduled settings for the next update; epoch and update count from 0."""
        for group, start, member in zip(self.optimizer.param_groups, self.start, self.owners, strict=True):
            for setting in self.members[member]:
                if setting in OF_GROUPS:
                    _write(group, setting, start[setting] * self.factor(member, setting, epoch, update))
        for setting in OF_DROPOUT:
            layers = [layer for layer in self.dropouts if layer.setting == setting]
            if layers and any(setting in schedules for schedules in self.members):
                factors = [
                    self.factor(r, setting, epoch, update) if setting in schedules else 1.0
                    for r, schedules in enumerate(self.members)
                ]
                apart = torch.tensor(factors, dtype=torch.float64).view(-1, 1)
                for layer in layers:
                    layer.set_scale(factors[0] if len(set(factors)) == 1 else apart)

    def observe(self, metrics: Mapping[str, Tensor]) -> None:
        """Update plateau schedules from metrics by name: one number, or one number per run, ``(R,)``."""
        for member, schedules in enumerate(self.members):
            for setting, schedule in schedules.items():
                if isinstance(schedule, Plateau) and schedule.metric in metrics:
                    value = float(metrics[schedule.metric].flatten()[member])
                    key = f"{member} {setting}"
                    self.states[key] = schedule.observe(self.states.get(key, ()), value)


def is_stateful(schedules: Mapping[str, Schedule]) -> bool:
    """Whether a run's schedules depend on its metrics, so that no other run can share its settings."""
    return any(isinstance(schedule, Plateau) for schedule in schedules.values())


def _read(group: Mapping[str, Any], setting: str) -> float | None:
    if setting == "beta1":
        return float(group["betas"][0]) if "betas" in group else None
    return group.get(setting)


def _write(group: dict[str, Any], setting: str, value: float) -> None:
    if setting == "beta1":
        group["betas"] = (value, *group["betas"][1:])
    else:
        group[setting] = value
