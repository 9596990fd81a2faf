"""The probability that a run of one activation is better than one of another; pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

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
    def untested(self) -> Better:
        """A copy without p-value and interval."""
        return Better(self.probability, None, None, None)


def better(a: Sequence[float], b: Sequence[float], mode: str = "min") -> Better:
    """Return the probability that a run of ``a`` is better than one of ``b``, with interval and test.

    The test is the studentised permutation test of Brunner and Munzel (Neubert & Brunner 2007): it holds its
    level also where the two sides spread unequally. All splits of the pooled values are counted up to 9 runs a
    side, else 20,000 random ones and the observed one. Infinite values are ordinary ones. The standard error is
    at least 1/(2·n·m), which it would be short of where one side wins every time.

    >>> better([1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16])
    Better(probability=1.0, low=0.907..., high=1.0, p=0.00216...)
    >>> better([2, 1], [1, 1])
    Better(probability=0.25, low=None, high=None, p=None)
    """
    n, m = len(a), len(b)
    pooled = np.array([*a, *b], float) * (-1 if mode == "max" else 1)
    wins = (pooled[:, None] < pooled) + 0.5 * (pooled[:, None] == pooled)  # of the row over the column
    first = np.zeros((1, n + m), bool)
    first[0, :n] = True
    (share,), (error,) = _shares(first, wins)
    probability = float(share)
    if min(n, m) < FEWEST:
        return Better(probability, None, None, None)
    known = math.comb(n + m, n) <= _EXACT
    shares, errors = _shares(_splits(n, m), wins)
    sizes, size = np.abs(shares - 0.5) / errors, abs(probability - 0.5) / float(error)
    extreme = int((sizes >= size * (1 - FLOATS) - FLOATS).sum())
    p = extreme / sizes.size if known else (extreme + 1) / (sizes.size + 1)
    inside = min(max(probability, 1 / (2 * n * m)), 1 - 1 / (2 * n * m))
    centre, half = math.log(inside / (1 - inside)), _NORMAL * float(error) / (inside * (1 - inside))
    low, high = (1 / (1 + math.exp(-(centre + sign * half))) for sign in (-1, 1))
    return Better(probability, min(low, probability), max(high, probability), p)


def _shares(first: npt.NDArray[np.bool_], wins: Array) -> tuple[Array, Array]:
    """Return for each split of the pooled values the share of wins of its first part, and its standard error.

    Args:
        first: shape ``[S, n + m]``, whether a value belongs to the first part.
        wins: shape ``[n + m, n + m]``, 1, ½ or 0 as the row's value wins against the column's.
    """
    n, m = int(first[0].sum()), int((~first[0]).sum())
    against = np.where(first, (~first).astype(float) @ wins.T / m, first.astype(float) @ wins.T / n)
    mean = (against * first).sum(1) / n
    spread = [
        ((against - centre[:, None]) ** 2 * part).sum(1) / max(1, size - 1) / size
        for part, centre, size in ((first, mean, n), (~first, 1 - mean, m))
    ]
    return mean, np.maximum(np.sqrt(spread[0] + spread[1]), 1 / (2 * n * m))


@lru_cache(maxsize=2)
def _splits(n: int, m: int) -> npt.NDArray[np.bool_]:
    """Return all splits of n + m values into parts of n and m, or 20,000 random ones of a fixed seed."""
    if math.comb(n + m, n) <= _EXACT:
        chosen = np.array(list(itertools.combinations(range(n + m), n)))
    else:
        chosen = np.random.default_rng(0).random((_SPLITS, n + m)).argsort(1)[:, :n]
    found = np.zeros((len(chosen), n + m), bool)
    np.put_along_axis(found, chosen, True, axis=1)
    return found
