"""Medians, intervals and tests against scipy and numbers worked out by hand."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from actlab.analysis.differences import paired_difference
from actlab.analysis.statistics import (
    drawn,
    equivalent,
    flipped_sums,
    holm,
    median_band,
    median_interval,
    paired_differences,
    pairs_needed,
    parts,
    rounding,
    sign_flip_p,
    wilcoxon_p,
)

numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


def test_few_values_give_their_range() -> None:
    assert median_interval([3.0, 1.0, 2.0, 9.0, 5.0]) == (1.0, 9.0, "range", 1 - 2 / 32)
    assert median_interval([3.0]) == (3.0, 3.0, "range", 0.0)


def test_drawn_patterns_are_summed_as_they_were_drawn() -> None:
    d = np.random.default_rng(2).normal(size=33)
    turned = drawn(33)
    assert turned.shape == (100_000, 33)
    assert abs(turned.mean() - 0.5) < 0.001
    sums, sizes = parts(d)
    np.testing.assert_allclose(sums, np.where(turned, d, 0).sum(axis=1), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(sizes, turned.sum(axis=1))
    np.testing.assert_allclose(flipped_sums(d), np.where(turned, -d, d).sum(axis=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", range(6, 21))
def test_the_interval_covers_the_median_as_often_as_it_says_and_at_least_95_percent(n: int) -> None:
    draws = np.random.default_rng(n).exponential(size=(n, 20_000))  # skewed: its median is log 2
    band = median_band(draws)
    covered = np.mean((band.low <= math.log(2)) & (math.log(2) <= band.high))
    assert band.coverage >= 0.95
    assert covered == pytest.approx(band.coverage, abs=0.006)  # 4 standard errors of the simulation
    assert covered > 0.945


@pytest.mark.parametrize("n", range(6, 21))
def test_the_interval_is_scipys_by_the_binomial_quantile(n: int) -> None:
    found: Any = stats.quantile_test(list(range(1, n + 1)), p=0.5).confidence_interval(0.95)
    interval = median_interval(range(1, n + 1))
    k = int(interval.low)
    assert (interval.low, interval.high) == pytest.approx(tuple(found))
    assert interval.coverage == pytest.approx(1 - 2 * stats.binom.cdf(k - 1, n, 0.5))
    assert 1 - 2 * stats.binom.cdf(k, n, 0.5) < 0.95  # one further in would be too narrow


def test_six_to_eight_values_give_the_smallest_and_the_largest() -> None:
    for n in (6, 7, 8):
        assert median_interval(range(n))[:3] == (0, n - 1, "interval")


def test_a_diverged_run_is_the_worst_value() -> None:
    assert median_interval([1.0, 2.0, math.inf])[:3] == (1.0, math.inf, "range")
    assert median_interval([1, 2, 3, 4, 5, 6, math.inf])[:2] == (1, math.inf)
    assert median_interval([*range(8), math.inf])[:2] == (1, 7)
    assert median_interval([math.inf] * 7)[:3] == (math.inf, math.inf, "interval")


def test_a_band_is_an_interval_at_each_place() -> None:
    values = np.random.default_rng(3).normal(size=(7, 4))
    band = median_band(values)
    singly = [median_interval(column) for column in values.T]
    assert list(zip(band.low, band.high, strict=True)) == [s[:2] for s in singly]
    assert band.median == pytest.approx(np.median(values, axis=0))


def test_six_equal_signs_give_two_of_64() -> None:
    assert sign_flip_p([1, 2, 3, 4, 5, 6]) == 2 / 64
    assert sign_flip_p([1, 2, 3, 4, 5, 6], "greater") == 1 / 64
    assert sign_flip_p([1, 2, 3, 4, 5, 6], "less") == 1


def test_ties_count_as_extreme() -> None:
    assert sign_flip_p([1, 1, 1, -1]) == 10 / 16  # |sum| ≥ 2: 2 patterns with 4, 8 with 2
    assert sign_flip_p([0, 0, 0]) == 1
    assert sign_flip_p([0.1, 0.2, 0.3]) == sign_flip_p([1, 2, 3])  # whatever the rounding


@given(st.lists(numbers, min_size=1, max_size=9))
def test_it_is_the_share_of_sign_patterns_as_extreme(differences: list[float]) -> None:
    whole = [round(1000 * d) for d in differences]
    sums = [
        abs(sum(s * w for s, w in zip(signs, whole, strict=True)))
        for signs in product((1, -1), repeat=len(whole))
    ]
    assert sign_flip_p(differences) == np.mean([s >= abs(sum(whole)) for s in sums])


@given(st.lists(numbers, min_size=2, max_size=8), st.floats(1e-6, 1e6))
def test_it_knows_no_order_no_unit_and_no_side(differences: list[float], scale: float) -> None:
    p = sign_flip_p(differences)
    assert sign_flip_p(sorted(differences)) == p
    assert sign_flip_p([scale * d for d in differences]) == p
    assert sign_flip_p([-d for d in differences]) == p


def test_many_pairs_agree_with_scipys_permutation_test() -> None:
    d = np.random.default_rng(4).normal(0.3, size=40)
    scipys = stats.permutation_test(
        (d, np.zeros(40)),
        lambda x, y: np.mean(x - y),
        permutation_type="samples",
        n_resamples=20_000,
        vectorized=False,
        rng=0,
    )
    assert sign_flip_p(d) == pytest.approx(scipys.pvalue, abs=0.01)
    assert sign_flip_p([1.0] * 40) == 1 / 100_001


def test_a_p_that_does_not_exist_is_none() -> None:
    assert sign_flip_p([]) is None
    assert sign_flip_p([1, math.inf]) is None
    assert wilcoxon_p([], []) is None
    assert equivalent([math.inf, 1], 0.1) is None


def test_a_diverged_run_is_worse_than_any_other_and_two_are_a_tie() -> None:
    inf = math.inf
    assert paired_differences([inf, 3, inf, 1], [inf, 1, 1, inf]).tolist() == [0, 2, inf, -inf]
    assert paired_differences([-inf, 3, -inf, 1], [-inf, 1, 1, -inf]).tolist() == [0, 2, -inf, inf]


def test_wilcoxon_gives_a_diverged_run_the_largest_rank() -> None:
    zeros = [0.0] * 7
    largest = [1.0, 2.0, -3.0, 4.0, 5.0, 6.0, 100.0]
    assert wilcoxon_p([*largest[:-1], math.inf], zeros) == stats.wilcoxon(largest).pvalue
    assert wilcoxon_p(zeros, [*largest[:-1], math.inf]) == stats.wilcoxon([-1, -2, 3, -4, -5, -6, -100]).pvalue
    assert wilcoxon_p([1.0, 2.0, math.inf], [1.0, 2.0, math.inf]) == 1
    assert wilcoxon_p([math.inf] * 6, [1.0] * 6) == stats.wilcoxon([1] * 6).pvalue


def test_ranks_are_shared_by_differences_that_rounding_keeps_apart() -> None:
    a, b = [0.3, 0.7, 0.9, 0.5, 0.4, 0.1, 0.8], [0.2, 0.6, 0.8, 0.4, 0.5, 0.3, 0.5]
    assert wilcoxon_p(a, b) == stats.wilcoxon([1, 1, 1, 1, -1, -2, 3]).pvalue


def test_wilcoxon_is_scipys_and_takes_equal_pairs() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=12), rng.normal(0.5, size=12)
    assert wilcoxon_p(list(a), list(b)) == pytest.approx(stats.wilcoxon(a, b).pvalue)
    assert wilcoxon_p([1.0, 2.0], [1.0, 2.0]) == 1
    assert wilcoxon_p([1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 1, 1, 1]) == 2 / 64


@pytest.mark.parametrize(
    ("differences", "patterns", "extreme"),
    [
        (range(1, 16), 15, 2),
        ((1, 1, *range(2, 15)), 15, 2),  # ties
        (range(15), 14, 2),  # an equal pair
        ((*[0] * 10, 1, 2, 3, 4, 5), 5, 2),
        ((*[1] * 7, *[0] * 8), 7, 2),
        ((*[0] * 14, 1), 1, 2),
    ],
)
def test_wilcoxon_is_exact_with_ties_and_equal_pairs(differences: Any, patterns: int, extreme: int) -> None:
    zeros = [0.0] * len(differences)
    assert wilcoxon_p([float(d) for d in differences], zeros) == extreme / 2**patterns


def test_holm_by_hand() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.04, None, 0.09, 0.09], nan_ok=False)
    assert holm([0.01, 1.0, 0.04, 0.03]) == pytest.approx([0.04, 1.0, 0.09, 0.09])  # a missing p is a 1
    assert holm([None, None]) == [None, None]
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_p_and_bonferroni_and_keeps_the_order(ps: list[float]) -> None:
    corrected = [c for c in holm(ps) if c is not None]
    assert all(p <= c <= min(1, len(ps) * p) + 1e-12 for p, c in zip(ps, corrected, strict=True))
    order = np.argsort(ps, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()


def test_equivalence_needs_small_differences_on_both_sides() -> None:
    small = [0.01, -0.02, 0.0, 0.015, -0.01, 0.005]
    assert equivalent(small, 0.1) == 1 / 64
    assert equivalent([d + 0.2 for d in small], 0.1) == 1
    assert equivalent([d - 0.2 for d in small], 0.1) == 1


@pytest.mark.parametrize("hypotheses", [1, 2, 12, 50])
def test_the_pairs_needed_are_the_fewest(hypotheses: int) -> None:
    n = pairs_needed(hypotheses)
    assert hypotheses * 2 / 2**n < 0.05 <= hypotheses * 2 / 2 ** (n - 1)
    assert pairs_needed(1) == 6


def test_one_huge_value_leaves_the_other_differences_as_they_are() -> None:
    """A loss that has exploded but is not yet infinite is one pair of nine."""
    before, after = [0.1] * 9, [0.1 + 0.01 * i for i in range(1, 9)] + [5e6]
    assert wilcoxon_p(after, before) == 2 / 2**9
    assert sign_flip_p(np.subtract(after, before), tie=rounding(after, before)) == 2 / 2**9
    found = paired_difference(after, before)
    assert found.p == 2 / 2**9
    assert found.low == pytest.approx(0.0275)
