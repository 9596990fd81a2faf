"""Ratios over tasks: the model of runs, data sets and tasks against other computations."""

import math
from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from actlab.scoreboard.statistic import (
    Effect,
    Mixture,
    Task,
    effect,
    mean_in,
    mean_of,
    over_tasks,
    over_these,
    posterior,
    ratio_of,
)

SHARP = 1e-6  # variance of effects that are known


def test_an_effect_is_that_of_logarithms_with_the_variance_of_t():
    ours, theirs = [1.0, 1.1, 1.3, 0.9, 1.2], [2.0, 2.2, 1.9, 2.1]
    mean, variance, selection = effect(ours, theirs) or (0.0, 0.0, 1.0)
    assert selection == 0
    logs = np.log(ours), np.log(theirs)
    assert mean == pytest.approx(logs[0].mean() - logs[1].mean())
    expected = sum(stats.t(len(side) - 1, scale=stats.sem(side)).var() for side in logs)
    assert variance == pytest.approx(expected)
    assert effect(ours[:3], theirs) is None  # the variance of t would be infinite


def separate(*effects):
    """A task whose data sets have selections of their own."""
    return Task([[effect] for effect in effects])


def test_an_interval_on_one_data_set_is_normal():
    ratio = ratio_of(Effect(math.log(0.5), 0.01))
    expected = np.exp(math.log(0.5) + 0.1 * stats.norm.ppf([0.5, 0.025, 0.975]))
    assert astuple(ratio) == pytest.approx(tuple(expected), rel=1e-6)
    assert ratio_of(Effect(math.log(0.5), 0.003, 0.007)) == ratio  # of runs and of selections
    assert str(ratio_of(Effect(math.log(0.5), 0.0))) == "0.500 [0.500, 0.500]"


def test_parts_of_a_data_set_count_as_one():
    parts = [Effect(1.0, 0.2, 0.4), Effect(2.0, 0.4, 0.0)]
    assert mean_of(parts) == pytest.approx((1.5, 0.15, 0.1))


def test_a_selection_that_data_sets_share_does_not_average_out():
    effects = [Effect(1.0, 0.2, 0.4), Effect(2.0, 0.2, 0.4)]
    assert mean_in(separate(*effects)) == pytest.approx((1.5, 0.1, 0.2))
    assert mean_in(Task([effects])) == pytest.approx((1.5, 0.1, 0.4))

    # Two selections: one for two data sets, one for a third
    third = Effect(3.0, 0.2, 0.9)
    selection = (2 / 3) ** 2 * 0.4 + (1 / 3) ** 2 * 0.9
    assert mean_in(Task([effects, [third]])) == pytest.approx((2.0, 0.6 / 9, selection))


def test_one_task_says_nothing_of_others():
    assert over_tasks([separate(Effect(0.0, 0.1), Effect(0.1, 0.1))], 1.02) is None


def test_quantiles_and_probabilities_of_a_mixture_are_those_of_its_parts():
    mixture = Mixture(np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.04, 9.0]))

    def below(value):
        return 0.3 * stats.norm(-1, 0.2).cdf(value) + 0.7 * stats.norm(2, 3).cdf(value)

    for value in (-7.0, -1.0, 0.0, 5.0):
        assert mixture.below(value) == pytest.approx(below(value), abs=1e-6)
    for probability in (0.001, 0.025, 0.5, 0.975):
        assert below(mixture.quantile(probability)) == pytest.approx(probability, abs=1e-6)


TASKS = [
    Task([[Effect(0.1, 0.01, 0.02), Effect(0.4, 0.02, 0.02)]]),
    separate(Effect(-0.2, 0.01)),
    Task([[Effect(0.3, 0.02, 0.05), Effect(0.0, 0.01, 0.05)], [Effect(0.2, 0.01, 0.02)]]),
]


