"""Medians, intervals and tests for a handful of paired runs: pure functions of numbers.

What holds for all of them: the input has no nan. A run that diverged is ``inf``, the worst value (``-inf``
where large values are good), and worse than any other run: its paired difference is infinite, 0 where both
diverged. Medians, their intervals and Wilcoxon's ranks take that, the sign-flip test of the mean does not. A p
that does not exist is None, never nan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from actlab.errors import ActlabError, unknown

Array = npt.NDArray[np.float64]
Alternative = Literal["two-sided", "less", "greater"]

FLOATS = 1e-12  # of the largest difference: what sums of floats may be off by
FEWEST = 6  # 2/2^6 = 0.031 is the first two-sided sign-flip p below 0.05

EXACT = 20  # 2^20 patterns take 8 MB; of more differences they are drawn
_DRAWS = 100_000
_AT_ONCE = 5_000  # of these in a product, which takes them as floats: for the sake of memory


class Interval(NamedTuple):
    """Where a median lies: between two of the sorted values.

    ``kind`` is ``interval`` where ``coverage``, the chance that such an interval holds the true median, is as
    high as was asked for. With too few values for that it is ``range``: the smallest and the largest.
    """

    low: float
    high: float
    kind: Literal["interval", "range"]
    coverage: float


class Band(NamedTuple):
    """A median and its interval at each of E places; arrays of shape ``[E]``; the rest as in `Interval`."""

    median: Array
    low: Array
    high: Array
    kind: Literal["interval", "range"]
    coverage: float


def median(values: Iterable[float], default: float = math.nan) -> float:
    """The median, or ``default`` without any value.

    >>> median([3, 1, 2]), median([1, 2, math.inf]), median([], default=0)
    (2.0, 2.0, 0)
    """
    listed = list(values)
    return float(np.median(listed)) if listed else default


def mean_and_sd(values: Iterable[float]) -> tuple[float, float] | None:
    """Mean and standard deviation (n - 1); None with fewer than two values or one that is not finite.

    >>> mean_and_sd([1, 2, 3]), mean_and_sd([1, math.inf])
    ((2.0, 1.0), None)
    """
    listed = np.fromiter(values, float)
    if listed.size < 2 or not np.isfinite(listed).all():
        return None
    return float(listed.mean()), float(listed.std(ddof=1))


def median_interval(values: Iterable[float], confidence: float = 0.95) -> Interval:
    """The interval of a median between two order statistics, whatever the distribution.

    Args:
        values: one number a run; ``inf`` is allowed, nan is not.
        confidence: lowest coverage, in (0, 1).

    Returns:
        The narrowest symmetric one that covers enough, from `FEWEST` values on at 95 %; else the range.

    Raises:
        ActlabError: without any value.

    >>> median_interval([3, 1, 2])
    Interval(low=1.0, high=3.0, kind='range', coverage=0.75)
    >>> median_interval(range(1, 10))
    Interval(low=2.0, high=8.0, kind='interval', coverage=0.9609375)
    """
    band = median_band(np.fromiter(values, float)[:, None], confidence)
    return Interval(float(band.low[0]), float(band.high[0]), band.kind, band.coverage)


def median_band(values: Array, confidence: float = 0.95) -> Band:
    """The median and its interval along a curve.

    Args:
        values: shape ``[n, E]``: n runs at E epochs, without nan.
        confidence: lowest coverage, in (0, 1), at each epoch by itself.

    Raises:
        ActlabError: without any run.

    >>> median_band(np.array([[1.0, 5.0], [2.0, 4.0], [3.0, 9.0]])).median.tolist()
    [2.0, 5.0]
    """
    n = len(values)
    if n == 0:
        raise ActlabError("a median needs at least one value")
    k, sorted_values = order_statistic(n, confidence), np.sort(values, axis=0)
    covered = coverage(n, k)
    kind: Literal["interval", "range"] = "interval" if covered >= confidence else "range"
    return Band(np.median(values, axis=0), sorted_values[k - 1], sorted_values[n - k], kind, covered)


def coverage(n: int, k: int) -> float:
    """Chance that the median lies from the k-th smallest to the k-th largest of n: 1 - 2 P(Bin(n, 1/2) < k).

    >>> coverage(6, 1), coverage(10, 2)
    (0.96875, 0.978515625)
    """
    return 1 - math.ldexp(sum(math.comb(n, i) for i in range(k)), 1 - n)


def order_statistic(n: int, confidence: float = 0.95) -> int:
    """The largest k whose `coverage` reaches ``confidence``; 1 where none does.

    >>> [order_statistic(n) for n in (5, 6, 8, 9, 11, 12, 20)]
    [1, 1, 1, 2, 2, 3, 6]
    """
    return max((k for k in range(1, n // 2 + 1) if coverage(n, k) >= confidence), default=1)


def sign_flip_p(
    differences: Iterable[float],
    alternative: Alternative = "two-sided",
    seed: int = 0,
    tie: float | Array = 0.0,
) -> float | None:
    """Sign-flip permutation test that paired differences are symmetric about 0, by their mean.

    Exact over all 2^n patterns up to n = 20, beyond that 100,000 drawn ones with the observed one counted in.
    Sums that tie with the observed one count as extreme, so the p is never too small; a zero difference only
    ties. All differences zero give 1.

    Args:
        differences: one per pair.
        alternative: ``two-sided``, or that the mean is ``less`` or ``greater`` than 0.
        seed: of the drawn patterns.
        tie: what each difference, or every one, may be off by; see `rounding`.

    Returns:
        p in (0, 1], or None without differences or with one that is not finite.

    Raises:
        ActlabError: for an unknown alternative.

    >>> sign_flip_p([1, 2, 3, 4, 5, 6])  # 2 of 64 patterns have a sum as far from 0
    0.03125
    >>> sign_flip_p([1, 1, 1, -1])
    0.625
    """
    if alternative not in ("two-sided", "less", "greater"):
        raise unknown("alternative", alternative, ("two-sided", "less", "greater"))
    d = np.fromiter(differences, float)
    if d.size == 0 or not np.isfinite(d).all():
        return None
    scale = float(np.abs(d).max()) or 1.0  # keeps tiny and huge differences away from underflow and overflow
    d, off = d / scale, np.broadcast_to(np.maximum(np.divide(tie, scale), FLOATS), d.shape)
    if alternative == "less":
        d = -d
    observed, sums = float(d.sum()), flipped_sums(d, seed)
    apart = off.sum() - flipped_sums(off, seed)  # twice what the differences that turn may be off by
    if alternative == "two-sided":
        apart = np.where(sums * observed < 0, 2 * off.sum() - apart, apart)  # there the others turn
        observed, sums = abs(observed), np.abs(sums)
    extreme = int((sums >= observed - apart - FLOATS * d.size).sum())
    return extreme / sums.size if d.size <= EXACT else (extreme + 1) / (sums.size + 1)


def wilcoxon_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Wilcoxon's signed-rank test of paired values, two-sided, as the ELU paper uses it.

    Pairs that are equal are dropped, as Wilcoxon did; when all are, the p is 1. Differences that are equal up
    to `rounding` share their rank. A pair of which one diverged has the largest rank. Exact as `sign_flip_p`
    is, with ties and equal pairs too, where scipy's takes a normal distribution from 14 pairs on.

    Returns:
        p, or None without pairs.

    Raises:
        ActlabError: when ``a`` and ``b`` are not of one length.

    >>> wilcoxon_p([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0])
    0.03125
    """
    from scipy.stats import rankdata  # takes half a second, which tables without a test do without

    d = paired_differences(a, b)
    if d.size == 0:
        return None
    off = rounding(a, b)
    unequal = np.abs(d) > off
    sizes = _tied(np.abs(d[unequal]), off[unequal])
    return sign_flip_p(np.sign(d[unequal]) * rankdata(sizes)) if unequal.any() else 1.0


