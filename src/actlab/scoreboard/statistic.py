"""The effect of an activation over tasks, by a hierarchical model of runs, data sets and tasks.

An effect is the mean logarithm of a ratio, of the errors of two activations: 0 where they are
equal, below 0 where the first is better. The effect y on data set d of task t has the variance v of
its runs, and the variance s of the selection of its settings, which the data sets of a group g
share:

    y ~ N(θ_td + s_g, v),   s_g ~ N(0, s),   θ_td ~ N(μ_t, σ²),   μ_t ~ N(μ, τ²)

μ, the mean over tasks such as these, has a flat prior; σ and τ, the standard deviations over data
sets and over tasks, have half-Cauchy priors of scales 0.5 and 1 (Gelman 2006, "Prior distributions
for variance parameters in hierarchical models"): wide, since an activation may halve the error of
one task only. Given σ and τ the posterior of μ is normal, so it is a mixture of normals over a grid
of both. So are the effect on one more task, μ + τz, and on a data set of it, μ + τz + σz'.
Estimates of both instead of the grid would make intervals too narrow: few tasks say little about
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from actlab.analysis.statistics import LEVEL, Array
from actlab.analysis.wording import digits

DATASETS = 0.5  # scale of the prior of σ
TASKS = 1.0  # scale of the prior of τ
# Grid points along each standard deviation, each of the same prior probability.
POINTS = 48
FEWEST_RUNS = 4  # with fewer the variance of a mean, from t, is infinite
FEWEST_TASKS = 2  # one task says nothing about other tasks
MOVED = 1.1  # ratio of two ends of an interval that counts as a different end
_NEGLIGIBLE = 1e-9  # probability of a grid point, relative to the most probable one
_HALVINGS = 40  # of the span that contains a quantile
# The normal distribution is interpolated between them.
_STEPS = np.linspace(-8, 8, 3_201)
_BELOW = np.array([*map(NormalDist().cdf, _STEPS)])


class Effect(NamedTuple):
    """A mean logarithm of a ratio, and its variance over runs and over selections of settings."""

    mean: float
    variance: float
    selection: float = 0.0


class Task(NamedTuple):
    """The effects on the data sets of a task, at least one.

    One selection of settings serves the data sets of a group.
    """

    groups: Sequence[Sequence[Effect]]

    @property
    def effects(self) -> list[Effect]:
        """The effects of all groups."""
        return [effect for group in self.groups for effect in group]


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
class Prediction:
    """A ratio that was not measured: the median and the interval of its posterior."""

    ratio: Ratio
    better: float  # probability of a ratio below 1
    equivalent: float  # probability of the region of practical equivalence
    prior: bool  # whether twice or half the scales of the priors give another interval


@dataclass(frozen=True)
class OverTasks:
    """Ratios over tasks."""

    here: Ratio  # geometric mean over these tasks and data sets, with the interval of other seeds
    mean: Prediction  # over tasks such as these
    task: Prediction  # on one more task
    dataset: Prediction  # on a data set of one more task
    tasks: int
    datasets: int


class Mixture(NamedTuple):
    """A mixture of normal distributions: arrays of shape ``[N]``."""

    weights: Array
    means: Array
    variances: Array

    def below(self, value: float) -> float:
        """Return the probability of a lower value."""
        distances = (value - self.means) / np.sqrt(self.variances)
        return float(self.weights @ np.interp(distances, _STEPS, _BELOW))

    def quantile(self, probability: float) -> float:
        """Return the value below which a probability lies."""
        margins = -_STEPS[0] * np.sqrt(self.variances)
        low = float((self.means - margins).min())
        high = float((self.means + margins).max())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self.below(middle) < probability:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def ratio(self, level: float = LEVEL) -> Ratio:
        """Return the ratio at the median, with an interval."""
        low, middle, high = map(self.quantile, (level / 2, 0.5, 1 - level / 2))
        return Ratio(math.exp(middle), math.exp(low), math.exp(high))


class Posterior(NamedTuple):
    """The posteriors of the effects that were not measured."""

    mean: Mixture
    task: Mixture
    dataset: Mixture


def effect(
    errors: Sequence[float] | Array, reference: Sequence[float] | Array
) -> Effect | None:
    """Return the effect of an activation on the errors of runs, above 0; None for too few runs.

    The variance of each mean is that of Student's t, so that a normal distribution stands for it.
    """
    if min(len(errors), len(reference)) < FEWEST_RUNS:
        return None
    mean, variance = _log_mean(errors)
    reference_mean, reference_variance = _log_mean(reference)
    return Effect(mean - reference_mean, variance + reference_variance)


def _log_mean(errors: Sequence[float] | Array) -> tuple[float, float]:
    logs = np.log(np.asarray(errors, float))
    n = len(logs)
    variance = logs.var(ddof=1) / n * (n - 1) / (n - 3)
    return float(logs.mean()), float(variance)


def mean_of(effects: Sequence[Effect]) -> Effect:
    """Return the mean of independent effects, such as the parts of a data set."""
    means, variances, selections = zip(*effects, strict=True)
    n = len(effects)
    return Effect(float(np.mean(means)), sum(variances) / n**2, sum(selections) / n**2)


def mean_in(task: Task) -> Effect:
    """Return the mean effect over the data sets of a task."""
    # One selection serves a group, so its variance does not average out over the group
    effects = task.effects
    selection = 0.0
    for group in task.groups:
        mean = sum(effect.selection for effect in group) / len(group)
        selection += mean * (len(group) / len(effects)) ** 2
    return mean_of(effects)._replace(selection=selection)


def ratio_of(effect: Effect, level: float = LEVEL) -> Ratio:
    """Return the ratio on data sets, with the interval of other seeds, which select and score."""
    width = NormalDist().inv_cdf(1 - level / 2) * math.sqrt(
        effect.variance + effect.selection
    )
    low = math.exp(effect.mean - width)
    high = math.exp(effect.mean + width)
    return Ratio(math.exp(effect.mean), low, high)


def over_these(tasks: Sequence[Task], level: float = LEVEL) -> Ratio:
    """Return the geometric mean over tasks, each with the same weight."""
    return ratio_of(mean_of([mean_in(task) for task in tasks]), level)


def over_tasks(tasks: Sequence[Task], equivalence: float) -> OverTasks | None:
    """Return the ratios over tasks; None for fewer than `FEWEST_TASKS`.

    Args:
        tasks: the effects on the data sets of each task.
        equivalence: the ratio up to which, and above its inverse, activations are practically
            equal.
    """
    if len(tasks) < FEWEST_TASKS:
        return None

    # Predict with the priors, and with half and twice their scales
    margin = math.log(equivalence)
    mixtures = zip(
        posterior(tasks), posterior(tasks, 0.5), posterior(tasks, 2.0), strict=True
    )
    predictions = []
    for mixture, narrow, wide in mixtures:
        ratio = mixture.ratio()
        prediction = Prediction(
            ratio=ratio,
            better=mixture.below(0),
            equivalent=mixture.below(margin) - mixture.below(-margin),
            prior=_differ(ratio, narrow.ratio()) or _differ(ratio, wide.ratio()),
        )
        predictions.append(prediction)
    mean, task, dataset = predictions
    number = sum(len(task.effects) for task in tasks)
    return OverTasks(over_these(tasks), mean, task, dataset, len(tasks), number)


def _differ(ratio: Ratio, moved: Ratio) -> bool:
    """Return whether an end of an interval has moved by more than a tenth."""
    low = abs(math.log(moved.low / ratio.low))
    high = abs(math.log(moved.high / ratio.high))
    return max(low, high) > math.log(MOVED)


def posterior(tasks: Sequence[Task], scale: float = 1.0) -> Posterior:
    """Return the posteriors of μ, of one more task, and of a data set of one more task.

    Args:
        tasks: the effects on the data sets of each task.
        scale: of both priors, relative to `DATASETS` and `TASKS`.
    """
    # Lay the grid of both variances
    probabilities = (np.arange(POINTS) + 0.5) / POINTS
    # Quantiles of a half-Cauchy distribution.
    quantiles = scale * np.tan(np.pi / 2 * probabilities)
    axes = np.meshgrid(DATASETS * quantiles, TASKS * quantiles)
    sigma, tau = (axis.ravel() ** 2 for axis in axes)

    # Combine the data sets of each group, and the groups of each task
    log_likelihood = np.zeros(sigma.size)
    means = []
    variances = []
    for task in tasks:
        group_means = []
        group_variances = []
        for group in task.groups:
            columns = np.array(group).T[..., None]
            data_means, data_variances, selections = columns
            mean, precision, fit = _combined(data_means, data_variances + sigma)
            log_likelihood += fit
            group_means.append(mean)
            group_variances.append(1 / precision + selections.mean())

        mean, precision, fit = _combined(
            np.array(group_means), np.array(group_variances)
        )
        log_likelihood += fit
        means.append(mean)
        variances.append(1 / precision + tau)

    # Combine the tasks
    mean, precision, fit = _combined(np.array(means), np.array(variances))
    log_likelihood += fit
    weights = np.exp(log_likelihood - log_likelihood.max())

    # Leave out points of the grid that do not matter
    probable = weights > _NEGLIGIBLE
    weights = weights[probable] / weights[probable].sum()
    mean = mean[probable]
    variance = 1 / precision[probable]
    task_variance = variance + tau[probable]
    return Posterior(
        Mixture(weights, mean, variance),
        Mixture(weights, mean, task_variance),
        Mixture(weights, mean, task_variance + sigma[probable]),
    )


def _combined(means: Array, variances: Array) -> tuple[Array, Array, Array]:
    """Return the mean of n means ``[n, G]`` by precision, its precision, and the log likelihood."""
    precision = (1 / variances).sum(0)
    mean = (means / variances).sum(0) / precision
    distance = ((means - mean) ** 2 / variances).sum(0)
    fit = -0.5 * (np.log(variances).sum(0) + np.log(precision) + distance)
    return mean, precision, fit
