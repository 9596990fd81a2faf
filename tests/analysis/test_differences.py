"""Differences of two sides, against brute force, bisection, simulation and scipy."""

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from actlab.analysis.differences import (
    Difference,
    Flips,
    better,
    deciding,
    equivalent,
    paired_difference,
    paired_differences,
)
from actlab.analysis.statistics import on_grid

LEVEL = 0.05
coarse = st.lists(st.integers(-40, 40).map(lambda i: i / 10), min_size=6, max_size=10)  # many ties


def of(d: list[float]) -> Difference:
    return paired_difference(d, [0.0] * len(d))


def p_at(d: list[float], shift: float) -> float:
    """The exact p of a shift, by all patterns of signs."""
    moved = np.array(d) - shift
    sums = np.abs(np.array(list(product((1, -1), repeat=len(d)))) @ moved)
    return float(np.mean(sums >= abs(moved.sum()) - 1e-9))


def end(d: list[float], outside: float) -> float:
    """The end of the shifts with p ≥ LEVEL towards ``outside``, by bisection from the mean."""
    inside = float(np.mean(d))
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if p_at(d, middle) >= LEVEL else (inside, middle)
    return inside


def test_the_ends_are_those_of_a_bisection_on_the_shift():
    for n in (6, 7, 9, 11):
        d = list(np.random.default_rng(n).exponential(size=n) - 0.5)
        found = of(d)
        assert found.low == pytest.approx(end(d, min(d) - 1), abs=1e-8)
        assert found.high == pytest.approx(end(d, max(d) + 1), abs=1e-8)


@given(coarse)
def test_0_lies_outside_exactly_when_p_is_below_the_level(d):
    found = of(d)
    assert found.p == Flips(d).p()
    assert (found.low <= 0 <= found.high) == (found.p >= LEVEL)
    assert found.low - 1e-12 <= found.mean <= found.high + 1e-12


def test_many_pairs_are_sampled_and_agree_with_their_p():
    for n in (21, 40):
        rng = np.random.default_rng(n)
        for shift in (0.0, 0.3, 0.45, 1.0):
            d = list(rng.normal(shift, size=n))
            found = of(d)
            # Two patterns may lie within float32's rounding
            assert found.p == pytest.approx(Flips(d).p(), abs=2.1e-5)
            assert (found.low <= 0 <= found.high) == (found.p >= LEVEL)
            width = 2 * 2.0 * np.std(d, ddof=1) / math.sqrt(n)  # of Student's interval, about
            assert found.high - found.low == pytest.approx(width, rel=0.1)


SYMMETRIC: dict[str, Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]] = {
    "normal": lambda rng, n: (rng.normal(size=n), np.zeros(n)),
    "two skewed sides": lambda rng, n: (rng.exponential(size=n), rng.exponential(size=n)),
    "two peaks": lambda rng, n: (
        rng.choice([-1.0, 1.0], n) + 0.1 * rng.normal(size=n),
        np.zeros(n),
    ),
}


@pytest.mark.parametrize(("name", "n"), [("normal", 6), ("two skewed sides", 8), ("two peaks", 11)])
def test_the_interval_covers_the_true_shift(name, n):
    rng, covered, draws = np.random.default_rng(n), [], 600
    for _ in range(draws):
        a, b = SYMMETRIC[name](rng, n)
        found = paired_difference(list(a + 3), list(b))
        covered.append(found.low <= 3 <= found.high)
    error = math.sqrt(0.95 * 0.05 / draws)
    # Six pairs have steps of 2/64
    assert 0.95 - 3 * error <= np.mean(covered) <= 62 / 64 + 3 * error


def test_units_and_sides_turn_the_interval_with_them():
    d = list(np.random.default_rng(1).normal(0.4, size=9))
    found, turned, tiny = of(d), of([-x for x in d]), of([1e-200 * x for x in d])
    assert (turned.low, turned.high, turned.p) == pytest.approx((-found.high, -found.low, found.p))
    assert (tiny.low, tiny.high) == pytest.approx((1e-200 * found.low, 1e-200 * found.high))


def test_equal_differences_and_none_at_all():
    assert of([0.5] * 6)[:5] == (0.5, 0.5, 0.5, 0.5, 2 / 64)
    assert of([0.0] * 6)[:5] == (0, 0, 0, 0, 1)
    assert of([])[:5] == (None, None, None, None, None)