def _tied(sizes: Array, off: Array) -> Array:
    """Ascending numbers for values, the same for neighbours no further apart than one of them may be off."""
    order = np.argsort(sizes)
    ascending, apart = sizes[order], off[order]
    found = np.zeros(sizes.size)
    found[order[1:]] = np.cumsum(ascending[1:] > ascending[:-1] + np.maximum(apart[1:], apart[:-1]))
    return found


def rounding(a: Sequence[float], b: Sequence[float]) -> Array:
    """How far the difference of each pair may lie from an equal one, or from 0, since runs record float32.

    Three mistakes more of 10,000 are not always the same number: each value is rounded by up to 2⁻²⁴ of itself.

    >>> (rounding([0.5, math.inf, 2.0], [0.25, 1.0, 4.0]) * 2**22).tolist()
    [0.5, 1.0, 4.0]
    """
    values = np.abs(np.asarray([a, b], float))
    return np.asarray(np.where(np.isfinite(values), values, 0.0).max(0) * 2.0**-22, float)


def paired_differences(a: Sequence[float], b: Sequence[float]) -> Array:
    """``a - b`` pair by pair; infinite where one of them diverged, 0 where both did.

    Raises:
        ActlabError: when ``a`` and ``b`` are not of one length.

    >>> paired_differences([3, math.inf, 1, math.inf], [1, 1, math.inf, math.inf]).tolist()
    [2.0, inf, -inf, 0.0]
    """
    if len(a) != len(b):
        raise ActlabError(f"paired values must be as many on both sides, not {len(a)} and {len(b)}")
    x, y = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(invalid="ignore"):
        return np.where(x == y, 0.0, x - y)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction over what was planned: a hypothesis without a p counts as 1, and stays None.

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


