"""The effect of an activation over tasks, by a hierarchical model of runs, data sets and tasks; pure functions.

An effect is the mean logarithm of a ratio, of the errors of two activations: 0 where they are equal, below 0
where the first is better. The effect y on data set d of task t has the variance v of its runs:

    y ~ N(θ_td, v),   θ_td ~ N(μ_t, σ²),   μ_t ~ N(μ, τ²)

μ, the mean over tasks such as these, has a flat prior; σ and τ, the standard deviations over data sets and over
tasks, have half-Cauchy priors of scales .5 and 1 (Gelman 2006, "Prior distributions for variance parameters in
hierarchical models"): wide, since an activation may halve the error of one task and leave that of another.
Given σ and τ the posterior of μ is normal, so it is a mixture of normals over a grid of both. Estimates of both
in place of the grid would make intervals too narrow: few tasks say little about them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from actlab.analysis.statistics import LEVEL, Array
from actlab.analysis.wording import digits

DATASETS, TASKS = 0.5, 1.0  # scales of the priors of σ and τ
POINTS = 48  # of the grid along each standard deviation, each of the same prior probability
DRAWS = 20_000  # of the posterior
FEWEST_RUNS = 4  # with fewer the variance of a mean, from t, is infinite
FEWEST_TASKS = 2  # one task says nothing about other tasks


class Effect(NamedTuple):
    """A mean logarithm of a ratio, and its variance over runs."""

    mean: float
    variance: float


class Ratio(NamedTuple):
    """A ratio, and the ends of its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return ``0.815 [0.740, 0.898]``."""
        value, low, high = map(digits, self)
        return f"{value} [{low}, {high}]"


class OverTasks(NamedTuple):
    """Ratios over tasks."""

    here: Ratio  # geometric mean over these tasks and data sets, with the interval of other seeds
    ratio: Ratio  # over tasks and data sets such as these: the median of its posterior
    equivalent: float  # probability that the latter lies within the region of practical equivalence
    tasks: int
    datasets: int


def effect(ours: Sequence[float] | Array, theirs: Sequence[float] | Array) -> Effect | None:
    """Return the effect from the errors of the runs of two sides, above 0; None with too few runs of one side.

    The variance of each mean is that of Student's t, so that a normal distribution stands for it.
    """
    logs = [np.log(np.asarray(side, float)) for side in (ours, theirs)]
    if min(map(len, logs)) < FEWEST_RUNS:
        return None
    of_means = [side.var(ddof=1) / len(side) * (len(side) - 1) / (len(side) - 3) for side in logs]
    return Effect(float(logs[0].mean() - logs[1].mean()), float(sum(of_means)))


def mean_of(effects: Sequence[Effect]) -> Effect:
    """Return the mean effect over the parts of a data set, which count as one, or over data sets or tasks."""
    means, variances = zip(*effects, strict=True)
    return Effect(float(np.mean(means)), sum(variances) / len(variances) ** 2)


def within(effect: Effect, level: float = LEVEL) -> Ratio:
    """Return the ratio on one data set, with the interval of its runs."""
    return _ratio(effect.mean + math.sqrt(effect.variance) * _normal(), level)


def over_tasks(tasks: Sequence[Sequence[Effect]], equivalence: float, level: float = LEVEL) -> OverTasks | None:
    """Return the ratios over tasks; None for fewer than `FEWEST_TASKS`.

    Args:
        tasks: for each task the effects on its data sets, at least one.
        equivalence: the ratio up to which, and from whose inverse, activations count as practically equal.
        level: 1 minus the probability of the interval.
    """
    if len(tasks) < FEWEST_TASKS:
        return None
    drawn, here = posterior(tasks), mean_of([mean_of(effects) for effects in tasks])
    equal = float(np.mean(np.abs(drawn) <= math.log(equivalence)))
    return OverTasks(within(here, level), _ratio(drawn, level), equal, len(tasks), sum(map(len, tasks)))


def posterior(tasks: Sequence[Sequence[Effect]]) -> Array:
    """Return draws of μ, of a fixed seed."""
    probabilities = (np.arange(POINTS) + 0.5) / POINTS
    quantiles = np.tan(np.pi / 2 * probabilities)  # of the half-Cauchy of scale 1
    sigma, tau = (axis.ravel() ** 2 for axis in np.meshgrid(DATASETS * quantiles, TASKS * quantiles))
    likelihood = np.zeros(sigma.size)  # its logarithm
    means, precisions = [], []
    for effects in tasks:
        of_data, variances = np.array(effects).T[..., None]
        mean, precision, fit = _combined(of_data, variances + sigma)
        likelihood += fit
        means.append(mean)
        precisions.append(1 / precision + tau)
    mean, precision, fit = _combined(np.array(means), np.array(precisions))
    weights = np.exp((likelihood := likelihood + fit) - likelihood.max())
    rng = np.random.default_rng(0)
    chosen = rng.choice(sigma.size, DRAWS, p=weights / weights.sum())
    return np.asarray(mean[chosen] + _normal() / np.sqrt(precision[chosen]))


def _combined(means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Return the weighted mean of n means ``[n, G]``, its precision, and the log likelihood without it."""
    precision = (1 / variances).sum(0)
    mean = (means / variances).sum(0) / precision
    fit = -0.5 * (np.log(variances).sum(0) + np.log(precision) + ((means - mean) ** 2 / variances).sum(0))
    return mean, precision, fit


def _normal() -> Array:
    return np.random.default_rng(1).normal(size=DRAWS)


def _ratio(drawn: Array, level: float) -> Ratio:
    low, middle, high = np.exp(np.quantile(drawn, [level / 2, 0.5, 1 - level / 2]))
    return Ratio(float(middle), float(low), float(high))
