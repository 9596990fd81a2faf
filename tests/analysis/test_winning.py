"""The probability of being better against scipy, all splits by hand, and simulated runs."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from actlab.analysis.winning import better


def statistic(a: np.ndarray, b: np.ndarray) -> float:
    """Brunner and Munzel's statistic of two sides that do not separate, by scipy."""
    return float(stats.brunnermunzel(a, b).statistic)


@pytest.mark.parametrize("seed", range(2))
def test_p_is_the_share_of_splits_with_a_larger_statistic(seed: int) -> None:
    source = np.random.default_rng(seed)
    a, b = source.normal(size=6), source.normal(0.5, 2, size=6)
    pooled, sizes = np.concatenate([a, b]), []
    for others in itertools.combinations(range(1, 12), 5):  # the other half of the splits is mirrored
        first = [0, *others]
        mine, theirs = pooled[first], np.delete(pooled, first)
        separate = mine.max() < theirs.min() or theirs.max() < mine.min()
        sizes.append(math.inf if separate else abs(statistic(mine, theirs)))
    found = better(a.tolist(), b.tolist())
    assert found.p == np.mean(np.array(sizes) >= abs(statistic(a, b)) - 1e-9)
    assert found.probability == pytest.approx(stats.mannwhitneyu(b, a).statistic / 36)


def test_many_runs_draw_splits_and_agree_with_brunner_and_munzel() -> None:
    source = np.random.default_rng(1)
    for shift in (0.0, 0.4, 0.8):
        a, b = source.normal(size=25), source.normal(shift, 1.5, size=25)
        assert better(a.tolist(), b.tolist()).p == pytest.approx(stats.brunnermunzel(a, b).pvalue, abs=0.015)


def test_one_side_that_wins_every_time_is_an_ordinary_case() -> None:
    low, high = [1.0, 2, 3, 4, 5, 6], [11.0, 12, 13, 14, 15, 16]
    won, lost = better(low, high), better(high, low)
    assert (won.probability, won.p, won.high) == (1, 2 / math.comb(12, 6), 1)
    assert 0.85 < won.low < 0.95
    assert (lost.probability, lost.p) == (0, won.p)
    assert (lost.low, lost.high) == pytest.approx((1 - won.high, 1 - won.low))
    assert better(low, high, "max").probability == 0


def test_a_diverged_run_loses_against_all_others() -> None:
    inf = math.inf
    found = better([inf] * 10 + [0.1] * 2, [0.2] * 12)
    assert found.probability == 2 / 12
    assert found.p < 0.05
    assert better([-inf] * 10 + [0.9] * 2, [0.8] * 12, "max").probability == 2 / 12
    assert better([inf] * 6, [inf] * 6)[::3] == (0.5, 1)


def test_equal_values_are_half_a_win_each() -> None:
    assert better([0.3] * 6, [0.3] * 6)[::3] == (0.5, 1)
    assert better([2, 1], [1, 1]) == (0.25, None, None, None)


def test_five_runs_have_no_p() -> None:
    assert better([1.0] * 5, [2.0] * 9) == (1, None, None, None)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_it_holds_its_level_also_at_unequal_spread(spread: float) -> None:
    source = np.random.default_rng(2)
    ps = [
        better(source.normal(size=6).tolist(), source.normal(0, spread, size=6).tolist()).p for _ in range(400)
    ]
    assert np.mean(np.array(ps) < 0.05) < 0.085  # 5 % and three standard errors
