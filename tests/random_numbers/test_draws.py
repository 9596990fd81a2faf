"""Random numbers of samples: uniform, independent across their keys, equal however batched.

The p-values here are of fixed keys, so nothing varies; thresholds are set for the number of tests
made.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from actlab.errors import ActlabError
from actlab.random import positions
from actlab.random.hashing import hash_words, seed_for
from actlab.random.positions import Position, integers_at, normal_at, uniform_at
from random_numbers.uniformity import (
    apart,
    assert_frequent,
    assert_independent,
    assert_no_shifts,
    assert_runs,
    assert_uncorrelated,
    assert_uniform,
)

SAMPLES, ELEMENTS = 250, 400
N = SAMPLES * ELEMENTS
SEEDS, PURPOSES, EPOCHS = (0, 1, 12345), ("noise", "flip"), (0, 1, 2, 199)
KEYS = list(itertools.product(SEEDS, PURPOSES, EPOCHS))
ALPHA = 1e-3 / len(KEYS)  # 0.1 % for all keys together

KINDS: dict[str, Callable[..., Tensor]] = {
    "uniform": uniform_at,
    "normal": normal_at,
    "integers": lambda position, purpose, shape=(): integers_at(position, purpose, 9, shape),
}


def position(
    index: Sequence[int] | Tensor, seeds: Sequence[int] = (3,), epoch: int = 0
) -> Position:
    return Position(tuple(seeds), epoch, torch.as_tensor(index))


def of_samples(
    seed: int, purpose: str, epoch: int, samples: int = SAMPLES, elements: int = ELEMENTS
) -> np.ndarray:
    here = position(torch.arange(samples), (seed,), epoch)
    return uniform_at(here, purpose, (elements,)).double().numpy()


@pytest.fixture(scope="module")
def numbers() -> np.ndarray:
    return np.stack([of_samples(*key) for key in KEYS])


def test_numbers_of_each_key_are_uniform(numbers):
    for u in numbers:
        assert_uniform(u.ravel(), ALPHA)


def test_neighbouring_elements_and_samples_are_independent(numbers):
    element_lags, sample_lags = (1, 2, 3, 8, 28, 100), (1, 2, 3, 16, 64, 125)
    alpha = ALPHA / len(element_lags + sample_lags)
    for u in numbers:
        for lag in element_lags:
            assert_independent(*apart(u.T, lag), alpha)
        for lag in sample_lags:
            assert_independent(*apart(u, lag), alpha)


def test_numbers_repeat_no_more_often_than_by_chance(numbers):
    """Equal pairs among the samples and elements of a key, Poisson with mean N²/2 ÷ 2²⁴."""
    mean = N * (N - 1) / 2 / 2**24
    for u in numbers:
        pairs = N - np.unique(u).size
        assert stats.poisson.cdf(pairs, mean) > ALPHA / 2
        assert stats.poisson.sf(pairs, mean) > ALPHA / 2


def test_seeds_purposes_and_epochs_are_independent(numbers):
    """At equal samples and elements."""
    assert_uncorrelated(numbers.reshape(len(KEYS), N), 1e-3)


def test_samples_are_no_shifts_of_each_other():
    assert_no_shifts(of_samples(5, "noise", 1, 40, 4096), 1e-3)


def over_samples() -> np.ndarray:
    return of_samples(7, "flip", 3, N, 1)


def over_epochs() -> np.ndarray:
    return np.concatenate([of_samples(7, "flip", epoch, 4, 1).T for epoch in range(2000)])


def over_seeds() -> np.ndarray:
    return (
        uniform_at(position(torch.arange(4).repeat(5000, 1), range(5000)), "flip").double().numpy()
    )


@pytest.mark.parametrize("draw", [over_samples, over_epochs, over_seeds])
def test_one_number_a_sample_is_uniform_over_what_it_is_drawn_for(draw):
    """As of a flip: over samples of an epoch, over epochs of a sample, over seeds of a sample."""
    u, lags = draw(), (1, 2, 3, 32, 128)
    alpha = 1e-3 / u.shape[1] / len(lags)
    for one in u.T:
        assert_uniform(one, alpha)
        for lag in lags:
            assert_independent(*apart(one, lag), alpha)
        assert_runs(one, alpha)


def test_a_number_is_a_hash_of_seed_purpose_epoch_sample_and_element():
    """By hand: two key words of the run, hashed with the sample in both orders, then elements."""
    low, high = np.array([seed_for(11, "noise", 4)], dtype=np.int64).view(np.int32).tolist()
    first, second = (torch.tensor(word, dtype=torch.int32) for word in (low, high))
    sample, element = torch.tensor(123, dtype=torch.int32), torch.tensor(17, dtype=torch.int32)
    key, second_key = hash_words(sample, first, second), hash_words(sample, second, first)
    word = int(hash_words(element, key, second_key)) & 0xFFFFFFFF
    here = position([55, 123], (11,), 4)
    assert uniform_at(here, "noise", (2, 3, 4))[1, 1, 1, 1].item() == (word >> 8) / 2**24
    assert integers_at(here, "noise", 1000, (2, 3, 4))[1, 1, 1, 1].item() == word * 1000 >> 32
    quantile = special.ndtri(((word >> 9) + 0.5) / 2**23)
    assert normal_at(here, "noise", (2, 3, 4))[1, 1, 1, 1].item() == pytest.approx(
        quantile, rel=1e-6
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5, 7)])
def test_a_sample_draws_the_same_in_every_batch(kind, shape):
    """Slices (ranks), permutations, batches of one, and members of a stack, to the bit."""
    draw = partial(KINDS[kind], purpose="noise", shape=shape)
    index = torch.randperm(1000)[:31]
    whole = draw(position(index))
    assert whole.shape == (31, *shape)
    order = torch.randperm(31)
    assert torch.equal(draw(position(index[order])), whole[order])
    for part, drawn in zip(index.tensor_split(3), whole.tensor_split(3), strict=True):
        assert torch.equal(draw(position(part)), drawn)
    assert torch.equal(draw(position(index[5:6]))[0], whole[5])

    seeds = (8, 3, 8, 2)
    stacked = torch.stack([index, index, index.flip(0), order])
    drawn = draw(position(stacked, seeds))
    assert drawn.shape == (4, 31, *shape)
    for member, seed in enumerate(seeds):
        assert torch.equal(drawn[member], draw(position(stacked[member], (seed,))))
    assert torch.equal(drawn[1], whole)
    assert not torch.equal(drawn[0], whole)
    assert torch.equal(draw(position(index[None]))[0], whole)  # a stack of one


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_depend_on_no_generator_and_follow_the_index_to_its_device(kind):
    here, state = position(torch.tensor([[4, 1], [2, 0]]), (5, 6)), torch.get_rng_state()
    before = KINDS[kind](here, "noise", (3,))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    moved = KINDS[kind](here._replace(index=here.index.to("meta")), "noise", (3,))
    assert (moved.device.type, moved.shape, moved.dtype) == ("meta", before.shape, before.dtype)
    assert torch.equal(KINDS[kind](here, "noise", (3,)), before)


def test_normal_numbers_are_normal():
    here = position(torch.arange(N), (21,), 5)
    z = normal_at(here, "noise", (4,)).double()
    for column in z.t().numpy():
        assert stats.kstest(column, "norm").pvalue > 1e-3 / 4
        assert abs(stats.zscore(column)).max() < 5.4
        assert_independent(*apart(stats.norm.cdf(column), 1), 1e-3 / 4)
    assert torch.isfinite(z).all()


def test_normal_numbers_are_finite_and_symmetric_at_the_ends(monkeypatch):
    """The extreme words stand for u = 2⁻²⁴ and 1 − 2⁻²⁴, the middle ones for ½ ∓ 2⁻²⁴."""
    words = [0, 511, -(2**31), 2**31 - 1, -1]
    monkeypatch.setattr(positions, "_words_at", lambda *_: torch.tensor(words, dtype=torch.int32))
    z = normal_at(position([0]), "noise").double().numpy()
    u = np.array([1, 1, 2**23 + 1, 2**23 - 1, 2**24 - 1]) / 2**24
    assert np.allclose(z, special.ndtri(u), rtol=1e-6)
    assert z[0] == -z[-1]
    assert z[2] == -z[3]


@pytest.mark.parametrize("high", [1, 2, 9, 1000])
def test_integers_are_equally_likely(high):
    n = integers_at(position(torch.arange(N), (21,), 5), "crop", high, (2,))
    assert n.dtype == torch.int64
    for column in n.t().numpy():
        counts = np.bincount(column, minlength=high)
        assert counts.size == high
        if high > 1:
            assert_frequent(counts, 1e-3 / 8)


def test_integers_reach_both_ends(monkeypatch):
    for high in (1, 2, 10, 2**31):
        monkeypatch.setattr(
            positions, "_words_at", lambda *_: torch.tensor([0, -1], dtype=torch.int32)
        )
        assert integers_at(position([0]), "crop", high).tolist() == [0, high - 1]


@pytest.mark.parametrize("high", [0, -3, 2**31 + 1])
def test_impossible_integers_are_refused(high):
    with pytest.raises(ActlabError, match=f"whole number from 1 to 2147483648, got {high}"):
        integers_at(position([0]), "crop", high)


@pytest.mark.parametrize(
    ("seeds", "index"), [((1, 2), [0, 1]), ((1,), [[0], [1]]), ((1, 2, 3), [[0], [1]]), ((), [0])]
)
def test_seeds_must_be_as_many_as_runs(seeds, index):
    with pytest.raises(ActlabError, match=f"{len(seeds)} seeds"):
        uniform_at(position(index, seeds), "noise")
