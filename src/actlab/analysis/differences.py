"""How the runs of two sides differ: their mean difference, and how often a run is better.

`deciding` says which of these two quantities a verdict rests on. Functions here are pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from actlab.analysis.statistics import FEWEST, FLOATS, LEVEL, Array, pairs_needed

Side = Literal["both", "above", "below"]
Quantity = Literal["mean", "probability"]

EXACT = 20  # differences: 2^20 patterns take 8 MB; more differences use random patterns
_DRAWS = 100_000
_BATCH = 5_000  # patterns per matmul, which converts them to float; limits the memory
_EXACT_SPLITS = math.comb(18, 9)  # all splits of 9 and 9 runs
_SPLITS = 20_000  # random splits of more runs
_NORMAL = 1.959964  # 97.5 % quantile of the normal distribution


def deciding(pairs: int, hypotheses: int = 1, failures: bool = False) -> Quantity:
    """Return which quantity a verdict rests on: the mean difference, or the probability.

    The mean difference over pairs of seeds decides if its test can: no run failed, and the pairs
    are enough for p < 0.05 after Holm's correction. In all other cases the probability of being
    better decides, whose test pairs no seeds.

    Args:
        pairs: number of pairs of runs; 0 if the sides have other seeds or were trained apart.
        hypotheses: what the smallest p-value is multiplied by.
        failures: whether any run of either side failed.
    """
    if failures or pairs < pairs_needed(hypotheses):
        return "probability"
    return "mean"


class Superiority(NamedTuple):
    """The probability that a run is better than a reference run, with interval and p-value.

    The interval covers 95 %.
    """

    probability: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def text(self) -> str:
        """The probability with its interval, ``0.93 [0.71, 0.99]``; empty without an interval."""
        if self.probability is None or self.low is None or self.high is None:
            return ""
        return f"{self.probability:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Flips:
    """The sign-flip permutation test of paired differences: is their mean 0, or a shift?

    Flipping the signs of a subset F of the differences turns their sum A + B into B - A. A is the
    sum over F, and B the sum over all other differences. A shift δ of every difference subtracts
    δ·|F| from A.

    All 2^n subsets are counted up to n = `EXACT`. Above, the test counts 100,000 random subsets and
    the observed pattern. Sums that tie with the observed sum count as extreme, so p is never too
    small.

    Args:
        differences: finite values, at least one.
    """

    def __init__(self, differences: Iterable[float]) -> None:
        d = np.fromiter(differences, float)

        # Scaled differences neither underflow nor overflow.
        self.scale = float(np.abs(d).max()) or 1.0
        scaled = d / self.scale

        self.n = d.size
        self.total = float(scaled.sum())
        # A and |F| of each pattern
        self.flipped, self.sizes = _subsets(tuple(scaled.tolist()))
        self.observed = int(d.size > EXACT)  # patterns in addition to the drawn ones

    def p(self, shift: float = 0.0, side: Side = "both") -> float:
        """Return the p-value of a shift.

        Args:
            shift: the mean difference under the null hypothesis.
            side: ``above`` tests only for a larger mean, ``below`` only for a smaller mean.
        """
        # Shift the sums of all patterns; rounding errors count as ties
        shift /= self.scale
        flipped = self.flipped - shift * self.sizes
        tie = FLOATS * self.n * max(1.0, abs(shift))

        # A pattern is extreme if its sum B - A is at least as far as the observed sum A
        # + B. Two-sided: |B - A| >= |A + B| where A and B have opposite signs, or one
        # is 0. Above: B - A >= A + B where A <= 0. Below: B - A <= A + B where A >= 0.
        if side == "both":
            unflipped = self.total - shift * self.n - flipped
            extreme = np.minimum(flipped, unflipped) <= tie
            extreme &= np.maximum(flipped, unflipped) >= -tie
        elif side == "above":
            extreme = flipped <= tie
        else:
            extreme = flipped >= -tie
        return (int(extreme.sum()) + self.observed) / (extreme.size + self.observed)

    def interval(self) -> tuple[float, float]:
        """Return the ends of the interval of the shifts with a two-sided p of at least `LEVEL`.

        A pattern counts at the shifts between the mean of F and the mean of all other differences.
        Each of these spans contains the mean of all differences, so p falls on both sides of it.
        The shifts that are not rejected therefore form an interval, whose ends are means of
        subsets. The interval excludes 0 exactly when p < 0.05.
        """
        # The span of a pattern is between two means, which need a difference each.
        proper = (self.sizes > 0) & (self.sizes < self.n)
        flipped = self.flipped[proper]
        sizes = self.sizes[proper]
        flipped_means = flipped / sizes
        unflipped_means = (self.total - flipped) / (self.n - sizes)

        # Count the spans that a shift needs; all other patterns count at every shift.
        patterns = self.sizes.size + self.observed
        needed = math.ceil(LEVEL * patterns) - (patterns - sizes.size)
        if needed <= 0:
            return -math.inf, math.inf

        # That many spans begin before the interval does, and end after it.
        low = np.minimum(flipped_means, unflipped_means)
        high = np.maximum(flipped_means, unflipped_means)
        begin = np.partition(low, needed - 1)[needed - 1]
        end = np.partition(high, -needed)[-needed]
        return self._unscaled(begin), self._unscaled(end)

    def _unscaled(self, end: float) -> float:
        """Return an end of an interval in the unit of the differences; 0 up to rounding is 0."""
        if abs(end) <= FLOATS * self.n:
            return 0.0
        return self.scale * float(end)


@lru_cache(
    maxsize=1
)  # `equivalent` follows on the same differences; of 20 pairs they take 16 MB
def _subsets(differences: tuple[float, ...]) -> tuple[Array, Array]:
    """Return the sum of each subset of the differences, and its size."""
    n = len(differences)
    if n > EXACT:
        drawn = _drawn_subsets(n)
        column = np.array(differences)
        batches = [drawn[i : i + _BATCH] @ column for i in range(0, _DRAWS, _BATCH)]
        return np.concatenate(batches), drawn.sum(1, dtype=float)

    # Each difference doubles the subsets: without it, and with it.
    sums = np.zeros(1)
    sizes = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums, sums + difference])
        sizes = np.concatenate([sizes, sizes + 1])
    return sums, sizes


@lru_cache(maxsize=1)  # most tests of a table have the same number of pairs
def _drawn_subsets(n: int) -> npt.NDArray[np.bool_]:
    generator = np.random.default_rng(0)
    return np.asarray(generator.integers(0, 2, (_DRAWS, n), dtype=np.int8) == 0)


class Difference(NamedTuple):
    """The paired differences from the reference; a field without a value is None."""

    # The mean over pairs in which both runs are finite; None without any.
    mean: float | None = None
    # Ends of the interval of the mean, `Flips.interval`; None with fewer than `FEWEST`
    # pairs
    low: float | None = None
    high: float | None = None
    # Infinite if most differences are; None between minus and plus infinity
    median: float | None = None
    p: float | None = None  # two-sided sign-flip test
    sd: float | None = None  # sample standard deviation; None with fewer than two pairs
    # The correlation of the paired values; None if one side does not vary.
    correlation: float | None = None


def paired_difference(
    a: Sequence[float], b: Sequence[float], *, test: bool = True
) -> Difference:
    """Return mean, median and spread of ``a - b``, with p-value and interval of the mean.

    If a run failed, the mean is taken over the pairs in which both are finite, and nothing is
    tested.

    Args:
        a: values of the runs.
        b: values of the reference, in the same order of seeds.
        test: whether to compute the p-value and the interval.
    """
    # Find the pairs in which both runs are finite
    d = paired_differences(a, b)
    pairs = np.array([a, b], float)
    finite = np.isfinite(pairs).all(0)

    # The median is nan between minus and plus infinity.
    median = None
    if d.size:
        with np.errstate(invalid="ignore"):
            middle = float(np.median(d))
        if not math.isnan(middle):
            median = middle

    # A failed run leaves only the mean of the finite pairs.
    if d.size == 0 or not finite.all():
        mean = float(d[finite].mean()) if finite.any() else None
        return Difference(mean, median=median)

    # A few pairs have no test.
    difference = Difference(float(d.mean()), median=median)
    if d.size > 1:
        difference = difference._replace(sd=float(d.std(ddof=1)))
    if d.size < FEWEST:
        return difference

    # Correlate the sides, and test the mean.
    if (np.ptp(pairs, axis=1) > 0).all():
        correlation = np.corrcoef(pairs)[0, 1]
        difference = difference._replace(correlation=float(correlation))
    if test:
        flips = Flips(d)
        low, high = flips.interval()
        difference = difference._replace(low=low, high=high, p=flips.p())
    return difference


def paired_differences(a: Sequence[float], b: Sequence[float]) -> Array:
    """Return ``a - b`` pair by pair: infinite if one run diverged, 0 if both did."""
    x = np.asarray(a, float)
    y = np.asarray(b, float)
    with np.errstate(invalid="ignore"):
        return np.where(x == y, 0.0, x - y)


def equivalent(differences: Sequence[float], margin: float) -> float | None:
    """Return the p-value of two one-sided sign-flip tests for a mean within ±``margin``.

    The p-value is the larger one of the two tests. It is None with an infinite difference, or with
    fewer than `FEWEST`.
    """
    if len(differences) < FEWEST or not np.isfinite(differences).all():
        return None
    flips = Flips(differences)
    return max(flips.p(-margin, "above"), flips.p(margin, "below"))


def better(
    a: Sequence[float], b: Sequence[float], mode: str = "min", *, test: bool = True
) -> Superiority:
    """Return the probability that a run of ``a`` is better than a run of ``b``.

    The test is the studentised permutation test of Brunner and Munzel (Neubert & Brunner 2007). It
    holds its level also if the two sides spread unequally. All splits of the pooled values are
    counted up to 9 runs on each side. Above, 20,000 random splits and the observed split count.
    Infinite values are ordinary values. The standard error is at least 1/(2·n·m): a side that wins
    every time would have an error of 0.

    Args:
        a: values of n runs.
        b: values of m runs.
        mode: ``min`` or ``max`` is good.
        test: whether to compute the p-value and the interval.
    """
    # Compare all pooled values pairwise; lower is better here
    n, m = len(a), len(b)
    direction = -1 if mode == "max" else 1
    pooled = np.array([*a, *b], float) * direction
    pair_wins = wins(pooled, pooled)

    # The observed split has the runs of ``a`` in part A.
    observed = np.arange(n + m)[None] < n
    (share,), (error,) = _shares(observed, pair_wins)
    probability = float(share)
    if not test or min(n, m) < FEWEST:
        return Superiority(probability)

    # Count the splits with a statistic as large as the observed one.
    shares, errors = _shares(_splits(n, m), pair_wins)
    statistics = np.abs(shares - 0.5) / errors
    statistic = abs(probability - 0.5) / float(error)
    extreme = int((statistics >= statistic * (1 - FLOATS) - FLOATS).sum())
    count = statistics.size
    if math.comb(n + m, n) > _EXACT_SPLITS:
        # Drawn splits lack the observed one, which counts too: p is never 0.
        extreme += 1
        count += 1

    # On the logit scale the interval stays within 0 and 1. A side that wins every time
    # has no logit, so it loses half a win.
    half_win = 1 / (2 * n * m)
    inside = min(max(probability, half_win), 1 - half_win)
    centre = math.log(inside / (1 - inside))
    half_width = _NORMAL * float(error) / (inside * (1 - inside))
    low = _from_logit(centre - half_width)
    high = _from_logit(centre + half_width)
    return Superiority(
        probability, min(low, probability), max(high, probability), extreme / count
    )


def _from_logit(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def wins(a: Array, b: Array) -> Array:
    """Return whether each run of ``a``, by row, is better than each run of ``b``: 1, ½ or 0.

    Low values are good.
    """
    return np.asarray((a[:, None] < b) + 0.5 * (a[:, None] == b))


def _shares(splits: npt.ArrayLike, pair_wins: Array) -> tuple[Array, Array]:
    """Return the share of wins of part A in each split, and its standard error.

    Args:
        splits: shape ``[S, n + m]``, 1 for the n runs in part A, 0 for the m runs in part B.
        pair_wins: `wins` of the pooled values, shape ``[n + m, n + m]``.
    """
    # The wins are halves, which float32 represents exactly.
    in_a = np.asarray(splits, np.float32)
    pair_wins = np.asarray(pair_wins, np.float32)
    n = int(in_a[0].sum())
    m = int((1 - in_a[0]).sum())

    # Count the wins of each run over the opposite part.
    over_a = in_a @ pair_wins.T
    over_opposite = over_a + in_a * (pair_wins.sum(1) - 2 * over_a)
    squares = over_opposite * over_opposite

    # Sum the counts and their squares over each part.
    wins_of_a = np.vecdot(in_a, over_opposite).astype(float)
    squares_of_a = np.vecdot(in_a, squares).astype(float)
    wins_of_b = over_opposite.sum(1) - wins_of_a
    squares_of_b = squares.sum(1) - squares_of_a

    # Add the variances of the two parts.
    variance = _variance(wins_of_a, squares_of_a, n, m) + _variance(
        wins_of_b, squares_of_b, m, n
    )
    error = np.sqrt(np.maximum(variance, 0))
    return wins_of_a / (n * m), np.maximum(error, 1 / (2 * n * m))


def _variance(total: Array, squares: Array, size: int, opposite_size: int) -> Array:
    """Return the variance of the mean share of wins of a part, from sums over its runs."""
    return (squares - total**2 / size) / max(1, size - 1) / size / opposite_size**2


@lru_cache(maxsize=2)
def _splits(n: int, m: int) -> npt.NDArray[np.float32]:
    """Return the splits of n + m pooled values that a test counts, shape ``[S, n + m]``."""
    if math.comb(n + m, n) > _EXACT_SPLITS:
        order = np.random.default_rng(0).random((_SPLITS, n + m)).argsort(1)
        members = order[:, :n]
    elif n == m:
        # A split and its mirror image lie equally far from ½, so the first value stays
        # in part A.
        smaller = itertools.combinations(range(1, n + m), n - 1)
        members = np.array([(0, *combination) for combination in smaller])
    else:
        members = np.array(list(itertools.combinations(range(n + m), n)))

    splits = np.zeros((len(members), n + m), np.float32)
    np.put_along_axis(splits, members, 1, axis=1)
    return splits