def test_fewer_than_six_pairs_have_no_p_and_no_interval():
    assert of([1.0, 2.0, 3.0, 4.0, 10.0])[:5] == (4.0, None, None, 3.0, None)


def test_without_a_test_the_difference_stays():
    d = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    found = of(d)
    assert paired_difference(d, [0.0] * 6, test=False)[:5] == (
        found.mean,
        None,
        None,
        found.median,
        None,
    )


def test_a_diverged_run_leaves_the_median_alone():
    inf, one = math.inf, [1.0] * 6
    assert paired_difference([inf, 2, 2, 2, 2, 2], one)[:5] == (1, None, None, 1, None)
    assert paired_difference([2, 2, inf, inf, inf, inf], one).median == inf
    assert paired_difference(one, [inf] * 6).median == -inf
    assert paired_difference([inf, inf, inf, 1, 1, 1], [1, 1, 1, inf, inf, inf]).median is None
    assert paired_difference([inf, 2, 3, 4, 5, 6], [inf, 1, 1, 1, 1, 1]).median == 2.5  # a tie


@pytest.mark.parametrize("of", [10_000, 7_152])
def test_mistakes_recorded_as_float32_tie_as_their_counts_do(of):
    """The oracle are the counts, whose differences are whole numbers."""
    source = np.random.default_rng(0)
    for _ in range(200):
        n = int(source.integers(6, 11))
        base = source.integers(190, 230, n)
        counts = base + source.integers(-4, 5, n), base
        exact = paired_difference(*(side.tolist() for side in counts))
        recorded = [
            [on_grid(float(np.float32(count / of)), of) for count in side] for side in counts
        ]
        found = paired_difference(*recorded)
        assert found.p == exact.p
        assert found.low == pytest.approx(exact.low / of, abs=1e-12)


numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


@given(st.lists(numbers, min_size=1, max_size=9), st.integers(-20, 20))
def test_p_is_the_share_of_sign_patterns_as_extreme(differences, shift):
    whole = np.array([round(1000 * d) - 100 * shift for d in differences])
    sums = np.array(list(product((1, -1), repeat=len(whole)))) @ whole
    found = Flips(differences)
    assert found.p(shift / 10) == np.mean(np.abs(sums) >= abs(whole.sum()))
    assert found.p(shift / 10, "above") == np.mean(sums >= whole.sum())
    assert found.p(shift / 10, "below") == np.mean(sums <= whole.sum())


@given(st.lists(numbers, min_size=2, max_size=8), st.floats(1e-6, 1e6))
def test_it_knows_no_order_no_unit_and_no_side(differences, scale):
    p = Flips(differences).p()
    assert Flips(sorted(differences)).p() == p
    assert Flips([scale * d for d in differences]).p() == p
    assert Flips([-d for d in differences]).p() == p


def test_many_pairs_agree_with_scipys_permutation_test():
    d = np.random.default_rng(4).normal(0.3, size=40)
    scipys = stats.permutation_test(
        (d, np.zeros(40)),
        lambda x, y, axis: np.mean(x - y, axis),
        permutation_type="samples",
        n_resamples=20_000,
        vectorized=True,
        rng=0,
    )
    assert Flips(d).p() == pytest.approx(scipys.pvalue, abs=0.01)
    assert Flips([1.0] * 40).p() == 1 / 100_001


def test_a_diverged_run_is_worse_than_any_other_and_two_are_a_tie():
    inf = math.inf
    assert paired_differences([inf, 3, inf, 1], [inf, 1, 1, inf]).tolist() == [0, 2, inf, -inf]
    assert paired_differences([-inf, 3, -inf, 1], [-inf, 1, 1, -inf]).tolist() == [0, 2, -inf, inf]


def test_equivalence_needs_small_differences_on_both_sides():
    small = [0.01, -0.02, 0.0, 0.015, -0.01, 0.005]
    assert equivalent(small, 0.1) == 1 / 64
    assert equivalent([d + 0.2 for d in small], 0.1) == 1
    assert equivalent([d - 0.2 for d in small], 0.1) == 1
    assert equivalent([*small[1:], math.inf], 0.1) is None
    assert equivalent(small[1:], 0.1) is None


