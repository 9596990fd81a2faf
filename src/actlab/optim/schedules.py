"""Schedules: factors over epochs or updates.

A factor multiplies the value that a setting started with, so one schedule serves runs that start with different
values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from actlab.errors import ActlabError

By = Literal["epoch", "update"]


class Schedule(ABC):
    """A factor over training, 1 at its start.

    Args:
        by: what is counted: epochs, so that the factor is constant within one, or updates.
    """

    def __init__(self, by: By) -> None:
        self.by = by

    @abstractmethod
    def factor(self, at: int) -> float:
        """The factor in epoch or at update ``at``, counted from 0."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(vars(self).items()))))


class Linear(Schedule):
    """1 until ``start``, from there in a straight line to ``final`` at ``end``, then ``final``.

    Args:
        start: epoch or update.
        end: later than ``start``.
        final: the last factor.
        by: ``epoch`` or ``update``.

    Raises:
        ActlabError: when ``end`` does not lie after ``start``.
    """

    def __init__(self, start: int, end: int, final: float = 0.0, by: By = "epoch") -> None:
        super().__init__(by)
        if not 0 <= start < end:
            raise ActlabError(f"a linear schedule from {start} to {end}: give 'end' above 'start', both from 0")
        self.start, self.end, self.final = start, end, final

    def factor(self, at: int) -> float:
        """See the class."""
        passed = min(max((at - self.start) / (self.end - self.start), 0.0), 1.0)
        return 1 + (self.final - 1) * passed


class Cosine(Schedule):
    """Half a cosine from 1 to ``final`` at ``length``: final + (1 − final)·½(1 + cos(π·at/length)).

    Args:
        length: epochs or updates.
        final: the last factor.
        by: ``epoch`` or ``update``.

    Raises:
        ActlabError: for a length below 1.
    """

    def __init__(self, length: int, final: float = 0.0, by: By = "update") -> None:
        super().__init__(by)
        if length < 1:
            raise ActlabError(f"a cosine of length {length}: give a whole number from 1")
        self.length, self.final = length, final

    def factor(self, at: int) -> float:
        """See the class."""
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * min(at / self.length, 1.0)))


class Steps(Schedule):
    """1 at first, then from each of some moments on a factor of its own: ``{35000: 0.5, 85000: 0.05}``.

    Args:
        factors: epoch or update → the factor from there on.
        by: ``epoch`` or ``update``.

    Raises:
        ActlabError: for moments that do not rise from 0 on.
    """

    def __init__(self, factors: dict[int, float], by: By = "epoch") -> None:
        super().__init__(by)
        moments = list(factors)
        if not moments or moments[0] < 0 or any(b <= a for a, b in pairwise(moments)):
            raise ActlabError(f"steps at {moments}: give whole numbers that rise, the first at least 0")
        self.factors = factors

    def factor(self, at: int) -> float:
        """See the class."""
        return next((f for moment, f in reversed(self.factors.items()) if at >= moment), 1.0)


class Plateau(Schedule):
    """Multiplied by ``shrink`` whenever a metric has not improved for ``patience`` evaluations in a row.

    Every run has a factor of its own, members of a stack too.

    Args:
        metric: as it is logged, such as ``val/loss``.
        shrink: what the factor is multiplied with, in (0, 1).
        patience: evaluations without improvement that are borne.
        threshold: relative improvement that counts.
        least: the factor never falls below it.
        mode: ``min`` when small values are good, ``max`` when large ones are.

    Raises:
        ActlabError: for a ``shrink`` outside (0, 1).
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
        """1: what was observed decides, see `observe`."""
        return 1.0

    def observe(self, state: Sequence[float], value: float) -> list[float]:
        """The state after an evaluation gave ``value``.

        Args:
            state: factor, best value, evaluations since; empty before the first one.
            value: of the metric; one that is not finite is no improvement.
        """
        sign = 1.0 if self.mode == "min" else -1.0
        factor, best, since = state or (1.0, math.inf, 0.0)
        if sign * value < best - self.threshold * abs(best if math.isfinite(best) else 0.0):
            return [factor, sign * value, 0.0]
        if since + 1 > self.patience:
            return [max(factor * self.shrink, self.least), best, 0.0]
        return [factor, best, since + 1]