def test_the_posterior_equals_one_by_summation_over_a_grid():
    """The density of the mean and both standard deviations, summed over a grid of all three."""
    mu = np.linspace(-3, 3, 241)[:, None, None]
    spread = np.geomspace(1e-3, 300, 70)
    sigma, tau = spread[None, :, None], spread[None, None, :]
    density = (
        stats.halfcauchy(scale=0.5).pdf(sigma) * stats.halfcauchy(scale=1).pdf(tau) * sigma * tau
    )
    for task in TASKS:
        y, v, s = np.array(task.effects).T
        together = np.ones((len(y), len(y)))
        group = np.repeat(np.arange(len(task.groups)), [len(group) for group in task.groups])
        selected_together = group[:, None] == group
        covariance = np.multiply.outer(sigma**2, np.eye(len(y)))
        covariance = covariance + np.multiply.outer(tau**2, together) + np.diag(v)
        covariance = covariance + s * selected_together
        off = y - mu[..., None]
        solved = np.linalg.solve(covariance, off[..., None])[..., 0]
        density = (
            density * np.exp(-0.5 * (off * solved).sum(-1)) / np.sqrt(np.linalg.det(covariance))
        )
    density /= density.sum()
    marginal = density.sum((1, 2))
    expected = np.exp(np.interp([0.5, 0.025, 0.975], marginal.cumsum(), mu.ravel()))
    found = over_tasks(TASKS, 1.2)
    assert astuple(found.mean.ratio) == pytest.approx(tuple(expected), rel=0.05)
    margin = math.log(1.2)
    inside = marginal[np.abs(mu.ravel()) < margin].sum()
    assert found.mean.equivalent == pytest.approx(inside, abs=0.02)
    assert (found.tasks, found.datasets) == (3, 6)

    # One more task, and a data set of it, add their own spread at each point of the grid
    for prediction, spreads in ((found.task, tau), (found.dataset, np.hypot(tau, sigma))):
        for value, probability in (
            (0.0, prediction.better),
            (math.log(prediction.ratio.low), 0.025),
            (math.log(prediction.ratio.high), 0.975),
        ):
            below = (density * stats.norm.cdf((value - mu) / spreads)).sum()
            assert below == pytest.approx(probability, abs=0.01)
        equal = stats.norm.cdf((margin - mu) / spreads) - stats.norm.cdf((-margin - mu) / spreads)
        assert prediction.equivalent == pytest.approx((density * equal).sum(), abs=0.02)


def test_one_more_task_is_less_certain_than_the_mean_and_a_data_set_of_it_even_less():
    found = over_tasks(TASKS, 1.02)
    for inner, outer in ((found.mean, found.task), (found.task, found.dataset)):
        assert outer.ratio.low < inner.ratio.low < inner.ratio.high < outer.ratio.high


def test_the_prior_matters_where_its_scale_moves_an_end():
    sharp = over_tasks([separate(*[Effect(0.0, SHARP)] * 3)] * 8, 1.02)
    assert not sharp.mean.prior
    wide = over_tasks([separate(Effect(mean, SHARP)) for mean in (0.0, 0.2, -3.0)], 1.02)
    assert wide.mean.prior
    ends = [posterior([separate(Effect(0.0, SHARP))] * 3, scale).mean.ratio() for scale in (0.5, 2)]
    assert ends[0].high < ends[1].high


def test_over_these_tasks_data_sets_and_tasks_count_equally():
    tasks = [separate(*[Effect(math.log(2), SHARP)] * 3), separate(Effect(0.0, SHARP))]
    found = over_tasks(tasks, 1.02)
    assert found.here.value == pytest.approx(math.sqrt(2), rel=1e-9)
    assert found.here == over_these(tasks)
    assert found.mean.ratio.low < found.here.low  # other tasks may differ


def test_equal_activations_are_practically_equal():
    same = [separate(*[Effect(0.0, SHARP)] * 3)] * 8
    assert over_tasks(same, 1.02).mean.equivalent > 0.9
