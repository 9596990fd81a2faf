"""Medians, confidence intervals and tests for a small number of paired runs; pure functions.

The input contains no nan. A diverged run counts as ``inf``, the worst value (``-inf`` where large values are
good): its paired difference is infinite, or 0 where both runs diverged. An undefined p-value is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Alternative = Literal["two-sided", "less", "greater"]

FLOATS = 1e-12  # rounding error of sums of floats, relative to the largest difference
LEVEL = 0.05  # of tests; intervals cover at least the rest
FEWEST = 6  # pairs: 2/2^6 = 0.031 is the first two-sided sign-flip p below 0.05

EXACT = 20  # differences: 2^20 patterns take 8 MB; more differences use random patterns
_DRAWS = 100_000
_BATCH = 5_000  # patterns per matmul, which converts them to float; limits the memory


class Interval(NamedTuple):
    """The interval of a median between two order statistics.

    ``kind`` is ``interval`` if ``coverage``, the probability that it contains the true median, reaches
    95 %. With too few values for that, ``kind`` is ``range``: from the smallest to the largest value.
    """

    low: float
    high: float
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
    """Return the distribution-free interval of a median between two order statistics.

    It is the narrowest symmetric one that covers 95 %, which needs `FEWEST` values, else the range. Values may
    be ``inf``.

    >>> median_interval([3, 1, 2])
    Interval(low=1.0, high=3.0, kind='range', coverage=0.75)
    >>> median_interval(range(1, 10))
    Interval(low=2.0, high=8.0, kind='interval', coverage=0.9609375)
    """
    band = median_band(np.fromiter(values, float)[:, None])
    return Interval(float(band.low[0]), float(band.high[0]), band.kind, band.coverage)


def median_band(values: Array) -> Band:
    """Return the median of n runs at E positions, shape ``[n, E]``, and its interval at each position alone."""
    n = len(values)
    k, sorted_values = order_statistic(n), np.sort(values, axis=0)
    covered = coverage(n, k)
    kind: Literal["interval", "range"] = "interval" if covered >= 1 - LEVEL else "range"
    return Band(np.median(values, axis=0), sorted_values[k - 1], sorted_values[n - k], kind, covered)


def coverage(n: int, k: int) -> float:
    """Return the probability that the median lies between the k-th smallest and the k-th largest of n values.

    It is 1 - 2 P(Bin(n, 1/2) < k).

    >>> coverage(6, 1), coverage(10, 2)
    (0.96875, 0.978515625)
    """
    return 1 - math.ldexp(sum(math.comb(n, i) for i in range(k)), 1 - n)


def order_statistic(n: int) -> int:
    """Return the largest k whose `coverage` reaches 95 %, or 1 if no k does.

    >>> [order_statistic(n) for n in (5, 6, 8, 9, 11, 12, 20)]
    [1, 1, 1, 2, 2, 3, 6]
    """
    return max((k for k in range(1, n // 2 + 1) if coverage(n, k) >= 1 - LEVEL), default=1)


def sign_flip_p(
    differences: Iterable[float],
    alternative: Alternative = "two-sided",
    tie: float | Array = 0.0,
) -> float | None:
    """Return the p-value of the sign-flip permutation test: are paired differences symmetric about 0?

    ``less`` and ``greater`` test for a mean below or above 0. The test is exact over all 2^n sign patterns up
    to n = `EXACT`; for larger n it uses 100,000 random patterns and also counts the observed one. Sums that tie
    with the observed sum count as extreme, so p is never too small. ``tie`` is the largest rounding error of
    each difference, or of all; see `rounding`. Without differences, or with an infinite one, the result is
    None.

    >>> sign_flip_p([1, 2, 3, 4, 5, 6])  # 2 of 64 patterns have a sum as far from 0
    0.03125
    >>> sign_flip_p([1, 1, 1, -1])
    0.625
    """
    d = np.fromiter(differences, float)
    if d.size == 0 or not np.isfinite(d).all():
        return None
    scale = float(np.abs(d).max()) or 1.0  # keeps tiny and huge differences away from underflow and overflow
    d, off = d / scale, np.broadcast_to(np.maximum(np.divide(tie, scale), FLOATS), d.shape)
    if alternative == "less":
        d = -d
    observed, sums = float(d.sum()), flipped_sums(d)
    apart = off.sum() - flipped_sums(off)  # twice the rounding error of the flipped differences
    if alternative == "two-sided":
        # A sum of opposite sign is compared through its mirrored pattern, which flips the complement.
        apart = np.where(sums * observed < 0, 2 * off.sum() - apart, apart)
        observed, sums = abs(observed), np.abs(sums)
    extreme = int((sums >= observed - apart - FLOATS * d.size).sum())
    return extreme / sums.size if d.size <= EXACT else (extreme + 1) / (sums.size + 1)


def wilcoxon_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the two-sided p-value of Wilcoxon's signed-rank test on paired values, as used in the ELU paper.

    Equal pairs are dropped, as in Wilcoxon's original test; if all pairs are equal, p is 1, without pairs None.
    Differences that are equal up to `rounding` share their rank. A pair in which one run diverged has the
    largest rank. The test is exact up to `EXACT` unequal pairs (see `sign_flip_p`), also with ties and equal
    pairs, for which scipy uses a normal approximation from 14 pairs on.

    >>> wilcoxon_p([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0])
    0.03125
    """
    d = paired_differences(a, b)
    if d.size == 0:
        return None
    off = rounding(a, b)
    unequal = np.abs(d) > off
    sizes = _tie_groups(np.abs(d[unequal]), off[unequal])
    return sign_flip_p(np.sign(d[unequal]) * ranks(sizes)) if unequal.any() else 1.0


