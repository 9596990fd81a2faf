"""Medians, intervals and tests against scipy and numbers worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from actlab.analysis.differences import better
from actlab.analysis.statistics import (
    holm,
    median_band,
    median_interval,
    on_grid,
    pairs_needed,
    runs_needed,
    sampling_error,
)


def test_few_values_give_their_range():
    assert median_interval([3.0, 1.0, 2.0, 9.0, 5.0]) == (1.0, 9.0, "range", 1 - 2 / 32)
    assert median_interval([3.0]) == (3.0, 3.0, "range", 0.0)


def test_the_interval_covers_the_median_as_often_as_it_says_and_at_least_95_percent():
    for n in range(6, 21):
        # skewed: its median is log 2
        draws = np.random.default_rng(n).exponential(size=(n, 20_000))
        band = median_band(draws)
        covered = np.mean((band.low <= math.log(2)) & (math.log(2) <= band.high))
        assert band.coverage >= 0.95
        # 4 standard errors of the simulation
        assert covered == pytest.approx(band.coverage, abs=0.006)
        assert covered > 0.945


def test_the_interval_is_scipys_by_the_binomial_quantile():
    for n in range(6, 21):
        found: Any = stats.quantile_test(list(range(1, n + 1)), p=0.5).confidence_interval(0.95)
        interval = median_interval(range(1, n + 1))
        k = int(interval.low)
        assert (interval.low, interval.high) == pytest.approx(tuple(found))
        assert interval.coverage == pytest.approx(1 - 2 * stats.binom.cdf(k - 1, n, 0.5))
        assert 1 - 2 * stats.binom.cdf(k, n, 0.5) < 0.95  # one further in would be too narrow


def test_a_diverged_run_is_the_worst_value():
    assert median_interval([1.0, 2.0, math.inf])[:3] == (1.0, math.inf, "range")
    assert median_interval([1, 2, 3, 4, 5, 6, math.inf])[:2] == (1, math.inf)
    assert median_interval([*range(8), math.inf])[:2] == (1, 7)
    assert median_interval([math.inf] * 7)[:3] == (math.inf, math.inf, "interval")


def test_a_band_is_an_interval_at_each_place():
    values = np.random.default_rng(3).normal(size=(7, 4))
    band = median_band(values)
    singly = [median_interval(column) for column in values.T]
    assert list(zip(band.low, band.high, strict=True)) == [s[:2] for s in singly]
    assert band.median == pytest.approx(np.median(values, axis=0))


def test_holm_by_hand():
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.04, None, 0.09, 0.09], nan_ok=False)
    # A missing p is a 1
    assert holm([0.01, 1.0, 0.04, 0.03]) == pytest.approx([0.04, 1.0, 0.09, 0.09])
    assert holm([None, None]) == [None, None]
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_p_and_bonferroni_and_keeps_the_order(ps):
    corrected = [c for c in holm(ps) if c is not None]
    assert all(p <= c <= min(1, len(ps) * p) + 1e-12 for p, c in zip(ps, corrected, strict=True))
    order = np.argsort(ps, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()


def test_the_pairs_needed_are_the_fewest():
    for hypotheses in (1, 2, 12, 50):
        n = pairs_needed(hypotheses)
        assert hypotheses * 2 / 2**n < 0.05 <= hypotheses * 2 / 2 ** (n - 1)
        assert pairs_needed(1) == 6


def test_the_runs_needed_are_the_fewest_whose_complete_separation_survives_the_correction():
    found = set()
    for hypotheses in (1, 2, 23, 24, 85, 86, 300):
        n = runs_needed(hypotheses)
        found.add(n)
        low = [float(i) for i in range(n)]
        assert hypotheses * better(low, [n + i for i in low]).p < 0.05
        if n > 6:
            fewer = low[1:]
            assert hypotheses * better(fewer, [n + i for i in fewer]).p >= 0.05
        assert n <= pairs_needed(hypotheses)
    assert found == {6, 7, 8}


def test_a_share_in_float32_is_read_as_its_count():
    for of in (1_000, 7_152, 10_000, 50_000):
        for count in {0, 1, 3, of // 7, of // 2, of - 1, of}:
            assert on_grid(float(np.float32(count / of)), of) == count / of
        assert on_grid(0.5 + 0.3 / of, of) == 0.5 + 0.3 / of  # no share of so many
        assert on_grid(math.inf, of) == math.inf
        assert on_grid(0.123456789, None) == 0.123456789


def test_the_sampling_error_of_a_share():
    assert sampling_error(0.02, 10_000) == pytest.approx(0.0014)
    assert [sampling_error(share, n) for share, n in ((None, 10), (0.1, None), (2.3, 10))] == [
        None
    ] * 3
