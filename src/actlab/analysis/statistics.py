"""Medians, intervals and tests for a handful of paired runs: pure functions of numbers.

What holds for all of them: the input has no nan. A run that diverged is ``inf``, the worst value; a median may
contain it, but a paired difference with such a run is not finite, and then there is no p. A p that does not
exist is None, never nan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from actlab.errors import ActlabError, unknown

Array = npt.NDArray[np.float64]
Alternative = Literal["two-sided", "less", "greater"]

FEWEST = 6  # 2/2^6 = 0.031 is the first two-sided sign-flip p below 0.05
_EXACT = 20  # 2^20 sign patterns take 8 MB; more differences are sampled
_DRAWS = 100_000
_RESAMPLES = 2_000


class Interval(NamedTuple):
    """Where a median lies.

    ``kind`` is ``interval`` for a bootstrap confidence interval, ``range`` for the smallest and largest value.
    """

    low: float
    high: float
    kind: Literal["interval", "range"]


class Band(NamedTuple):
    """A median and its interval at each of E places; arrays of shape ``[E]``."""

    median: Array
    low: Array
    high: Array
    kind: Literal["interval", "range"]


def median(values: Iterable[float], default: float = math.nan) -> float:
    """The median, or ``default`` without any value.

    >>> median([3, 1, 2]), median([1, 2, math.inf]), median([], default=0)
    (2.0, 2.0, 0)
    """
    listed = list(values)
    return float(np.median(listed)) if listed else default


def median_interval(values: Iterable[float], confidence: float = 0.95, seed: int = 0) -> Interval:
    """The interval of a median.

    Args:
        values: one number a run; ``inf`` is allowed, nan is not.
        confidence: coverage aimed at, in (0, 1).
        seed: of the resampling.

    Returns:
        From `FEWEST` values on the percentile bootstrap interval, below that the range.

    Raises:
        ActlabError: without any value.

    >>> median_interval([3, 1, 2])
    Interval(low=1.0, high=3.0, kind='range')
    >>> median_interval(range(1, 10)).kind
    'interval'
    """
    band = median_band(np.fromiter(values, float)[:, None], confidence, seed)
    return Interval(float(band.low[0]), float(band.high[0]), band.kind)


def median_band(values: Array, confidence: float = 0.95, seed: int = 0) -> Band:
    """The median and its interval along a curve.

    Args:
        values: shape ``[n, E]``: n runs at E epochs, without nan.
        confidence: coverage aimed at, in (0, 1), at each epoch by itself.
        seed: of the resampling, which takes whole runs.

    Raises:
        ActlabError: without any run.

    >>> median_band(np.array([[1.0, 5.0], [2.0, 4.0], [3.0, 9.0]])).median.tolist()
    [2.0, 5.0]
    """
    n = len(values)
    if n == 0:
        raise ActlabError("a median needs at least one value")
    median = np.median(values, axis=0)
    if n < FEWEST:
        return Band(median, values.min(axis=0), values.max(axis=0), "range")
    chosen = np.random.default_rng(seed).integers(n, size=(_RESAMPLES, n))
    medians = np.stack([np.median(column[chosen], axis=1) for column in values.T], axis=1)
    # Quantiles that are values themselves: interpolating between infinities would give nan.
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail], axis=0, method="inverted_cdf")
    return Band(median, low, high, "interval")


def sign_flip_p(
    differences: Iterable[float], alternative: Alternative = "two-sided", seed: int = 0
) -> float | None:
    """Sign-flip permutation test that paired differences are symmetric about 0, by their mean.

    Exact over all 2^n patterns up to n = 20, beyond that 100,000 drawn ones with the observed one counted in.
    Sums that tie with the observed one count as extreme, so the p is never too small; a zero difference only
    ties. All differences zero give 1.

    Args:
        differences: one per pair.
        alternative: ``two-sided``, or that the mean is ``less`` or ``greater`` than 0.
        seed: of the drawn patterns.

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
    d = d / (np.abs(d).max() or 1.0)  # keeps tiny and huge differences away from underflow and overflow
    if alternative == "less":
        d = -d
    observed, sums = float(d.sum()), _flipped_sums(d, seed)
    if alternative == "two-sided":
        observed, sums = abs(observed), np.abs(sums)
    extreme = int((sums >= observed - 1e-12 * d.size).sum())
    return extreme / sums.size if d.size <= _EXACT else (extreme + 1) / (sums.size + 1)


