"""Over tasks: the mean probability of being better than a reference, and performance profiles; pure functions.

Tasks are given by study. Each study has the same weight, divided equally between its tasks, and that of a task
between its runs. Of all values low is good, and that of a diverged run is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from actlab.analysis.statistics import FEWEST, LEVEL, Array

DRAWS = 2_000  # of the bootstrap
FEWEST_STUDIES = 3  # for an interval over tasks

Ends = tuple[float, float]


class Mean(NamedTuple):
    """The mean over tasks of the probability that a run is better than one of the reference."""

    probability: float
    runs: Ends | None  # 95 % interval over runs: other seeds; None with fewer than `FEWEST` runs of a side
    tasks: Ends | None  # 95 % interval over runs and tasks; None with fewer than `FEWEST_STUDIES` studies
    studies: int
    number: int  # of tasks


def mean_better(studies: Sequence[Sequence[Array]]) -> Mean:
    """Return the mean probability of being better, with bootstrap intervals of a fixed seed.

    Each draw resamples the runs of each side of each task; for the second interval it then resamples the S
    studies, and multiplies the distance of the draw to the mean by √(S/χ²), χ² of S - 1 degrees of freedom:
    the bootstrap of few studies alone is too narrow, as the normal distribution is beside Student's. Runs that
    win every time would never vary, so normal noise smooths the probability of each task: of the largest
    standard error at half a win, q = 1/(2·n·m), which is √(q(1 - q)/min(n, m)) (van Dantzig 1951).

    Args:
        studies: for each study its tasks, at least one: the `wins` of n runs against m, shape ``[n, m]``.
    """
    rng = np.random.default_rng(0)
    size, tasks = len(studies), [task for study in studies for task in study]
    probability = float(np.mean([np.mean([task.mean() for task in study]) for study in studies]))
    drawn = np.array([np.mean([_drawn(task, rng) for task in study], axis=0) for study in studies])
    again = rng.integers(size, size=drawn.shape), rng.integers(DRAWS, size=drawn.shape)
    enough = min(np.sum([task.shape for task in tasks], axis=0)) >= FEWEST
    runs = _ends(drawn.mean(0)) if enough else None
    if not enough or size < FEWEST_STUDIES:
        return Mean(probability, runs, None, size, len(tasks))
    wider = probability + np.sqrt(size / rng.chisquare(size - 1, DRAWS)) * (drawn[again].mean(0) - probability)
    return Mean(probability, runs, _ends(wider), size, len(tasks))


def _drawn(won: Array, rng: np.random.Generator) -> Array:
    """Return the share of wins, from the wins of n runs against m, in each draw of n and m of these runs."""
    n, m = won.shape
    ours, theirs, half = _counts(n, rng), _counts(m, rng), 1 / (2 * n * m)
    noise = rng.normal(0, math.sqrt(half * (1 - half) / min(n, m)), DRAWS)
    return np.asarray((ours @ won * theirs).sum(1) / (n * m) + noise)


def _counts(n: int, rng: np.random.Generator) -> Array:
    """Return how often each of n runs is in each draw of n runs, shape ``[DRAWS, n]``."""
    drawn = rng.integers(n, size=(DRAWS, n)) + n * np.arange(DRAWS)[:, None]
    return np.bincount(drawn.ravel(), minlength=DRAWS * n).reshape(DRAWS, n).astype(float)


def _ends(drawn: Array) -> Ends:
    low, high = np.quantile(drawn, [LEVEL / 2, 1 - LEVEL / 2]).clip(0, 1)
    return float(low), float(high)


def profile(studies: Sequence[Sequence[Array]]) -> tuple[Array, Array]:
    """Return the performance profile of an activation: ratios, ascending, and the share of runs up to each.

    Args:
        studies: for each study its tasks, at least one: the ratio of each run to the reference's median.
    """
    tasks = [(task, len(studies) * len(study) * len(task)) for study in studies for task in study]
    weights = np.concatenate([np.full(len(task), 1 / size) for task, size in tasks])
    ratios, which = np.unique(np.concatenate([task for task, _ in tasks]), return_inverse=True)
    reached = np.isfinite(ratios)
    return ratios[reached], np.cumsum(np.bincount(which, weights))[reached]
