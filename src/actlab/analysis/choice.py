"""How far a choice of settings depends on the seeds that chose: resamples of these seeds; pure functions."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from actlab.analysis.statistics import Array, Number

ALL = 8  # seeds; of more, `DRAWS` random resamples stand for all
DRAWS = 2_000
STABLE = 0.8  # share of resamples below which a verdict has a note


class Choice(NamedTuple):
    """The choice of a setting among several, by the median over seeds of the selection metric."""

    seeds: int  # that chose
    score: Number  # median of the chosen setting over these seeds
    # Share of resamples of the seeds that choose the same setting; None for one seed
    again: float | None
    # Its median over fresh seeds of a later stage; else its mean median over the seeds that
    # resamples lack.
    elsewhere: float | None

    @property
    def unstable(self) -> bool:
        """Whether other seeds would often choose another setting."""
        return self.again is not None and self.again < STABLE


def choice(values: Array, mode: str) -> Choice:
    """Return how stable a choice is: the best median over seeds, the first of equal ones.

    All multisets of the n seeds choose by the same rule, each weighted by how often a bootstrap
    draws it, n!/∏mᵢ!/nⁿ. A resample shares its seeds between settings, as they were trained.

    Args:
        values: of the selection metric, ``[settings, seeds]``, infinite where a run diverged.
        mode: ``min`` or ``max``.
    """
    low = -values if mode == "max" else values
    number = low.shape[1]
    best = int(np.median(low, axis=1).argmin())
    score = float(np.median(values[best]))
    if number < 2:
        return Choice(number, score, None, None)
    drawn, weights = _resamples(number)
    chosen = np.median(low[:, drawn], axis=2).argmin(0)
    lacking = ~(drawn[:, :, None] == np.arange(number)).any(1)
    out = lacking.any(1)
    bag = np.nanmedian(np.where(lacking[out], values[chosen[out]], np.nan), axis=1)
    mean = float((weights[out] * bag).sum() / weights[out].sum())
    return Choice(number, score, float(weights[chosen == best].sum()), mean)


@lru_cache(maxsize=4)
def _resamples(number: int) -> tuple[npt.NDArray[np.int_], Array]:
    """Return the seeds of each resample, ``[resamples, number]``, and its weight."""
    if number > ALL:
        return np.random.default_rng(0).integers(number, size=(DRAWS, number)), np.full(
            DRAWS, 1 / DRAWS
        )
    drawn = np.array([*itertools.combinations_with_replacement(range(number), number)])
    ways = [
        math.factorial(number) / math.prod(map(math.factorial, np.bincount(seeds)))
        for seeds in drawn
    ]
    return drawn, np.array(ways) / number**number
