"""How the runs of two sides differ: their mean difference, and how often one is better; pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from actlab.analysis.statistics import FEWEST, FLOATS, LEVEL, Array

Side = Literal["both", "above", "below"]

EXACT = 20  # differences: 2^20 patterns take 8 MB; more differences use random patterns
_DRAWS = 100_000
_BATCH = 5_000  # patterns per matmul, which converts them to float; limits the memory
_EXACT_SPLITS = math.comb(18, 9)  # those of 9 and 9 runs
_SPLITS = 20_000  # random ones of more runs
_NORMAL = 1.959964  # 97.5 % quantile of the normal distribution


class Superiority(NamedTuple):
    """The probability that a run is better than one of the reference, with its 95 % interval and p-value."""

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
    """The sign-flip permutation test of paired differences: are they symmetric about 0, or about a shift?

    Flipping the signs of a subset F of the differences turns their sum A + B into B - A, where A is
    the sum over F and B that over the rest. Under a shift δ of every difference, A = S - δ·|F|. All
    2^n subsets are counted up to n = `EXACT`, else 100,000 random ones and the observed pattern.
    Sums that tie with the observed one count as extreme, so p is never too small.

    The differences are finite, at least one.
    """

    def __init__(self, differences: Iterable[float]) -> None:
        d = np.fromiter(differences, float)
        # Keeps differences away from underflow and overflow
        self.scale = float(np.abs(d).max()) or 1.0
        self.flipped, self.sizes = _subsets(tuple((d / self.scale).tolist()))
        self.n, self.total = d.size, float((d / self.scale).sum())
        self.observed = int(d.size > EXACT)  # patterns beside the drawn ones

    def p(self, shift: float = 0.0, side: Side = "both") -> float:
        """Return the p-value; ``above`` and ``below`` test for a mean above or below the shift alone."""
        shift /= self.scale
        flipped, tie = self.flipped - shift * self.sizes, FLOATS * self.n * max(1.0, abs(shift))
        if side == "both":
            kept = self.total - shift * self.n - flipped
            extreme = np.minimum(flipped, kept) <= tie
            extreme &= np.maximum(flipped, kept) >= -tie
        else:
            extreme = flipped <= tie if side == "above" else flipped >= -tie
        return (int(extreme.sum()) + self.observed) / (extreme.size + self.observed)

    def interval(self) -> tuple[float, float]:
        """Return the ends of the interval of the shifts with a two-sided p of at least `LEVEL`.

        A pattern counts at the shifts between the mean of F and the mean of the rest. Each of these
        spans contains the mean of all differences, so p falls on both sides of it, and the shifts
        that are not rejected form an interval whose ends are means of subsets. 0 lies outside it
        exactly when p < 0.05.
        """
        proper = (self.sizes > 0) & (self.sizes < self.n)
        flipped, sizes = self.flipped[proper], self.sizes[proper]
        means = flipped / sizes, (self.total - flipped) / (self.n - sizes)
        always = self.sizes.size + self.observed - sizes.size  # patterns that count at every shift
        needed = math.ceil(LEVEL * (self.sizes.size + self.observed)) - always
        if needed <= 0:
            return -math.inf, math.inf
        low, high = np.minimum(*means), np.maximum(*means)
        low, high = np.partition(low, needed - 1)[needed - 1], np.partition(high, -needed)[-needed]
        first, last = (
            0.0 if abs(end) <= FLOATS * self.n else self.scale * float(end) for end in (low, high)
        )
        return first, last


@lru_cache(maxsize=1)  # `equivalent` follows on the same differences; of 20 pairs they take 16 MB
def _subsets(d: tuple[float, ...]) -> tuple[Array, Array]:
    if len(d) > EXACT:
        drawn = _drawn(len(d))
        sums = [drawn[i : i + _BATCH] @ np.array(d) for i in range(0, _DRAWS, _BATCH)]
        return np.concatenate(sums), drawn.sum(1, dtype=float)
    of_all, sizes = np.zeros(1), np.zeros(1)
    for value in d:
        of_all, sizes = np.concatenate([of_all, of_all + value]), np.concatenate([sizes, sizes + 1])
    return of_all, sizes


@lru_cache(maxsize=1)  # most tests of a table have the same number of pairs
def _drawn(n: int) -> npt.NDArray[np.bool_]:
    return np.asarray(np.random.default_rng(0).integers(0, 2, (_DRAWS, n), dtype=np.int8) == 0)


class Difference(NamedTuple):
    """The paired differences between values and those of the reference; None for what does not exist."""

    mean: float | None = None  # over the pairs in which both runs are finite; None without any
    low: float | None = (
        None  # end of the interval of the mean, `Flips.interval`; None with fewer than `FEWEST`
    )
    high: float | None = None
    median: float | None = (
        None  # infinite where most differences are; None between minus and plus infinity
    )
    p: float | None = None  # two-sided sign-flip test
    sd: float | None = None  # sample standard deviation; None with fewer than two pairs
    correlation: float | None = None  # of the paired values; None where one side does not vary


def paired_difference(a: Sequence[float], b: Sequence[float], *, test: bool = True) -> Difference:
    """Return mean, median and spread of ``a - b``, and with ``test`` p-value and interval of the mean.

    Where a run failed, the mean is that of the pairs in which both are finite, and nothing is
    tested.
    """
    d, both = paired_differences(a, b), np.array([a, b], float)
    with np.errstate(invalid="ignore"):  # nan between minus and plus infinity
        centre = float(np.median(d)) if d.size else math.nan
    middle, finite = None if math.isnan(centre) else centre, np.isfinite(both).all(0)
    if d.size == 0 or not finite.all():
        mean = float(d[finite].mean()) if finite.any() else None
        return Difference(mean, median=middle)
    mean, sd = float(d.mean()), float(d.std(ddof=1)) if d.size > 1 else None
    if d.size < FEWEST:
        return Difference(mean, median=middle, sd=sd)
    varies = (np.ptp(both, axis=1) > 0).all()
    correlation = float(np.corrcoef(both)[0, 1]) if varies else None
    flips = Flips(d) if test else None
    low, high = flips.interval() if flips else (None, None)
    return Difference(mean, low, high, middle, flips.p() if flips else None, sd, correlation)


def paired_differences(a: Sequence[float], b: Sequence[float]) -> Array:
    """Return ``a - b`` pair by pair: infinite where one run diverged, 0 where both did."""
    x, y = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(invalid="ignore"):
        return np.where(x == y, 0.0, x - y)


def equivalent(differences: Sequence[float], margin: float) -> float | None:
    """Return the p-value of two one-sided sign-flip tests: the mean difference lies within ±``margin``.

    It is the larger of the two p-values; None with an infinite difference, or fewer than `FEWEST`.
    """
    if len(differences) < FEWEST or not np.isfinite(differences).all():
        return None
    flips = Flips(differences)
    return max(flips.p(-margin, "above"), flips.p(margin, "below"))


def better(
    a: Sequence[float], b: Sequence[float], mode: str = "min", *, test: bool = True
) -> Superiority:
    """Return the probability that a run of ``a`` is better than one of ``b``, with ``test`` interval and p.

    The test is the studentised permutation test of Brunner and Munzel (Neubert & Brunner 2007): it
    holds its level also where the two sides spread unequally. All splits of the pooled values are
    counted up to 9 runs a side, else 20,000 random ones and the observed one. Infinite values are
    ordinary ones. The standard error is at least 1/(2·n·m), which it would be short of where one
    side wins every time.
    """
    n, m = len(a), len(b)
    pooled = np.array([*a, *b], float) * (-1 if mode == "max" else 1)
    won = wins(pooled, pooled)
    (share,), (error,) = _shares(np.arange(n + m)[None] < n, won)
    probability = float(share)
    if not test or min(n, m) < FEWEST:
        return Superiority(probability)
    shares, errors = _shares(_splits(n, m), won)
    sizes, size = np.abs(shares - 0.5) / errors, abs(probability - 0.5) / float(error)
    extreme = int((sizes >= size * (1 - FLOATS) - FLOATS).sum())
    # With drawn splits the observed one counts too, so that p is never 0.
    p = (
        extreme / sizes.size
        if math.comb(n + m, n) <= _EXACT_SPLITS
        else (extreme + 1) / (sizes.size + 1)
    )
    # On the logit scale the interval stays within 0 and 1; all wins have no logit, so half a win
    # stays.
    inside = min(max(probability, 1 / (2 * n * m)), 1 - 1 / (2 * n * m))
    centre, half = math.log(inside / (1 - inside)), _NORMAL * float(error) / (inside * (1 - inside))
    low, high = (1 / (1 + math.exp(-(centre + sign * half))) for sign in (-1, 1))
    return Superiority(probability, min(low, probability), max(high, probability), p)


def wins(a: Array, b: Array) -> Array:
    """Return for each run of ``a``, by row, and each of ``b`` whether it is better: 1, ½ or 0; low is good."""
    return np.asarray((a[:, None] < b) + 0.5 * (a[:, None] == b))


def _shares(first: npt.NDArray[Any], wins: Array) -> tuple[Array, Array]:
    """Return the first part's share of wins in each split of the pooled values, and its standard error."""
    # Shapes [S, n + m], 1 in the first part, and [n + m, n + m], in halves, which float32 holds
    # exactly.
    first, counts = np.asarray(first, np.float32), np.asarray(wins, np.float32)
    n, m = int(first[0].sum()), int((1 - first[0]).sum())
    over_first = first @ counts.T
    against = over_first + first * (counts.sum(1) - 2 * over_first)  # wins over the other part
    squares = against * against
    mine, mine_squared = (np.vecdot(first, of).astype(float) for of in (against, squares))
    theirs, theirs_squared = against.sum(1) - mine, squares.sum(1) - mine_squared
    variance = [
        (of_squares - total**2 / size) / max(1, size - 1) / size / other**2
        for total, of_squares, size, other in (
            (mine, mine_squared, n, m),
            (theirs, theirs_squared, m, n),
        )
    ]
    error = np.sqrt(np.maximum(variance[0] + variance[1], 0))
    return mine / (n * m), np.maximum(error, 1 / (2 * n * m))


@lru_cache(maxsize=2)
def _splits(n: int, m: int) -> npt.NDArray[np.float32]:
    if math.comb(n + m, n) <= _EXACT_SPLITS:
        # Of equal parts, a split and its mirror image lie equally far from ½: one of the two will
        # do.
        held, start = ((0,), 1) if n == m else ((), 0)
        free = itertools.combinations(range(start, n + m), n - start)
        chosen = np.array([(*held, *rest) for rest in free])
    else:
        chosen = np.random.default_rng(0).random((_SPLITS, n + m)).argsort(1)[:, :n]
    splits = np.zeros((len(chosen), n + m), np.float32)
    np.put_along_axis(splits, chosen, 1, axis=1)
    return splits