def ranks(values: npt.ArrayLike) -> Array:
    """Return ranks from 1; equal values share the mean of theirs. Importing scipy.stats for it takes a second.

    >>> ranks([3.0, 1.0, 3.0]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, places, sizes = np.unique(values, return_inverse=True, return_counts=True)
    mean: Array = (np.cumsum(sizes) - (sizes - 1) / 2)[places]
    return mean


def _tie_groups(sizes: Array, off: Array) -> Array:
    """Return ascending group numbers; neighbours no further apart than their rounding error share a number."""
    order = np.argsort(sizes)
    ascending, apart = sizes[order], off[order]
    found = np.zeros(sizes.size)
    found[order[1:]] = np.cumsum(ascending[1:] > ascending[:-1] + np.maximum(apart[1:], apart[:-1]))
    return found


def rounding(a: Sequence[float], b: Sequence[float]) -> Array:
    """Return a tolerance for each pair: differences closer than this count as equal, or as 0.

    Runs record float32, which rounds each value by up to 2⁻²⁴ of itself. So differences that are exactly equal,
    such as three more errors out of 10,000 in two pairs, may differ in their last digits. The tolerance is 2⁻²²
    times the larger absolute value of a pair; infinite values count as 0.
    """
    values = np.abs(np.asarray([a, b], float))
    return np.asarray(np.where(np.isfinite(values), values, 0.0).max(0) * 2.0**-22, float)


def paired_differences(a: Sequence[float], b: Sequence[float]) -> Array:
    """Return ``a - b`` pair by pair: infinite where one run diverged, 0 where both did.

    >>> paired_differences([3, math.inf, 1, math.inf], [1, 1, math.inf, math.inf]).tolist()
    [2.0, inf, -inf, 0.0]
    """
    x, y = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(invalid="ignore"):
        return np.where(x == y, 0.0, x - y)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down correction of p-values over all planned hypotheses.

    A hypothesis without a p-value (None) counts as p = 1 and stays None.

    >>> holm([0.01, None, 0.04])
    [0.03, None, 0.08]
    """
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(ps) - rank)))
        corrected[i] = largest
    return corrected


def p_text(p: float) -> str:
    """Return a p-value as printed, with two digits: ``0.043``, ``1e-05``."""
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def pairs_needed(hypotheses: int = 1) -> int:
    """Return the fewest pairs whose smallest two-sided sign-flip p survives Holm's correction.

    >>> pairs_needed(), pairs_needed(hypotheses=12)
    (6, 9)
    """
    return math.floor(math.log2(2 * max(1, hypotheses) / LEVEL)) + 1


def equivalent(differences: Iterable[float], margin: float, tie: float | Array = 0.0) -> float | None:
    """Return the p-value of two one-sided sign-flip tests: the mean difference lies within ±``margin``.

    It is the larger of the two p-values; None where `sign_flip_p` returns None. The margin is above 0.

    >>> equivalent([0.1, -0.2, 0.0, 0.1, -0.1, 0.2], margin=1)
    0.015625
    """
    d = np.fromiter(differences, float)
    above, below = sign_flip_p(d + margin, "greater", tie=tie), sign_flip_p(d - margin, "less", tie=tie)
    return None if above is None or below is None else max(above, below)


def flipped_sums(d: Array) -> Array:
    """Return the sum of the differences under all sign patterns, or random ones if d.size > EXACT."""
    if d.size > EXACT:
        return np.asarray(d.sum() - 2 * _random_subset_sums(d), float)
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def parts(d: Array) -> tuple[Array, Array]:
    """Return sum and size of all subsets of the differences, or of random ones if d.size > EXACT."""
    if d.size > EXACT:
        return _random_subset_sums(d), _random_subset_sizes(d.size)
    sums, sizes = np.zeros(1), np.zeros(1)
    for value in d:
        sums = np.concatenate([sums, sums + value])
        sizes = np.concatenate([sizes, sizes + 1])
    return sums, sizes


@lru_cache(maxsize=1)  # most tests of a table have the same number of pairs
def drawn(n: int) -> npt.NDArray[np.bool_]:
    """Return random sign patterns for n differences, one per row; True marks a flipped difference."""
    return np.asarray(np.random.default_rng(0).integers(0, 2, (_DRAWS, n), dtype=np.int8) == 0)


def _random_subset_sums(d: Array) -> Array:
    turned = drawn(d.size)
    return np.concatenate([turned[i : i + _BATCH] @ d for i in range(0, _DRAWS, _BATCH)])


@lru_cache(maxsize=1)
def _random_subset_sizes(n: int) -> Array:
    return _random_subset_sums(np.ones(n))
