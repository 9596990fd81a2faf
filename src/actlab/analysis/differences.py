"""The mean paired difference and the confidence interval from its sign-flip test; pure functions.

For a shift δ, the test counts the sign patterns that bring the sum of dᵢ - δ at least as far from 0 as the
observed sum. Flipping the signs of a subset F does so exactly when δ lies between the mean of F and the mean of
the rest. Each of these spans contains the mean of all differences, so p decreases on both sides of this mean.
The shifts with p ≥ 0.05 therefore form an interval, and its ends are means of subsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from actlab.analysis.statistics import EXACT, FEWEST, FLOATS, LEVEL, Array, paired_differences, parts, rounding


class Difference(NamedTuple):
    """The paired differences between values and those of the reference; None for what does not exist."""

    mean: float | None  # None without pairs, or if a difference is not finite
    low: float | None  # end of the interval of the mean; None with fewer than `FEWEST` pairs
    high: float | None
    median: float | None  # infinite where most differences are; None between minus and plus infinity
    p: float | None  # two-sided sign-flip test; below 0.05 exactly when 0 lies outside the 95 % interval
    pairs: int

    @property
    def untested(self) -> Difference:
        """A copy without p-value and interval."""
        return self._replace(low=None, high=None, p=None)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Return mean and median of ``a - b``, and p-value and interval of the mean from the sign-flip test.

    The test is exact over all sign patterns up to `EXACT` pairs; for more pairs it uses random patterns.

    >>> paired_difference([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0])
    Difference(mean=3.5, low=1.0, high=6.0, median=3.5, p=0.03125, pairs=6)
    >>> paired_difference([1, 2], [0, 0])
    Difference(mean=1.5, low=None, high=None, median=1.5, p=None, pairs=2)
    """
    d = paired_differences(a, b)
    middle = _median(d)
    if d.size == 0 or not np.isfinite(d).all():
        return Difference(None, None, None, middle, None, d.size)
    mean = float(d.mean())
    if d.size < FEWEST:
        return Difference(mean, None, None, middle, None, d.size)
    scale = float(np.abs(d).max()) or 1.0  # keeps tiny and huge differences away from underflow and overflow
    off = np.maximum(rounding(a, b) / scale, FLOATS)
    low, high, p = _invert_test(tuple(d / scale), tuple(off))
    return Difference(mean, scale * low, scale * high, middle, p, d.size)


def _median(d: Array) -> float | None:
    """Return the median of differences; None if it would lie between minus and plus infinity."""
    if d.size == 0:
        return None
    middle = np.sort(d)[[(d.size - 1) // 2, d.size // 2]]
    return None if middle[0] == -math.inf and middle[1] == math.inf else float(middle.mean())


@lru_cache(maxsize=4096)  # every table is written several times; 20 pairs take a tenth of a second
def _invert_test(d: tuple[float, ...], off: tuple[float, ...]) -> tuple[float, float, float]:
    """Return the ends of the interval of shifts with p ≥ `LEVEL`, and the p-value of shift 0."""
    low, high, always, total = _spans(np.array(d), np.array(off))
    p = (always + int(((low <= 0) & (high >= 0)).sum())) / total
    needed = math.ceil(LEVEL * total) - always  # number of spans that must contain a shift with p >= LEVEL
    if needed <= 0:
        return -math.inf, math.inf, p
    smallest, largest = np.partition(low, needed - 1), np.partition(high, high.size - needed)
    return float(smallest[needed - 1]), float(largest[high.size - needed]), p


def _spans(d: Array, off: Array) -> tuple[Array, Array, int, int]:
    """Return lower and upper ends of the spans from the mean of each subset to the mean of the rest.

    Also returns the number of patterns that count for every shift, which flip nothing or everything (and, among
    random patterns, the observed one), and the number of all patterns.
    """
    sums, sizes = parts(d)
    proper = (sizes > 0) & (sizes < d.size)
    total = sums.size + (d.size > EXACT)
    always = total - int(proper.sum())
    sums, sizes, apart = sums[proper], sizes[proper], parts(off)[0][proper]
    one = _snap_to_zero(sums / sizes, apart / sizes)
    other = _snap_to_zero((d.sum() - sums) / (d.size - sizes), (off.sum() - apart) / (d.size - sizes))
    mean = _snap_to_zero(d.mean(), off.mean())
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.minimum(low, mean), np.maximum(high, mean), always, total


def _snap_to_zero(values: Array, off: Array) -> Array:
    """Return values with 0 in place of rounding errors: ties are common and must count as ties."""
    return np.where(np.abs(values) < off, 0.0, values)