def _flipped_sums(d: Array, seed: int) -> Array:
    """The sum of ``d`` under every pattern of signs, or under drawn ones when those are too many."""
    if d.size <= _EXACT:
        sums = np.zeros(1)
        for value in d:
            sums = np.concatenate([sums + value, sums - value])
        return sums
    signs = np.random.default_rng(seed).integers(0, 2, (_DRAWS, d.size), dtype=np.int8) * 2 - 1
    return np.asarray(signs @ d, dtype=float)


def wilcoxon_p(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Wilcoxon's signed-rank test of paired values, two-sided, as the ELU paper uses it.

    Pairs that are equal are dropped, as Wilcoxon did; when all are, the p is 1.

    Returns:
        p, or None without pairs or when a member of a pair diverged.

    Raises:
        ActlabError: when ``a`` and ``b`` are not of one length.

    >>> wilcoxon_p([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0])
    0.03125
    """
    d = paired_differences(a, b)
    if d.size == 0 or not np.isfinite(d).all():
        return None
    return float(stats.wilcoxon(d, zero_method="wilcox").pvalue) if d.any() else 1.0


def paired_differences(a: Sequence[float], b: Sequence[float]) -> Array:
    """``a - b`` pair by pair; not finite where a member diverged.

    Raises:
        ActlabError: when ``a`` and ``b`` are not of one length.

    >>> paired_differences([3, math.inf], [1, math.inf]).tolist()
    [2.0, inf]
    """
    if len(a) != len(b):
        raise ActlabError(f"paired values must be as many on both sides, not {len(a)} and {len(b)}")
    x, y = np.asarray(a, float), np.asarray(b, float)
    finite = np.isfinite(x) & np.isfinite(y)
    return np.where(finite, np.where(finite, x, 0) - np.where(finite, y, 0), np.inf)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; a hypothesis without a p stays None and is not counted.

    >>> holm([0.01, None, 0.04])
    [0.02, None, 0.04]
    """
    known = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[i] = largest
    return corrected


def equivalent(differences: Iterable[float], margin: float) -> float | None:
    """The p of equivalence: two one-sided sign-flip tests that the mean difference lies within ±``margin``.

    Args:
        differences: one per pair, in the unit of ``margin``.
        margin: above 0; set before the runs.

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
    above = sign_flip_p([x + _positive(margin) for x in d], "greater")
    below = not_worse(d, margin)
    return None if above is None or below is None else max(above, below)


def not_worse(differences: Iterable[float], margin: float) -> float | None:
    """The p of non-inferiority of a quantity that should be small: mean difference below ``margin``.

    Raises:
        ActlabError: for a margin that is not above 0.

    >>> not_worse([-1, -2, 0, -1, -3, -2], margin=0.5)
    0.015625
    """
    return sign_flip_p([x - _positive(margin) for x in differences], "less")


def _positive(margin: float) -> float:
    if not 0 < margin < math.inf:
        raise ActlabError(f"a margin of {margin!r} cannot be tested against: give a number above 0")
    return margin


def pairs_needed(hypotheses: int = 1, level: float = 0.05) -> int:
    """The fewest pairs whose smallest two-sided sign-flip p survives Holm over so many hypotheses.

    >>> pairs_needed(), pairs_needed(hypotheses=12)
    (6, 9)
    """
    return math.floor(math.log2(2 * max(1, hypotheses) / level)) + 1
