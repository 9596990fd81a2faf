"""Schedules: factors over epochs or updates, which multiply the initial value of a setting."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor
from torch.optim import Optimizer

from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.validation import Whole, validated, validated_but

By = Literal["epoch", "update"]
Total = Callable[[By], int]  # the number of all epochs or updates of a training
OF_GROUPS = ("lr", "beta1", "momentum", "weight_decay")
OF_DROPOUT = ("dropout", "inner_dropout")  # inner: between the layers of a stack in `ConvStacks`
SETTINGS = OF_GROUPS + OF_DROPOUT


class Schedule(ABC):
    """A factor over training.

    Args:
        by: ``epoch`` for a factor that is constant within an epoch, or ``update``.
    """

    def __init__(self, by: By) -> None:
        self.by = by

    @abstractmethod
    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""

    def over(self, total: Total, begun: int = 0) -> Self:
        """Return the schedule with whole numbers in place of shares of the training.

        At the epoch or update ``begun`` the schedule's position is 0.
        """
        schedule = copy.copy(self)
        vars(schedule).update(self._whole(total, begun))
        return schedule

    def _whole(self, total: Total, begun: int) -> dict[str, Any]:
        return {}  # attributes that may be shares, as whole numbers

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        # Other attributes may not be hashable, such as a dict of steps
        return hash((type(self), self.by))


class Warmup(Schedule):
    """start + (1 − start)·(k + 1)/length for k < ``length``, then the factors of another schedule.

    Source: Goyal et al. 2017 (arXiv 1706.02677), §2.2.

    Args:
        length: number of epochs or updates, at least 1, or a share of the training, such as 0.1.
        start: the factor from which the warm-up rises, at least 0 and below 1.
        then: the schedule that follows, whose positions count from the end of the warm-up; None
            stays at 1.
        by: ``epoch`` or ``update``, also of ``then``.
    """

    @validated
    def __init__(
        self,
        length: int | float,
        start: Annotated[float, Ge(0), Lt(1)] = 0.0,
        then: Schedule | None = None,
        by: By = "update",
    ) -> None:
        super().__init__(by)
        if isinstance(then, Plateau):
            raise ActlabError(
                "Plateau follows a metric from the first epoch, so it cannot be the 'then' of a warm-up: give "
                "Cosine, Linear or Steps"
            )
        if then is not None and then.by != by:
            raise ActlabError(
                f"a warm-up by {by}, then {type(then).__name__} by {then.by}: give both the same 'by'"
            )
        self.length, self.start, self.then = _checked("length", length), start, then

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        length = _number(self.length)
        if at < length:
            return self.start + (1 - self.start) * (at + 1) / length
        return 1.0 if self.then is None else self.then.factor(at - length)

    def _whole(self, total: Total, begun: int) -> dict[str, Any]:
        length = _of_total(self.length, self.by, total)
        then = None if self.then is None else self.then.over(total, begun + length)
        return {"length": length, "then": then}


class Linear(Schedule):
    """1 until ``start``, then linear to ``final`` at ``end``, then constant.

    Args:
        start: first epoch or update of the line, at least 0, or a share of the training.
        end: last epoch or update of the line, above ``start``, or a share; None is the end of the
            training.
        final: the final factor.
        by: ``epoch`` or ``update``.
    """

    @validated
    def __init__(
        self,
        start: int | float = 0,
        end: int | float | None = None,
        final: float = 0.0,
        by: By = "epoch",
    ) -> None:
        super().__init__(by)
        if end is not None and not (
            start < end and (start == 0 or _is_share(start) == _is_share(end))
        ):
            raise ActlabError(
                f"a linear schedule from {start} to {end}: give 'end' above 'start', 'start' at least 0, both "
                "as whole numbers or both as shares of the training"
            )
        self.start, self.final = _checked("start", start, least=0), final
        self.end = None if end is None else _checked("end", end)

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        start, end = _number(self.start), _number(self.end)
        passed = min(max((at - start) / (end - start), 0.0), 1.0)
        return 1 + (self.final - 1) * passed

    def _whole(self, total: Total, begun: int) -> dict[str, Any]:
        start = _of_total(self.start, self.by, total, least=0)
        return {"start": start, "end": _of_total(self.end, self.by, total, begun, least=start + 1)}


class Cosine(Schedule):
    """Half a cosine from 1 to ``final`` at ``length``: final + (1 − final)·½(1 + cos(π·at/length)).

    Args:
        length: number of epochs or updates, at least 1, or a share of the training; None is the
            rest of it. Afterwards the factor is ``final``.
        final: the final factor.
        by: ``epoch`` or ``update``.
    """

    @validated
    def __init__(
        self, length: int | float | None = None, final: float = 0.0, by: By = "update"
    ) -> None:
        super().__init__(by)
        self.length, self.final = None if length is None else _checked("length", length), final

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        passed = min(at / _number(self.length), 1.0)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * passed))

    def _whole(self, total: Total, begun: int) -> dict[str, Any]:
        return {"length": _of_total(self.length, self.by, total, begun)}


class Steps(Schedule):
    """Piecewise constant: 1 at first, then a given factor from each step on: ``{35000: 0.5, 85000: 0.05}``.

    Args:
        factors: epoch or update, increasing from at least 0 → factor from that epoch or update on.
            Shares of the training, such as ``{0.5: 0.1, 0.75: 0.01}``, for all steps or for none.
        by: ``epoch`` or ``update``.
    """

    @validated_but("factors")  # as texts in a record
    def __init__(self, factors: dict[int | float, float], by: By = "epoch") -> None:
        super().__init__(by)
        if not isinstance(factors, dict):
            raise ActlabError(
                f"'factors' {factors!r} of steps: give a factor for each epoch or update"
            )
        self.factors = {
            _checked("step", _moment(at), least=0): factor for at, factor in factors.items()
        }
        moments = list(self.factors)
        if not moments or any(b <= a for a, b in pairwise(moments)):
            raise ActlabError(
                f"steps at {moments}: give increasing whole numbers, the first at least 0"
            )
        if len({_is_share(at) for at in moments if at}) > 1:
            raise ActlabError(
                f"steps at {moments}: give whole numbers only, or shares of the training only"
            )

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        return next(
            (f for moment, f in reversed(self.factors.items()) if at >= _number(moment)), 1.0
        )

    def _whole(self, total: Total, begun: int) -> dict[str, Any]:
        factors = {_of_total(at, self.by, total, least=0): f for at, f in self.factors.items()}
        return {"factors": factors}


class Plateau(Schedule):
    """Multiplies the factor by ``shrink`` when a metric stops improving.

    The factor shrinks after ``patience`` + 1 evaluations in a row without improvement. Every run
    has its own factor, also within a stack.

    Args:
        metric: logged name of the metric, such as ``val/loss``.
        shrink: multiplier of the factor, in (0, 1).
        patience: number of evaluations without improvement that leave the factor unchanged.
        threshold: relative improvement that counts as an improvement.
        least: lower bound of the factor.
        mode: ``min`` if smaller values are better, ``max`` if larger values are better.
    """

    @validated
    def __init__(
        self,
        metric: str = "val/loss",
        shrink: Annotated[float, Gt(0), Lt(1)] = 0.1,
        patience: Whole = 10,
        threshold: float = 1e-4,
        least: float = 0.0,
        mode: Literal["min", "max"] = "min",
    ) -> None:
        super().__init__("epoch")
        self.metric, self.shrink, self.patience = metric, shrink, patience
        self.threshold, self.least, self.mode = threshold, least, mode

    def factor(self, at: int) -> float:
        """Return 1; the factor depends on the metric, see `observe`."""
        return 1.0

    def observe(self, state: Sequence[float], value: float) -> list[float]:
        """Return the state after an evaluation; nan and +∞ (−∞ for ``max``) are no improvement.

        A state is [factor, best value (negated for ``max``), evaluations since the best]; empty at
        first.
        """
        sign = 1.0 if self.mode == "min" else -1.0
        factor, best, since = state or (1.0, math.inf, 0.0)
        if sign * value < best - self.threshold * abs(best if math.isfinite(best) else 0.0):
            return [factor, sign * value, 0.0]
        if since + 1 > self.patience:
            return [max(factor * self.shrink, self.least), best, 0.0]
        return [factor, best, since + 1]


def _is_share(length: int | float) -> bool:
    return 0 < length < 1


def _checked(name: str, length: int | float, least: int = 1) -> int | float:
    """Return a share, or a whole number, which counts by its value: 200.0 is 200. But 1.0 may mean a share."""
    is_whole = (
        length >= least and not length % 1 and not (length == 1 and isinstance(length, float))
    )
    if not (_is_share(length) or is_whole):
        raise ActlabError(
            f"{name} {length} of a schedule: give a whole number of epochs or updates, at least {least}, or a "
            "share of the training between 0 and 1, such as 0.1"
        )
    return length if _is_share(length) else int(length)


def _of_total(
    length: int | float | None, by: By, total: Total, begun: int = 0, least: int = 1
) -> int:
    if length is None:
        return max(least, total(by) - begun)
    return max(least, round(length * total(by))) if _is_share(length) else max(least, int(length))


def _number(length: int | float | None) -> int:
    if length is None or _is_share(length):
        raise ActlabError(
            f"the factor of a schedule of length {length} depends on the training: see `over`"
        )
    return int(length)


def _moment(at: Any) -> int | float:
    """Return the key of a step, which is text in JSON and in records."""
    try:
        number = float(at)
    except (TypeError, ValueError) as error:
        raise ActlabError(
            f"step {at!r} of a schedule: give a number of epochs or updates"
        ) from error
    return int(number) if number.is_integer() else number


class Scheduler:
    """Applies schedules to the settings of a fresh optimiser and the dropout of a network.

    ``members`` are the schedules by setting of one run or each of the R runs of a stack; ``owners``
    the run of each optimiser group, where runs with equal schedules may share a group; ``dropouts``
    layers `actlab.networks.Dropout`; ``states`` those of plateau schedules by ``"{member}
    {setting}"``, updated in place, for checkpoints; ``total`` returns the number of all epochs or
    updates, for schedules by shares of the training, and is first called by `move`, when the
    Trainer has its data.
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
        self.optimizer, self.members, self.owners, self.dropouts = (
            optimizer,
            members,
            owners,
            dropouts,
        )
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
        self.start = [
            {s: _read(group, s) or 0.0 for s in OF_GROUPS} for group in optimizer.param_groups
        ]
        for run, schedules in enumerate(members):
            starts = [
                start for start, owner in zip(self.start, owners, strict=True) if owner == run
            ]
            for setting in (s for s in schedules if s in OF_GROUPS and starts):
                if not any(start[setting] for start in starts):
                    raise ActlabError(
                        f"{setting} is 0: a schedule multiplies it, so it would never change"
                    )

    @cached_property
    def _whole(self) -> Sequence[Mapping[str, Schedule]]:
        if self.total is None:
            return self.members
        return [
            {name: rule.over(self.total) for name, rule in of_run.items()}
            for of_run in self.members
        ]

    def factor(self, member: int, setting: str, epoch: int, update: int) -> float:
        """Return the current factor of a run's setting, for an epoch and update counted from 0."""
        schedule = self._whole[member][setting]
        if isinstance(schedule, Plateau):
            return (self.states.get(f"{member} {setting}") or [1.0])[0]
        return schedule.factor(epoch if schedule.by == "epoch" else update)

    def move(self, epoch: int, update: int) -> None:
        """Set all scheduled settings for the next update; epoch and update count from 0."""
        for group, start, member in zip(
            self.optimizer.param_groups, self.start, self.owners, strict=True
        ):
            for setting in self.members[member]:
                if setting in OF_GROUPS:
                    _write(
                        group, setting, start[setting] * self.factor(member, setting, epoch, update)
                    )
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