@pytest.mark.parametrize(
    ("pairs", "hypotheses", "failures", "quantity"),
    [
        (6, 1, False, "mean"),
        (8, 6, False, "mean"),  # 2/2^8 times 6 is 0.047
        (8, 7, False, "probability"),
        (15, 18, False, "mean"),
        (15, 1, True, "probability"),
        (0, 1, False, "probability"),  # sides with other seeds
    ],
)
def test_the_mean_decides_if_its_test_can(pairs, hypotheses, failures, quantity):
    assert deciding(pairs, hypotheses, failures) == quantity
    if pairs and not failures:
        smallest = Flips([1.0] * pairs).p()
        assert (hypotheses * smallest < LEVEL) == (quantity == "mean")


def test_one_huge_value_leaves_the_other_differences_as_they_are():
    """A loss that has exploded but is not yet infinite is one pair of nine."""
    before, after = [0.1] * 9, [0.1 + 0.01 * i for i in range(1, 9)] + [5e6]
    found = paired_difference(after, before)
    assert found.p == 2 / 2**9
    assert found.low == pytest.approx(0.0275)


def statistic(a: np.ndarray, b: np.ndarray) -> float:
    """Brunner and Munzel's statistic of two sides that do not separate, by scipy."""
    return float(stats.brunnermunzel(a, b).statistic)


@pytest.mark.parametrize("seed", range(2))
def test_p_is_the_share_of_splits_with_a_larger_statistic(seed):
    source = np.random.default_rng(seed)
    a, b = source.normal(size=6), source.normal(0.5, 2, size=6)
    pooled, sizes = np.concatenate([a, b]), []
    for others in combinations(range(1, 12), 5):  # the other half of the splits is mirrored
        first = [0, *others]
        mine, theirs = pooled[first], np.delete(pooled, first)
        separate = mine.max() < theirs.min() or theirs.max() < mine.min()
        sizes.append(math.inf if separate else abs(statistic(mine, theirs)))
    found = better(a.tolist(), b.tolist())
    assert found.p == np.mean(np.array(sizes) >= abs(statistic(a, b)) - 1e-9)
    assert found.probability == pytest.approx(stats.mannwhitneyu(b, a).statistic / 36)


def test_many_runs_draw_splits_and_agree_with_brunner_and_munzel():
    source = np.random.default_rng(1)
    for shift in (0.0, 0.4, 0.8):
        a, b = source.normal(size=25), source.normal(shift, 1.5, size=25)
        assert better(a.tolist(), b.tolist()).p == pytest.approx(
            stats.brunnermunzel(a, b).pvalue, abs=0.015
        )


def test_one_side_that_wins_every_time_is_an_ordinary_case():
    low, high = [1.0, 2, 3, 4, 5, 6], [11.0, 12, 13, 14, 15, 16]
    won, lost = better(low, high), better(high, low)
    assert (won.probability, won.p, won.high) == (1, 2 / math.comb(12, 6), 1)
    assert 0.85 < won.low < 0.95
    assert (lost.probability, lost.p) == (0, won.p)
    assert (lost.low, lost.high) == pytest.approx((1 - won.high, 1 - won.low))
    assert better(low, high, "max").probability == 0


def test_a_diverged_run_loses_against_all_others():
    inf = math.inf
    found = better([inf] * 10 + [0.1] * 2, [0.2] * 12)
    assert found.probability == 2 / 12
    assert found.p < 0.05
    assert better([-inf] * 10 + [0.9] * 2, [0.8] * 12, "max").probability == 2 / 12
    assert better([inf] * 6, [inf] * 6)[::3] == (0.5, 1)


def test_equal_values_are_half_a_win_each():
    assert better([0.3] * 6, [0.3] * 6)[::3] == (0.5, 1)
    assert better([2, 1], [1, 1]) == (0.25, None, None, None)


def test_five_runs_have_no_p():
    assert better([1.0] * 5, [2.0] * 9) == (1, None, None, None)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_it_holds_its_level_also_at_unequal_spread(spread):
    source = np.random.default_rng(2)
    ps = [
        better(source.normal(size=6).tolist(), source.normal(0, spread, size=6).tolist()).p
        for _ in range(400)
    ]
    assert np.mean(np.array(ps) < 0.05) < 0.085  # 5 % and three standard errors
