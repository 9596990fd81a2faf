"""The mean paired difference, and the interval that its sign-flip test leaves: pure functions of numbers.

The test asks of a shift δ how many patterns of signs bring the sum of dᵢ - δ as far from 0 as it is. Turning
the signs of a part F does so exactly when δ lies between the mean of F and the mean of the rest. All these
spans hold the mean of all differences, so p falls on both sides of it, the shifts with p ≥ 0.05 are an
interval, and its ends are means of parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from actlab.analysis.statistics import EXACT, FEWEST, FLOATS, Array, paired_differences, parts, rounding

LEVEL = 0.05


class Difference(NamedTuple):
    """How far values lie from the reference's, pair by pair.

    Args:
        mean: of the differences; None without pairs, or when one of them is not finite.
        low: lower end of the mean's interval; None with fewer than `FEWEST` pairs, or without a mean.
        high: its upper end.
        median: of the differences, infinite where most pairs are; None without pairs.
        p: of the exact two-sided sign-flip test; None where there is no interval. 0 lies outside the 95 %
            interval exactly when p is below 0.05.
        pairs: how many.
    """

    mean: float | None
    low: float | None
    high: float | None
    median: float | None
    p: float | None
    pairs: int

    @property
    def untested(self) -> Difference:
        """The same without p and interval."""
        return self._replace(low=None, high=None, p=None)


def paired_difference(
    a: Sequence[float], b: Sequence[float], level: float = LEVEL, seed: int = 0
) -> Difference:
    """``a - b``: mean and median, and for the mean the p and the interval of the sign-flip test.

    Exact over all patterns of signs up to `EXACT` pairs, beyond that over drawn ones.

    Args:
        a: values of one side; ``inf`` where a run diverged.
        b: values of the other, in the same order.
        level: 1 minus the coverage of the interval.
        seed: of the drawn patterns.

    Raises:
        ActlabError: when ``a`` and ``b`` are not of one length.

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
    low, high, p = _inverted(tuple(d / scale), tuple(off), level, seed)
    return Difference(mean, scale * low, scale * high, middle, p, d.size)


def _median(d: Array) -> float | None:
    """The median of differences; None where it would lie between minus and plus infinity."""
    if d.size == 0:
        return None
    middle = np.sort(d)[[(d.size - 1) // 2, d.size // 2]]
    return None if middle[0] == -math.inf and middle[1] == math.inf else float(middle.mean())


@lru_cache(maxsize=4096)  # a table is written several times over; 20 pairs take a tenth of a second
def _inverted(
    d: tuple[float, ...], off: tuple[float, ...], level: float, seed: int
) -> tuple[float, float, float]:
    """The ends of the interval of shifts whose p reaches ``level``, and the p of no shift."""
    low, high, always, total = _spans(np.array(d), np.array(off), seed)
    p = (always + int(((low <= 0) & (high >= 0)).sum())) / total
    needed = math.ceil(level * total) - always  # so many spans must hold a shift that is not refused
    if needed <= 0:
        return -math.inf, math.inf, p
    smallest, largest = np.partition(low, needed - 1), np.partition(high, high.size - needed)
    return float(smallest[needed - 1]), float(largest[high.size - needed]), p


def _spans(d: Array, off: Array, seed: int) -> tuple[Array, Array, int, int]:
    """The span between the means of a part and of the rest, for each part; 0 where they may be off by as much.

    Returns:
        Lower and upper ends; the number of patterns that hold any shift, which are those that turn nothing or
        everything and, among drawn ones, the observed one; and the number of all patterns.
    """
    sums, sizes = parts(d, seed)
    proper = (sizes > 0) & (sizes < d.size)
    total = sums.size + (d.size > EXACT)
    always = total - int(proper.sum())
    sums, sizes, apart = sums[proper], sizes[proper], parts(off, seed)[0][proper]
    one = _snapped(sums / sizes, apart / sizes)
    other = _snapped((d.sum() - sums) / (d.size - sizes), (off.sum() - apart) / (d.size - sizes))
    mean = _snapped(d.mean(), off.mean())
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.minimum(low, mean), np.maximum(high, mean), always, total


def _snapped(values: Array, off: Array) -> Array:
    """Values with 0 where only rounding keeps them from it: ties are common, and must count as ties."""
    return np.where(np.abs(values) < off, 0.0, values)
