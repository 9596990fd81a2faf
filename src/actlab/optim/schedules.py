"""Schedules: factors over epochs or updates, which multiply the initial value of a setting."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from actlab.errors import ActlabError

By = Literal["epoch", "update"]


class Schedule(ABC):
    """A factor over training that starts at 1.

    Args:
        by: ``epoch`` for a factor that is constant within an epoch, or ``update``.
    """

    def __init__(self, by: By) -> None:
        self.by = by

    @abstractmethod
    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(vars(self).items()))))


class Linear(Schedule):
    """1 until ``start``, then linear to ``final`` at ``end``, then constant.

    Args:
        start: first epoch or update of the line, at least 0.
        end: last epoch or update of the line, above ``start``.
        final: the final factor.
        by: ``epoch`` or ``update``.
    """

    def __init__(self, start: int, end: int, final: float = 0.0, by: By = "epoch") -> None:
        super().__init__(by)
        if not 0 <= start < end:
            raise ActlabError(
                f"a linear schedule from {start} to {end}: give 'end' above 'start', 'start' at least 0"
            )
        self.start, self.end, self.final = start, end, final

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        passed = min(max((at - self.start) / (self.end - self.start), 0.0), 1.0)
        return 1 + (self.final - 1) * passed


class Cosine(Schedule):
    """Half a cosine from 1 to ``final`` at ``length``: final + (1 − final)·½(1 + cos(π·at/length)).

    Args:
        length: number of epochs or updates, at least 1; afterwards the factor is ``final``.
        final: the final factor.
        by: ``epoch`` or ``update``.
    """

    def __init__(self, length: int, final: float = 0.0, by: By = "update") -> None:
        super().__init__(by)
        if length < 1:
            raise ActlabError(f"a cosine of length {length}: give a whole number of at least 1")
        self.length, self.final = length, final

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * min(at / self.length, 1.0)))


class Steps(Schedule):
    """Piecewise constant: 1 at first, then a given factor from each step on: ``{35000: 0.5, 85000: 0.05}``.

    Args:
        factors: epoch or update, increasing from at least 0 → factor from that epoch or update on.
        by: ``epoch`` or ``update``.
    """

    def __init__(self, factors: dict[int, float], by: By = "epoch") -> None:
        super().__init__(by)
        moments = list(factors)
        if not moments or moments[0] < 0 or any(b <= a for a, b in pairwise(moments)):
            raise ActlabError(f"steps at {moments}: give increasing whole numbers, the first at least 0")
        self.factors = factors

    def factor(self, at: int) -> float:
        """Return the factor in epoch or at update ``at``, counted from 0."""
        return next((f for moment, f in reversed(self.factors.items()) if at >= moment), 1.0)


class Plateau(Schedule):
    """Multiplies the factor by ``shrink`` when a metric stops improving.

    The factor shrinks after ``patience`` + 1 evaluations in a row without improvement. Every run has its own
    factor, also within a stack.

    Args:
        metric: logged name of the metric, such as ``val/loss``.
        shrink: multiplier of the factor, in (0, 1).
        patience: number of evaluations without improvement that leave the factor unchanged.
        threshold: relative improvement that counts as an improvement.
        least: lower bound of the factor.
        mode: ``min`` if smaller values are better, ``max`` if larger values are better.
    """

    def __init__(
        self,
        metric: str = "val/loss",
        shrink: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        least: float = 0.0,
        mode: Literal["min", "max"] = "min",
    ) -> None:
        super().__init__("epoch")
        if not 0 < shrink < 1:
            raise ActlabError(f"'shrink' {shrink} of a plateau schedule: give a number between 0 and 1")
        self.metric, self.shrink, self.patience = metric, shrink, patience
        self.threshold, self.least, self.mode = threshold, least, mode

    def factor(self, at: int) -> float:
        """Return 1; the factor depends on the metric, see `observe`."""
        return 1.0

    def observe(self, state: Sequence[float], value: float) -> list[float]:
        """Return the state after an evaluation; nan and +∞ (−∞ for ``max``) are no improvement.

        A state is [factor, best value (negated for ``max``), evaluations since the best]; empty at first.
        """
        sign = 1.0 if self.mode == "min" else -1.0
        factor, best, since = state or (1.0, math.inf, 0.0)
        if sign * value < best - self.threshold * abs(best if math.isfinite(best) else 0.0):
            return [factor, sign * value, 0.0]
        if since + 1 > self.patience:
            return [max(factor * self.shrink, self.least), best, 0.0]
        return [factor, best, since + 1]
