"""The probability that a run of one activation is better than one of another; pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from actlab.analysis.statistics import FEWEST, FLOATS, Array

_EXACT = math.comb(18, 9)  # splits: those of 9 and 9 runs
_SPLITS = 20_000  # random ones of more runs
_NORMAL = 1.959964  # 97.5 % quantile of the normal distribution


class Better(NamedTuple):
    """The probability that a run of one side is better than one of the other; ties count half."""

    probability: float  # the share of pairs (A, B) of runs in which A wins
    low: float | None  # end of its 95 % interval; None with fewer than `FEWEST` runs of a side
    high: float | None
    p: float | None  # two-sided permutation test against 1/2

    @property
    def text(self) -> str:
        """The probability with its interval, ``0.93 [0.71, 0.99]``; empty without an interval."""
        if self.low is None or self.high is None:
            return ""
        return f"{self.probability:.2f} [{self.low:.2f}, {self.high:.2f}]"


def better(a: Sequence[float], b: Sequence[float], mode: str = "min", *, test: bool = True) -> Better:
    """Return the probability that a run of ``a`` is better than one of ``b``, with ``test`` interval and p.

    The test is the studentised permutation test of Brunner and Munzel (Neubert & Brunner 2007): it holds its
    level also where the two sides spread unequally. All splits of the pooled values are counted up to 9 runs a
    side, else 20,000 random ones and the observed one. Infinite values are ordinary ones. The standard error is
    at least 1/(2·n·m), which it would be short of where one side wins every time.
    """
    n, m = len(a), len(b)
    pooled = np.array([*a, *b], float) * (-1 if mode == "max" else 1)
    found = wins(pooled, pooled)
    (share,), (error,) = _shares(np.arange(n + m)[None] < n, found)
    probability = float(share)
    if not test or min(n, m) < FEWEST:
        return Better(probability, None, None, None)
    shares, errors = _shares(_splits(n, m), found)
    sizes, size = np.abs(shares - 0.5) / errors, abs(probability - 0.5) / float(error)
    extreme = int((sizes >= size * (1 - FLOATS) - FLOATS).sum())
    p = extreme / sizes.size if math.comb(n + m, n) <= _EXACT else (extreme + 1) / (sizes.size + 1)
    inside = min(max(probability, 1 / (2 * n * m)), 1 - 1 / (2 * n * m))
    centre, half = math.log(inside / (1 - inside)), _NORMAL * float(error) / (inside * (1 - inside))
    low, high = (1 / (1 + math.exp(-(centre + sign * half))) for sign in (-1, 1))
    return Better(probability, min(low, probability), max(high, probability), p)


def wins(a: Array, b: Array) -> Array:
    """Return for each run of ``a``, by row, and each of ``b`` whether it is better: 1, ½ or 0; low is good."""
    return np.asarray((a[:, None] < b) + 0.5 * (a[:, None] == b))


def _shares(first: npt.NDArray[Any], wins: Array) -> tuple[Array, Array]:
    """Return for each split of the pooled values its first part's share of wins, and the standard error."""
    # Shapes [S, n + m], 1 in the first part, and [n + m, n + m], in halves, which float32 holds exactly.
    first, counts = np.asarray(first, np.float32), np.asarray(wins, np.float32)
    n, m = int(first[0].sum()), int((1 - first[0]).sum())
    over_first = first @ counts.T
    against = over_first + first * (counts.sum(1) - 2 * over_first)  # wins over the other part
    squares = against * against
    mine, mine_squared = (np.vecdot(first, of).astype(float) for of in (against, squares))
    theirs, theirs_squared = against.sum(1) - mine, squares.sum(1) - mine_squared
    variance = [
        (of_squares - total**2 / size) / max(1, size - 1) / size / other**2
        for total, of_squares, size, other in ((mine, mine_squared, n, m), (theirs, theirs_squared, m, n))
    ]
    error = np.sqrt(np.maximum(variance[0] + variance[1], 0))
    return mine / (n * m), np.maximum(error, 1 / (2 * n * m))


@lru_cache(maxsize=2)
def _splits(n: int, m: int) -> npt.NDArray[np.float32]:
    if math.comb(n + m, n) <= _EXACT:
        # Of equal parts, a split and its mirror image lie equally far from ½: one of the two will do.
        held, start = ((0,), 1) if n == m else ((), 0)
        free = itertools.combinations(range(start, n + m), n - start)
        chosen = np.array([(*held, *rest) for rest in free])
    else:
        chosen = np.random.default_rng(0).random((_SPLITS, n + m)).argsort(1)[:, :n]
    found = np.zeros((len(chosen), n + m), np.float32)
    np.put_along_axis(found, chosen, 1, axis=1)
    return found
