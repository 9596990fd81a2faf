"""Schedules: factors over epochs or updates, which multiply the initial value of a setting."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Lt

from actlab.errors import ActlabError
from actlab.validation import Whole, validated, validated_but

By = Literal["epoch", "update"]
Total = Callable[[By], int]  # the number of all epochs or updates of a training


class Schedule(ABC):
    """A factor over training, as a function of the epoch or update.

    A schedule does not change a setting: `Scheduler` multiplies initial values by the factor.

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
        # The schedule itself keeps its shares, for another training
        schedule = copy.copy(self)
        vars(schedule).update(self._whole_numbers(total, begun))
        return schedule

    def _whole_numbers(self, total: Total, begun: int) -> dict[str, Any]:
        """Return the attributes that may be shares, as whole numbers."""
        return {}

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

        # Check the next schedule.
        if isinstance(then, Plateau):
            raise ActlabError(
                "Warmup: then: expected Cosine, Linear or Steps, got Plateau, which follows a "
                "metric from the first epoch"
            )
        # Both must count epochs, or both updates.
        if then is not None and then.by != by:
            raise ActlabError(
                f"Warmup: then: expected a schedule by {by}, as in the warm-up, got "
                f"{type(then).__name__} by {then.by}. Set the same 'by'."
            )

        # Epochs or updates, or a share of the training
        self.length = _checked("length", length)

        self.start = start
        self.then = then

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        # The last update of the warm-up has the factor 1
        length = _number(self.length)
        if at < length:
            return self.start + (1 - self.start) * (at + 1) / length

        # The warm-up is over.
        if self.then is None:
            return 1.0
        return self.then.factor(at - length)

    def _whole_numbers(self, total: Total, begun: int) -> dict[str, Any]:
        length = _of_total(self.length, self.by, total)

        # The next schedule begins after the warm-up.
        then = self.then
        if then is not None:
            then = then.over(total, begun + length)
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
        if end is not None:
            # A start of 0 is both a whole number and a share.
            ends_later = start < end
            is_alike = start == 0 or _is_share(start) == _is_share(end)
            if not (ends_later and is_alike):
                raise ActlabError(
                    "Linear: expected a 'start' from 0 and a larger 'end', both as whole numbers "
                    f"or both as shares of the training, got {start} and {end}"
                )
        self.start = _checked("start", start, least=0)
        self.end = None if end is None else _checked("end", end)
        self.final = final

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        start = _number(self.start)
        end = _number(self.end)
        # 0 before the line, 1 behind it
        passed = min(max((at - start) / (end - start), 0.0), 1.0)
        return 1 + (self.final - 1) * passed

    def _whole_numbers(self, total: Total, begun: int) -> dict[str, Any]:
        start = _of_total(self.start, self.by, total, least=0)
        end = _of_total(self.end, self.by, total, begun, least=start + 1)
        return {"start": start, "end": end}


class Cosine(Schedule):
    """Half a cosine from 1 to ``final``: final + (1 − final)·½(1 + cos(π·at/length)).

    Args:
        length: number of epochs or updates, at least 1, or a share of the training; None lasts to
            the end of the training. Afterwards the factor is ``final``.
        final: the final factor.
        by: ``epoch`` or ``update``.
    """

    @validated
    def __init__(
        self, length: int | float | None = None, final: float = 0.0, by: By = "update"
    ) -> None:
        super().__init__(by)
        self.length = None if length is None else _checked("length", length)
        self.final = final

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        # Behind the end the factor stays
        passed = min(at / _number(self.length), 1.0)
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * passed))

    def _whole_numbers(self, total: Total, begun: int) -> dict[str, Any]:
        return {"length": _of_total(self.length, self.by, total, begun)}