def pairs_needed(hypotheses: int = 1, level: float = 0.05) -> int:
    """The fewest pairs whose smallest two-sided sign-flip p survives Holm over so many hypotheses.

    >>> pairs_needed(), pairs_needed(hypotheses=12)
    (6, 9)
    """
    return math.floor(math.log2(2 * max(1, hypotheses) / level)) + 1


def equivalent(differences: Iterable[float], margin: float, tie: float | Array = 0.0) -> float | None:
    """The p of equivalence: two one-sided sign-flip tests that the mean difference lies within ±``margin``.

    Args:
        differences: one per pair, in the unit of ``margin``.
        margin: above 0; set before the runs.
        tie: as of `sign_flip_p`.

    Returns:
        The larger of the two p, or None where `sign_flip_p` has none; equivalent when below 0.05.

    Raises:
        ActlabError: for a margin that is not above 0.

    >>> equivalent([0.1, -0.2, 0.0, 0.1, -0.1, 0.2], margin=1)
    0.015625
    >>> equivalent([0.1, -0.2, 0.0, 0.1, -0.1, 0.2], margin=0.05) < 0.05
    False
    """
    d = list(differences)
    above = sign_flip_p([x + _positive(margin) for x in d], "greater", tie=tie)
    below = not_worse(d, margin, tie)
    return None if above is None or below is None else max(above, below)


def not_worse(differences: Iterable[float], margin: float, tie: float | Array = 0.0) -> float | None:
    """The p of non-inferiority of a quantity that should be small: mean difference below ``margin``.

    Raises:
        ActlabError: for a margin that is not above 0.

    >>> not_worse([-1, -2, 0, -1, -3, -2], margin=0.5)
    0.015625
    """
    return sign_flip_p([x - _positive(margin) for x in differences], "less", tie=tie)


def _positive(margin: float) -> float:
    if not 0 < margin < math.inf:
        raise ActlabError(f"a margin of {margin!r} cannot be tested against: give a number above 0")
    return margin


def flipped_sums(d: Array, seed: int) -> Array:
    """The sum of the differences under every pattern of signs, or under drawn ones when those are too many."""
    if d.size > EXACT:
        return np.asarray(d.sum() - 2 * _sums_of_turned(d, seed), float)
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def parts(d: Array, seed: int) -> tuple[Array, Array]:
    """Sum and size of every part of the differences, or of drawn ones when those are too many."""
    if d.size > EXACT:
        return _sums_of_turned(d, seed), _sizes(d.size, seed)
    sums, sizes = np.zeros(1), np.zeros(1)
    for value in d:
        sums = np.concatenate([sums, sums + value])
        sizes = np.concatenate([sizes, sizes + 1])
    return sums, sizes


@lru_cache(maxsize=1)  # the tests of a table mostly have as many pairs
def drawn(n: int, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Drawn patterns for n differences: which of them turn, a row each."""
    return np.asarray(np.random.default_rng(seed).integers(0, 2, (_DRAWS, n), dtype=np.int8) == 0)


def _sums_of_turned(d: Array, seed: int) -> Array:
    """The sum of the differences that turn, for each of the drawn patterns."""
    turned = drawn(d.size, seed)
    return np.concatenate([turned[i : i + _AT_ONCE] @ d for i in range(0, _DRAWS, _AT_ONCE)])


@lru_cache(maxsize=1)
def _sizes(n: int, seed: int) -> Array:
    """How many differences turn, for each of the drawn patterns."""
    return _sums_of_turned(np.ones(n), seed)
