"""Medians, confidence intervals and tests for a small number of paired runs; pure functions.

The input contains no nan. A diverged run counts as ``inf``, the worst value (``-inf`` where large
values are good): its paired difference is infinite, or 0 where both runs diverged. An undefined
p-value is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator

Array = npt.NDArray[np.float64]
# A number that a file may have as null, because it is not finite; it is read as nan.
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]

FLOATS = 1e-12  # rounding error of sums of floats, relative to the largest difference
LEVEL = 0.05  # of tests; intervals cover at least the rest
FEWEST = 6  # pairs: 2/2^6 = 0.031 is the first two-sided sign-flip p below 0.05


class Interval(NamedTuple):
    """The interval of a median between two order statistics.

    ``kind`` is ``interval`` if ``coverage``, the probability that it contains the true median,
    reaches 95 %. With too few values for that, ``kind`` is ``range``: from the smallest to the
    largest value.
    """

    low: Number
    high: Number
    kind: Literal["interval", "range"]
    coverage: float


class Band(NamedTuple):
    """A median and its interval at each of E positions: arrays of shape ``[E]``, the rest as in `Interval`."""

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
    listed = list(values)
    return float(np.median(listed)) if listed else default


def mean_and_sd(values: Iterable[float]) -> tuple[float, float] | None:
    """Return mean and sample standard deviation (n - 1); None for fewer than two values, or an infinite one."""
    listed = np.fromiter(values, float)
    if listed.size < 2 or not np.isfinite(listed).all():
        return None
    return float(listed.mean()), float(listed.std(ddof=1))


def median_interval(values: Iterable[float]) -> Interval:
    """Return the narrowest symmetric `Interval` of a median that covers 95 %; values may be ``inf``."""
    band = median_band(np.fromiter(values, float)[:, None])
    return Interval(float(band.low[0]), float(band.high[0]), band.kind, band.coverage)


def median_band(values: Array) -> Band:
    """Return the median of n runs at E positions, shape ``[n, E]``, and its interval at each position alone."""
    n = len(values)
    sorted_values = np.sort(values, axis=0)
    k = max((k for k in range(1, n // 2 + 1) if coverage(n, k) >= 1 - LEVEL), default=1)
    covered = coverage(n, k)
    kind: Literal["interval", "range"] = "interval" if covered >= 1 - LEVEL else "range"
    return Band(
        np.median(values, axis=0), sorted_values[k - 1], sorted_values[n - k], kind, covered
    )


def coverage(n: int, k: int) -> float:
    """Return the probability that the median lies between the k-th smallest and k-th largest of n values."""
    # 1 - 2 P(Bin(n, 1/2) < k): fewer than k values lie on one side of the median.
    return 1 - math.ldexp(sum(math.comb(n, i) for i in range(k)), 1 - n)


def on_grid(value: float, number: float | None) -> float:
    """Return the share k/N of N samples that a recorded value stands for; any other value as it is."""
    # Runs record float32. Read back to whole samples, ties and equal differences are exactly equal.
    if not number or not math.isfinite(value) or not is_share(value, number):
        return value
    return round(value * number) / number


def is_share(value: float, number: float) -> bool:
    """Return whether a value recorded as float32 is a share k/N of N samples; so is one that is not finite."""
    if not math.isfinite(value):
        return True
    return 0 <= value <= 1 and abs(value - round(value * number) / number) <= value * 2.0**-22


def sampling_error(share: float | None, number: float | None) -> float | None:
    """Return the standard error of a share measured on N samples, √(p(1 - p)/N); None if unknown."""
    if not number or share is None or not 0 <= share <= 1:
        return None
    return math.sqrt(share * (1 - share) / number)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down correction of p-values over all hypotheses; None counts, and stays None."""
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        # The smallest p is multiplied by the number of all, each next one by one less, and none
        # falls.
        largest = max(largest, min(1.0, p * (len(ps) - rank)))
        corrected[i] = largest
    return corrected


def p_text(p: float) -> str:
    """Return a p-value as printed, with two digits: ``0.043``, ``1e-05``."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def pairs_needed(hypotheses: int = 1) -> int:
    """Return the fewest pairs whose smallest two-sided sign-flip p survives Holm's correction."""
    return math.floor(math.log2(2 * max(1, hypotheses) / LEVEL)) + 1