class Steps(Schedule):
    """Piecewise constant: 1 at first, then a factor from each step on.

    Example: ``{35000: 0.5, 85000: 0.05}``.

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
                f"Steps: factors: expected a factor for each epoch or update, got {factors!r}"
            )
        self.factors = {}
        # Records store the steps as text.
        for at, factor in factors.items():
            moment = _checked("step", _moment(at), least=0)
            self.factors[moment] = factor

        # Steps come in order, and all as whole numbers or all as shares.
        moments = list(self.factors)
        if not moments or any(b <= a for a, b in pairwise(moments)):
            raise ActlabError(
                f"Steps: factors: expected increasing whole numbers from 0, got {moments}"
            )
        if len({_is_share(at) for at in moments if at}) > 1:
            raise ActlabError(
                "Steps: factors: expected only whole numbers or only shares of the training, got "
                f"{moments}"
            )

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        current = 1.0
        # Steps increase, so the last one that has passed counts
        for moment, factor in self.factors.items():
            if at >= _number(moment):
                current = factor
        return current

    def _whole_numbers(self, total: Total, begun: int) -> dict[str, Any]:
        factors = {}
        for moment, factor in self.factors.items():
            factors[_of_total(moment, self.by, total, least=0)] = factor
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
        self.metric = metric
        self.shrink = shrink
        self.patience = patience
        self.threshold = threshold
        self.least = least
        self.mode = mode

    def factor(self, at: int) -> float:
        """Return 1; the factor depends on the metric, see `observe`."""
        return 1.0

    def observe(self, state: Sequence[float], value: float) -> list[float]:
        """Return the state after an evaluation.

        A nan is not an improvement, and neither is +∞, or −∞ for ``max``.

        Args:
            state: [factor, best value, evaluations since the best]; empty at first. The best value
                is negated for ``max``.
            value: the value of the metric.
        """
        factor, best, since = state or (1.0, math.inf, 0.0)
        if self.mode == "max":
            # From here on, lower is better
            value = -value

        # An improvement counts from the threshold on, which the infinite first value
        # lacks.
        needed = best
        if math.isfinite(best):
            needed = best - self.threshold * abs(best)
        if value < needed:
            return [factor, value, 0.0]

        # Shrink the factor after too many evaluations without improvement.
        if since + 1 > self.patience:
            return [max(factor * self.shrink, self.least), best, 0.0]
        return [factor, best, since + 1]


def _is_share(length: int | float) -> bool:
    return 0 < length < 1


def _checked(name: str, length: int | float, least: int = 1) -> int | float:
    """Return a share as it is, or a whole number as an int.

    A float counts by its value, 200.0 is 200; but 1.0 may mean a share, so it is rejected.
    """
    # A share needs the length of the training, which is not known yet.
    if _is_share(length):
        return length
    may_be_share = length == 1 and isinstance(length, float)
    if length < least or length % 1 or may_be_share:
        raise ActlabError(
            f"{name} of a schedule: expected a whole number of epochs or updates from {least}, or "
            f"a share of the training between 0 and 1, such as 0.1, got {length}"
        )
    return int(length)


def _of_total(
    length: int | float | None, by: By, total: Total, begun: int = 0, least: int = 1
) -> int:
    """Return a length as a whole number; None lasts to the end of the training."""
    # A warm-up before this schedule has used ``begun`` of them
    if length is None:
        return max(least, total(by) - begun)
    if _is_share(length):
        # A short training has a length of at least one
        return max(least, round(length * total(by)))
    return max(least, int(length))


def _number(length: int | float | None) -> int:
    """Return a length that does not depend on the training."""
    if length is None or _is_share(length):
        raise ActlabError(
            f"the factor of a schedule of length {length} depends on the training. Call `over` "
            "first."
        )
    return int(length)


def _moment(at: Any) -> int | float:
    """Return the key of a step, which is text in JSON and in records."""
    try:
        number = float(at)
    except (TypeError, ValueError) as error:
        raise ActlabError(
            f"step of a schedule: expected a number of epochs or updates, got {at!r}"
        ) from error
    if number.is_integer():
        return int(number)
    return number


def is_stateful(schedules: Mapping[str, Schedule]) -> bool:
    """Return whether a run's schedules depend on its metrics.

    Then no other run can share its settings.
    """
    return any(isinstance(schedule, Plateau) for schedule in schedules.values())
