"""The effect of an activation over tasks, by a hierarchical model of runs, data sets and tasks.

An effect is the mean logarithm of a ratio, of the errors of two activations: 0 where they are
equal, below 0 where the first is better. The effect y on data set d of task t has the variance v of
its runs:

    y ~ N(θ_td, v),   θ_td ~ N(μ_t, σ²),   μ_t ~ N(μ, τ²)

μ, the mean over tasks such as these, has a flat prior; σ and τ, the standard deviations over data
sets and over tasks, have half-Cauchy priors of scales 0.5 and 1 (Gelman 2006, "Prior distributions
for variance parameters in hierarchical models"): wide, since an activation may halve the error of
one task only. Given σ and τ the posterior of μ is normal, so it is a mixture of normals over a grid
of both. Estimates of both instead of the grid would make intervals too narrow: few tasks say little
about them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from actlab.analysis.statistics import LEVEL, Array
from actlab.analysis.wording import digits

DATASETS = 0.5  # scale of the prior of σ
TASKS = 1.0  # scale of the prior of τ
POINTS = 48  # of the grid along each standard deviation, each of the same prior probability
DRAWS = 20_000  # of the posterior
FEWEST_RUNS = 4  # with fewer the variance of a mean, from t, is infinite
FEWEST_TASKS = 2  # one task says nothing about other tasks


class Effect(NamedTuple):
    """A mean logarithm of a ratio, and its variance over runs."""

    mean: float
    variance: float


Tasks = Sequence[Sequence[Effect]]  # for each task the effects on its data sets, at least one


@dataclass(frozen=True)
class Ratio:
    """A ratio, and the ends of its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return ``0.815 [0.740, 0.898]``."""
        return f"{digits(self.value)} [{digits(self.low)}, {digits(self.high)}]"


@dataclass(frozen=True)
class OverTasks:
    """Ratios over tasks."""

    here: Ratio  # geometric mean over these tasks and data sets, with the interval of other seeds
    ratio: Ratio  # over tasks and data sets such as these: the median of its posterior
    equivalent: float  # probability that the latter lies within the region of practical equivalence
    tasks: int
    datasets: int


def effect(errors: Sequence[float] | Array, reference: Sequence[float] | Array) -> Effect | None:
    """Return the effect of an activation on the errors of runs, above 0; None for too few runs.

    The variance of each mean is that of Student's t, so that a normal distribution stands for it.
    """
    if min(len(errors), len(reference)) < FEWEST_RUNS:
        return None
    mean, variance = _log_mean(errors)
    reference_mean, reference_variance = _log_mean(reference)
    return Effect(mean - reference_mean, variance + reference_variance)


def _log_mean(errors: Sequence[float] | Array) -> Effect:
    logs = np.log(np.asarray(errors, float))
    n = len(logs)
    variance = logs.var(ddof=1) / n * (n - 1) / (n - 3)
    return Effect(float(logs.mean()), float(variance))


def mean_of(effects: Sequence[Effect]) -> Effect:
    """Return the mean effect over the parts of a data set, over data sets, or over tasks."""
    means, variances = zip(*effects, strict=True)
    return Effect(float(np.mean(means)), sum(variances) / len(variances) ** 2)


def within(effect: Effect, level: float = LEVEL) -> Ratio:
    """Return the ratio on one data set, with the interval of its runs."""
    return _ratio(effect.mean + math.sqrt(effect.variance) * _normal(), level)


def over_tasks(tasks: Tasks, equivalence: float, level: float = LEVEL) -> OverTasks | None:
    """Return the ratios over tasks; None for fewer than `FEWEST_TASKS`.

    Args:
        tasks: the effects on the data sets of each task.
        equivalence: the ratio up to which, and above its inverse, activations are practically
            equal.
        level: 1 minus the probability of the interval.
    """
    if len(tasks) < FEWEST_TASKS:
        return None
    mean = mean_of([mean_of(effects) for effects in tasks])
    draws = posterior(tasks)
    equivalent = float(np.mean(np.abs(draws) <= math.log(equivalence)))
    datasets = sum(map(len, tasks))
    return OverTasks(within(mean, level), _ratio(draws, level), equivalent, len(tasks), datasets)


def posterior(tasks: Tasks) -> Array:
    """Return draws of μ, of a fixed seed."""
    # Lay the grid of both variances
    probabilities = (np.arange(POINTS) + 0.5) / POINTS
    quantiles = np.tan(np.pi / 2 * probabilities)  # of the half-Cauchy of scale 1
    axes = np.meshgrid(DATASETS * quantiles, TASKS * quantiles)
    sigma, tau = (axis.ravel() ** 2 for axis in axes)

    # Combine the data sets of each task
    log_likelihood = np.zeros(sigma.size)
    means = []
    variances = []
    for effects in tasks:
        task_means, task_variances = np.array(effects).T[..., None]
        mean, precision, fit = _combined(task_means, task_variances + sigma)
        log_likelihood += fit
        means.append(mean)
        variances.append(1 / precision + tau)

    # Combine the tasks
    mean, precision, fit = _combined(np.array(means), np.array(variances))
    log_likelihood += fit
    weights = np.exp(log_likelihood - log_likelihood.max())

    # Draw from the mixture
    rng = np.random.default_rng(0)
    points = rng.choice(sigma.size, DRAWS, p=weights / weights.sum())
    return np.asarray(mean[points] + _normal() / np.sqrt(precision[points]))


def _combined(means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Return the mean of n means ``[n, G]`` by precision, its precision, and the log likelihood."""
    precision = (1 / variances).sum(0)
    mean = (means / variances).sum(0) / precision
    distance = ((means - mean) ** 2 / variances).sum(0)
    fit = -0.5 * (np.log(variances).sum(0) + np.log(precision) + distance)
    return mean, precision, fit


def _normal() -> Array:
    return np.random.default_rng(1).normal(size=DRAWS)


def _ratio(draws: Array, level: float) -> Ratio:
    low, middle, high = np.exp(np.quantile(draws, [level / 2, 0.5, 1 - level / 2]))
    return Ratio(float(middle), float(low), float(high))
