"""How far the selection of a setting depends on its seeds.

Pure functions, which resample the seeds.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from actlab.analysis.statistics import Array, Number

ALL = 8  # most seeds with all resamples; more seeds have `DRAWS` random ones
DRAWS = 2_000
STABLE = 0.8  # share of resamples below which a verdict has a note


class Choice(NamedTuple):
    """The selection of a setting among several, by the median over seeds of a metric."""

    seeds: int  # number of seeds that the selection used
    score: Number  # median of the selected setting over these seeds

    # Share of resamples of the seeds that select the same setting; None for one seed
    again: float | None

    # Its median over fresh seeds of a later stage; else its mean median over the seeds
    # that resamples lack
    elsewhere: float | None

    @property
    def unstable(self) -> bool:
        """Whether other seeds would often select another setting."""
        return self.again is not None and self.again < STABLE


def choice(values: Array, mode: str) -> Choice:
    """Return how stable a selection is.

    The setting with the best median over seeds is selected, the first of equal ones. All multisets
    of the n seeds select by the same rule, each weighted by how often a bootstrap draws it,
    n!/∏mᵢ!/nⁿ. A resample shares its seeds between settings, as they were trained.

    Args:
        values: of the selection metric, ``[settings, seeds]``, infinite where a run diverged.
        mode: ``min`` or ``max``.
    """
    # Lower is better from here on
    losses = values
    if mode == "max":
        losses = -values

    # Select by all seeds.
    seeds = values.shape[1]
    best = int(np.median(losses, axis=1).argmin())
    score = float(np.median(values[best]))
    if seeds < 2:
        return Choice(seeds, score, again=None, elsewhere=None)

    # Select by each resample, shape [resamples].
    drawn, weights = resamples(seeds)
    medians = np.median(losses[:, drawn], axis=2)
    selected = medians.argmin(0)
    again = float(weights[selected == best].sum())

    # Evaluate each selection on the seeds that its resample lacks, shape [resamples,
    # seeds].
    lacking = ~(drawn[:, :, None] == np.arange(seeds)).any(1)
    partial = lacking.any(1)
    outside = np.where(lacking[partial], values[selected[partial]], np.nan)
    scores = np.nanmedian(outside, axis=1)
    mean = float((weights[partial] * scores).sum() / weights[partial].sum())
    return Choice(seeds, score, again, elsewhere=mean)


@lru_cache(maxsize=4)
def resamples(n: int) -> tuple[npt.NDArray[np.int_], Array]:
    """Return the seeds of each resample of n seeds, ``[resamples, n]``, and its weight."""
    # Random resamples have equal weights.
    if n > ALL:
        drawn = np.random.default_rng(0).integers(n, size=(DRAWS, n))
        return drawn, np.full(DRAWS, 1 / DRAWS)

    # A multiset is drawn in n!/∏mᵢ! ways.
    drawn = np.array([*itertools.combinations_with_replacement(range(n), n)])
    ways = []
    for seeds in drawn:
        repeats = np.bincount(seeds)
        ways.append(math.factorial(n) / math.prod(map(math.factorial, repeats)))
    return drawn, np.array(ways) / n**n
