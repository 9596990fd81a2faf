"""Medians, confidence intervals and tests for a small number of paired runs; pure functions.

The input contains no nan. A diverged run counts as ``inf``, the worst value, or as ``-inf`` if
large values are good. Its paired difference is infinite, or 0 if both runs diverged. An undefined
p-value is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator

Array = npt.NDArray[np.float64]

FLOATS = 1e-12  # rounding error of sums of floats, relative to the largest difference
LEVEL = 0.05  # of tests; intervals cover at least 95 %
INSIDE = 0.0125  # of each test of equivalence alone: the 97.5 % interval is inside the margin
FEWEST = 6  # pairs: 2/2^6 = 0.031 is the first two-sided sign-flip p below 0.05


def _nan_for_null(value: Any) -> Any:
    return math.nan if value is None else value


# A number that a file may have as null, because it is not finite; it is read as nan.
Number = Annotated[float, BeforeValidator(_nan_for_null)]


class Interval(NamedTuple):
    """The interval of a median between two order statistics.

    ``coverage`` is the probability that the interval contains the true median. ``kind`` is
    ``interval`` if the coverage reaches 95 %. Too few values cannot reach 95 %: then ``kind`` is
    ``range``, from the smallest to the largest value.
    """

    low: Number
    high: Number
    kind: Literal["interval", "range"]
    coverage: float


class Band(NamedTuple):
    """A median and its `Interval` at each of E positions; arrays of shape ``[E]``."""

    median: Array
    low: Array
    high: Array
    kind: Literal["interval", "range"]
    coverage: float


def median(values: Iterable[float], default: float = math.nan) -> float:
    """Return the median, or ``default`` if there are no values.

    >>> median([3, 1, 2]), median([1, 2, math.inf]), median([], default=0)
    (2.0, 2.0, 0)
    """
    numbers = list(values)
    return float(np.median(numbers)) if numbers else default


def mean_and_sd(values: Iterable[float]) -> tuple[float, float] | None:
    """Return mean and sample standard deviation (n - 1).

    None for fewer than two values, or with an infinite value.
    """
    numbers = np.fromiter(values, float)
    if numbers.size < 2 or not np.isfinite(numbers).all():
        return None
    return float(numbers.mean()), float(numbers.std(ddof=1))


def median_interval(values: Iterable[float]) -> Interval:
    """Return the narrowest symmetric `Interval` of a median that covers 95 %.

    Values may be ``inf``.
    """
    column = np.fromiter(values, float)[:, None]
    band = median_band(column)
    return Interval(float(band.low[0]), float(band.high[0]), band.kind, band.coverage)


def median_band(values: Array) -> Band:
    """Return the median of n runs at E positions, with a separate interval at each position.

    Args:
        values: shape ``[n, E]``.
    """
    n = len(values)
    sorted_values = np.sort(values, axis=0)

    # Narrow the interval from both sides while it covers enough.
    k = 1
    while k < n // 2 and coverage(n, k + 1) >= 1 - LEVEL:
        k += 1
    covered = coverage(n, k)
    kind: Literal["interval", "range"] = "interval" if covered >= 1 - LEVEL else "range"

    middle = np.median(values, axis=0)
    return Band(middle, sorted_values[k - 1], sorted_values[n - k], kind, covered)


def coverage(n: int, k: int) -> float:
    """Return the probability that the median of a population lies between two order statistics.

    These are the k-th smallest and the k-th largest of n values.
    """
    # 1 - 2 P(Bin(n, 1/2) < k): fewer than k values lie on one side of the median.
    outcomes = sum(math.comb(n, i) for i in range(k))
    return 1 - math.ldexp(outcomes, 1 - n)


def on_grid(value: float, number: float | None) -> float:
    """Return the share k/N of N samples that a recorded value stands for.

    Any other value is returned as it is.
    """
    # Runs record float32. Read back to whole samples, ties and equal differences are
    # exactly equal.
    if not number or not math.isfinite(value) or not is_share(value, number):
        return value
    return round(value * number) / number


def is_share(value: float, number: float) -> bool:
    """Return whether a value recorded as float32 is a share k/N of N samples.

    A value that is not finite counts as a share.
    """
    if not math.isfinite(value):
        return True
    if not 0 <= value <= 1:
        return False
    nearest = round(value * number) / number
    return abs(value - nearest) <= value * 2.0**-22


def sampling_error(share: float | None, number: float | None) -> float | None:
    """Return the standard error of a share of N samples, √(p(1 - p)/N); None if unknown."""
    if not number or share is None or not 0 <= share <= 1:
        return None
    return math.sqrt(share * (1 - share) / number)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down correction of p-values.

    A p-value of None counts as a hypothesis, and stays None.
    """
    ranked = sorted((p, i) for i, p in enumerate(ps) if p is not None)

    # The smallest p is multiplied by the number of hypotheses, each next p by one less.
    # A corrected p is at least as large as the ones before it.
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, i) in enumerate(ranked):
        multiplied = p * (len(ps) - rank)
        largest = max(largest, min(1.0, multiplied))
        corrected[i] = largest
    return corrected


def p_text(p: float) -> str:
    """Return a p-value as printed, with two digits: ``0.043``, ``1e-05``."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def pairs_needed(hypotheses: int = 1) -> int:
    """Return the fewest pairs whose smallest two-sided sign-flip p survives Holm's correction."""
    return math.floor(math.log2(2 * max(1, hypotheses) / LEVEL)) + 1


def runs_needed(hypotheses: int = 1) -> int:
    """Return the fewest runs of each side with which a comparison can have a verdict.

    The smallest two-sided p of the probability of being better then survives Holm's correction. It
    counts two of all splits of both sides, so it needs fewer runs than `pairs_needed`.
    """
    runs = FEWEST
    while 2 * hypotheses >= LEVEL * math.comb(2 * runs, runs):
        runs += 1
    return runs
