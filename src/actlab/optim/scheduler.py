"""The scheduler: sets the settings of an optimiser and the dropout of a network by schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.optim.schedules import Plateau, Schedule, Total

OF_GROUPS = ("lr", "beta1", "momentum", "weight_decay")
# "inner" is dropout between the layers of a stack in `ConvStacks`.
OF_DROPOUT = (
    "dropout",
    "inner_dropout",
)
SETTINGS = OF_GROUPS + OF_DROPOUT


class Scheduler:
    """Applies schedules to the settings of a fresh optimiser and to the dropout of a network.

    It sets values before each update and follows metrics for plateau schedules. It does not count
    epochs or updates: the task says where the training is.

    Args:
        optimizer: the optimiser, with its initial settings.
        schedules: the schedules by setting of one run, or of each of the R runs of a stack.
        owners: the run of each optimiser group; runs with equal schedules may share a group.
        dropouts: layers `actlab.networks.Dropout`.
        states: states of plateau schedules by ``"{run} {setting}"``, updated in place, for
            checkpoints.
        total: returns the number of all epochs or updates, for schedules by shares of the training.
            It is first called by `move`, when the Trainer has its data.

    Raises:
        ActlabError: for a setting that the optimiser or network lacks, or whose value is 0.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedules: Sequence[Mapping[str, Schedule]],
        owners: Sequence[int],
        dropouts: Sequence[Any] = (),
        states: dict[str, list[float]] | None = None,
        total: Total | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.schedules = schedules
        self.owners = owners
        self.dropouts = dropouts
        self.total = total
        self.states = {} if states is None else states
        # Reject schedules of settings that do not exist.
        for schedules_of_run in schedules:
            for setting in schedules_of_run:
                self._check_setting(setting)

        # Read the initial values of each optimiser group; 0 for a setting that it
        # lacks.
        self.initial_values: list[dict[str, float]] = []
        for group in optimizer.param_groups:
            values = {setting: _read(group, setting) or 0.0 for setting in OF_GROUPS}
            self.initial_values.append(values)

        # A schedule multiplies, so it cannot start at 0.
        for run in range(len(schedules)):
            self._check_start(run)

    def _check_setting(self, setting: str) -> None:
        """Raise an ActlabError for a scheduled setting that does not exist."""
        if setting not in SETTINGS:
            raise unknown("setting of a schedule", setting, SETTINGS)
        if setting in OF_DROPOUT and not any(
            layer.setting == setting for layer in self.dropouts
        ):
            raise ActlabError(
                f"model.schedules.{setting}: expected a network with {setting!r}, got none. Remove "
                "the schedule, or add layers actlab.networks.Dropout with a probability above 0."
            )
        # All groups have the settings of the optimiser's class
        if (
            setting in OF_GROUPS
            and _read(self.optimizer.param_groups[0], setting) is None
        ):
            name = type(self.optimizer).__name__
            raise ActlabError(
                f"model.schedules.{setting}: expected an optimizer with {setting!r}, got {name}. "
                "Remove the schedule, or use another optimizer."
            )

    def _check_start(self, run: int) -> None:
        """Raise an ActlabError for a scheduled setting that is 0 in all groups of a run."""
        groups = zip(self.initial_values, self.owners, strict=True)
        values_of_groups = [values for values, owner in groups if owner == run]
        for setting in self.schedules[run]:
            # Only the optimiser's settings have initial values.
            if setting not in OF_GROUPS or not values_of_groups:
                continue
            if not any(values[setting] for values in values_of_groups):
                raise ActlabError(
                    f"model.schedules.{setting}: expected a start value above 0, which the "
                    f"schedule multiplies, got 0. Set another {setting}, or remove the schedule."
                )

    @cached_property
    def _counted_schedules(self) -> Sequence[Mapping[str, Schedule]]:
        """The schedules of each run, with shares of the training as epochs or updates."""
        if self.total is None:
            return self.schedules
        counted = []
        for schedules in self.schedules:
            counted.append(
                {name: rule.over(self.total) for name, rule in schedules.items()}
            )
        return counted

    def factor(self, run: int, setting: str, epoch: int, update: int) -> float:
        """Return the current factor of a run's setting, for an epoch and update counted from 0."""
        schedule = self._counted_schedules[run][setting]
        # Its factor follows a metric, so it is in the state and not a function of the
        # epoch
        if isinstance(schedule, Plateau):
            # No state before the first evaluation
            state = self.states.get(f"{run} {setting}")
            return state[0] if state else 1.0
        return schedule.factor(epoch if schedule.by == "epoch" else update)

    def move(self, epoch: int, update: int) -> None:
        """Set all scheduled settings for the next update; epoch and update count from 0."""
        # Set the optimiser's groups.
        groups = zip(
            self.optimizer.param_groups, self.initial_values, self.owners, strict=True
        )
        for group, values, run in groups:
            for setting in self.schedules[run]:
                if setting in OF_GROUPS:
                    factor = self.factor(run, setting, epoch, update)
                    _write(group, setting, values[setting] * factor)

        # Set the dropout layers.
        for setting in OF_DROPOUT:
            layers = [layer for layer in self.dropouts if layer.setting == setting]
            # Without a schedule, layers keep their probability.
            if layers and any(setting in schedules for schedules in self.schedules):
                scale = self._scale(setting, epoch, update)
                for layer in layers:
                    layer.set_scale(scale)

    def _scale(self, setting: str, epoch: int, update: int) -> float | Tensor:
        """Return the factor of a dropout, as float64 ``(R, 1)`` if it differs between runs."""
        factors = []
        for run, schedules in enumerate(self.schedules):
            if setting in schedules:
                factors.append(self.factor(run, setting, epoch, update))
            else:
                # A run without a schedule keeps its probability
                factors.append(1.0)
        # One factor needs no tensor, and leaves the probability a number
        if len(set(factors)) == 1:
            return factors[0]
        return torch.tensor(factors, dtype=torch.float64).view(-1, 1)

    def observe(self, metrics: Mapping[str, Tensor]) -> None:
        """Update plateau schedules from metrics by name: one number, or one per run, ``(R,)``."""
        for run, schedules in enumerate(self.schedules):
            for setting, schedule in schedules.items():
                if isinstance(schedule, Plateau) and schedule.metric in metrics:
                    value = float(metrics[schedule.metric].flatten()[run])
                    key = f"{run} {setting}"
                    self.states[key] = schedule.observe(self.states.get(key, ()), value)


def _read(group: Mapping[str, Any], setting: str) -> float | None:
    """Return a setting of an optimiser group; None if it has none."""
    if setting != "beta1":
        return group.get(setting)
    if "betas" not in group:
        return None
    return float(group["betas"][0])


def _write(group: dict[str, Any], setting: str, value: float) -> None:
    if setting == "beta1":
        # torch's pair is immutable
        group["betas"] = (value, *group["betas"][1:])
    else:
        group[setting] = value
