"""Ratios over tasks: the model of runs, data sets and tasks against other computations."""

import math
from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from actlab.scoreboard.statistic import Effect, effect, mean_of, over_tasks, within

SHARP = 1e-6  # variance of effects that are known


def test_an_effect_is_that_of_logarithms_with_the_variance_of_t():
    ours, theirs = [1.0, 1.1, 1.3, 0.9, 1.2], [2.0, 2.2, 1.9, 2.1]
    mean, variance = effect(ours, theirs) or (0.0, 0.0)
    logs = np.log(ours), np.log(theirs)
    assert mean == pytest.approx(logs[0].mean() - logs[1].mean())
    expected = sum(stats.t(len(side) - 1, scale=stats.sem(side)).var() for side in logs)
    assert variance == pytest.approx(expected)
    assert effect(ours[:3], theirs) is None  # the variance of t would be infinite


def test_an_interval_on_one_data_set_is_normal():
    ratio = within(Effect(math.log(0.5), 0.01))
    expected = np.exp(math.log(0.5) + 0.1 * stats.norm.ppf([0.5, 0.025, 0.975]))
    assert astuple(ratio) == pytest.approx(tuple(expected), rel=0.01)
    assert str(within(Effect(math.log(0.5), 0.0))) == "0.500 [0.500, 0.500]"


def test_parts_of_a_data_set_count_as_one():
    assert mean_of([Effect(1.0, 0.2), Effect(2.0, 0.4)]) == pytest.approx((1.5, 0.15))


def test_one_task_says_nothing_of_others():
    assert over_tasks([[Effect(0.0, 0.1), Effect(0.1, 0.1)]], 1.02) is None


def test_the_posterior_equals_one_by_summation_over_a_grid():
    """The density of the mean and both standard deviations, summed over a grid of all three."""
    tasks = [
        [Effect(0.1, 0.01), Effect(0.4, 0.02)],
        [Effect(-0.2, 0.01)],
        [Effect(0.3, 0.03), Effect(0.0, 0.01)],
    ]
    mu = np.linspace(-3, 3, 241)[:, None, None]
    spread = np.geomspace(1e-3, 300, 70)
    sigma, tau = spread[None, :, None], spread[None, None, :]
    density = (
        stats.halfcauchy(scale=0.5).pdf(sigma) * stats.halfcauchy(scale=1).pdf(tau) * sigma * tau
    )
    for effects in tasks:
        y, v = np.array(effects).T
        covariance = np.multiply.outer(sigma**2, np.eye(len(y))) + np.multiply.outer(
            tau**2, np.ones((len(y), len(y)))
        )
        covariance = covariance + np.diag(v)
        off = y - mu[..., None]
        solved = np.linalg.solve(covariance, off[..., None])[..., 0]
        density = (
            density * np.exp(-0.5 * (off * solved).sum(-1)) / np.sqrt(np.linalg.det(covariance))
        )
    marginal = density.sum((1, 2)) / density.sum()
    expected = np.exp(np.interp([0.5, 0.025, 0.975], marginal.cumsum(), mu.ravel()))
    found = over_tasks(tasks, 1.2)
    assert astuple(found.ratio) == pytest.approx(tuple(expected), rel=0.05)
    assert found.equivalent == pytest.approx(
        marginal[np.abs(mu.ravel()) < math.log(1.2)].sum(), abs=0.02
    )
    assert (found.tasks, found.datasets) == (3, 5)


def test_over_these_tasks_data_sets_and_tasks_count_equally():
    found = over_tasks([[Effect(math.log(2), SHARP)] * 3, [Effect(0.0, SHARP)]], 1.02)
    assert found.here.value == pytest.approx(math.sqrt(2), rel=1e-3)
    assert found.ratio.low < found.here.low  # other tasks may differ


def test_equal_activations_are_practically_equal():
    same = [[Effect(0.0, SHARP)] * 3] * 8
    assert over_tasks(same, 1.02).equivalent > 0.9
