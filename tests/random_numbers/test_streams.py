"""The random streams: uniform, independent across their keys, and equal alone or in a stack.

The p-values here are of fixed keys, so nothing varies; thresholds are set for the number of tests
made.
"""

import gc
import itertools
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from actlab import activations
from actlab.errors import ActlabError
from actlab.random import masks
from actlab.random.hashing import generator, hash_words, seed_for, to_unit_interval
from actlab.random.seeding import seed_generators
from actlab.random.streams import Stream, Uniform, attach
from random_numbers.uniformity import (
    apart,
    assert_independent,
    assert_no_shifts,
    assert_runs,
    assert_uncorrelated,
    assert_uniform,
)

N = 100_000
SEEDS, SITES, STEPS = (0, 1, 12345), (0, 7), ((0,), (1,), (0, 1), (3, 250))
KEYS = list(itertools.product(SEEDS, SITES, STEPS))
ALPHA = 1e-3 / len(KEYS)  # 0.1 % for all keys together


def uniforms(seed: int, site: int, position: tuple[int, ...], n: int = N) -> np.ndarray:
    uniform = Uniform()
    uniform.stream, uniform.site = Stream(seed), site
    uniform.stream.move(*position)
    return uniform(torch.empty(n)).double().numpy()


@pytest.fixture(scope="module")
def sequences() -> np.ndarray:
    return np.stack([uniforms(*key) for key in KEYS])


def test_each_sequence_is_uniform(sequences):
    for u in sequences:
        assert_uniform(u, ALPHA)
        assert_runs(u, ALPHA)


def test_neighbouring_elements_are_independent(sequences):
    """At lags of neighbours, rows and images."""
    lags = (1, 2, 3, 8, 28, 128, 1024, 4096)
    for u, lag in itertools.product(sequences, lags):
        assert_independent(*apart(u, lag), ALPHA / len(lags))


def test_seeds_sites_and_steps_are_independent(sequences):
    assert_uncorrelated(sequences, 1e-3)
    assert_no_shifts(sequences[::2], 1e-3)


def test_equal_elements_of_many_seeds_are_uniform():
    """A mask averages over runs too: element i of seeds 0, 1, 2, … is a uniform sequence."""
    uniform = Uniform()
    uniform.stream = Stream(range(5000))
    u = uniform(torch.empty(5000, 4)).double().numpy()
    for element in u.T:
        assert stats.kstest(element, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(element[:-1], element[1:])[0, 1]) < 4 / np.sqrt(5000)


def test_hash_avalanches():
    """Flipping any bit of the element or of the first key flips each output bit half of the time.

    The second key enters half-way and need only part sequences: on average its bits flip half of
    the output.
    """
    n = 20_000
    words = torch.randint(
        -(2**31), 2**31, (3, n), generator=torch.Generator().manual_seed(0), dtype=torch.int32
    )
    before = hash_words(*words)
    bits = torch.arange(32, dtype=torch.int32)
    flips = torch.empty(3, 32, 32, dtype=torch.float64)  # (word, input bit, output bit)
    for word, bit in itertools.product(range(3), range(32)):
        changed = words.clone()
        changed[word] ^= torch.tensor(1, dtype=torch.int32) << bit
        flips[word, bit] = (
            ((before ^ hash_words(*changed)).unsqueeze(1) >> bits & 1).double().mean(0)
        )
    assert (flips[:2] - 0.5).abs().max() < 0.02
    assert (flips[2].mean() - 0.5).abs() < 0.06


def test_hash_matches_plain_integers():
    def plain(element: int, key: int, second: int) -> int:
        h = (element ^ key) & 0xFFFFFFFF
        h ^= h >> 16
        h = h * 0x7FEB352D & 0xFFFFFFFF
        h ^= second & 0xFFFFFFFF
        h ^= h >> 15
        h = h * 0x846CA68B & 0xFFFFFFFF
        return h ^ h >> 16

    words = torch.randint(
        -(2**31), 2**31, (3, 500), generator=torch.Generator().manual_seed(1), dtype=torch.int32
    )
    expected = [plain(*column) for column in words.t().tolist()]
    assert [h & 0xFFFFFFFF for h in hash_words(*words).tolist()] == expected


class Sites(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Uniform(), Uniform()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.second(x)


def test_a_stack_draws_what_each_run_draws_alone():
    seeds = (3, 1, 4, 15)
    stacked, alone = Sites(), Sites()
    stream = Stream(seeds)
    assert attach(stacked, stream) == 2
    for position in ((0, 0), (0, 1), (2, 7)):
        stream.move(*position)
        together = stacked(torch.empty(4, 6, 5))
        for member, seed in enumerate(seeds):
            own = Stream(seed)
            own.move(*position)
            attach(alone, own)
            for whole, part in zip(together, alone(torch.empty(6, 5)), strict=True):
                assert torch.equal(whole[member], part)
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("seeds", [7, (7, 8)])
def test_slices_of_a_batch_agree_with_the_whole(seeds):
    lead = () if isinstance(seeds, int) else (len(seeds),)
    uniform = Uniform()
    uniform.stream = stream = Stream(seeds)
    stream.move(1, 2)
    whole = uniform(torch.empty(*lead, 12, 5))
    for rank in range(3):
        stream.move(1, 2, slice_=rank)
        part = uniform(torch.empty(*lead, 4, 5))
        assert torch.equal(part, whole[..., 4 * rank : 4 * (rank + 1), :])


def test_the_keys_follow_the_input_to_its_device():
    uniform = Uniform()
    uniform.stream = Stream((5, 6))
    uniform.stream.reserve(3)
    x = torch.empty(2, 10)
    before = uniform(x)
    assert uniform(x.to("meta")).device.type == "meta"
    assert uniform.keep(x.to("meta"), 0.5).device.type == "meta"
    assert uniform.stream.sites == 3
    assert torch.equal(uniform(x), before)


def test_without_a_stream_torch_draws():
    uniform = Uniform()
    x = torch.empty(3, 4, dtype=torch.float16)
    torch.manual_seed(0)
    u = uniform(x)
    assert (u.dtype, u.shape) == (torch.float32, x.shape)
    torch.manual_seed(0)
    assert torch.equal(u, torch.rand(3, 4))
    assert not uniform.state_dict()
    assert not list(uniform.parameters())


def test_seeds_and_generators():
    positions = ((), (0,), (1,), (0, 1), (2, 5), (25,))
    seeds = {seed_for(s, p, *q) for s in range(20) for p in ("init", "order") for q in positions}
    assert len(seeds) == 240
    assert all(0 <= seed < 2**63 for seed in seeds)
    draw = torch.rand(4, generator=generator(1, "init"))
    assert torch.equal(torch.rand(4, generator=generator(1, "init")), draw)
    assert not torch.equal(torch.rand(4, generator=generator(1, "order")), draw)


def test_keep_is_the_mask_of_inverted_dropout():
    uniform = Uniform()
    uniform.stream = Stream((5, 6))
    x = torch.empty(2, 40, 50)
    u = uniform(x)
    assert torch.equal(uniform.keep(x, 0.25), (u >= 0.25) * (1 / 0.75))
    p = torch.tensor([[0.5], [0.9]])
    assert torch.allclose(uniform.keep(x, p), (u >= p.unsqueeze(-1)) * (1 / (1 - p.unsqueeze(-1))))


def test_compiled_masks_are_the_same_to_the_bit(monkeypatch):
    uniform = Uniform()
    uniform.stream = Stream((5, 6, 7))
    x = torch.empty(3, 17, 9)
    plain = uniform(x), uniform.keep(x, 0.3)
    monkeypatch.setattr(masks, "_compiled", None)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    masks.compile_masks()
    assert torch.equal(uniform(x), plain[0])
    assert torch.equal(uniform.keep(x, 0.3), plain[1])


def held_elements() -> int:
    """The int32 elements of all living tensors, each storage once."""
    living = (o for o in gc.get_objects() if type(o) is Tensor and o.dtype == torch.int32)
    return (
        sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in living}.values())
        // 4
    )


def test_batches_of_500_sizes_hold_the_counter_of_the_largest():
    uniform = Uniform()
    uniform.stream = Stream(3)
    sizes = torch.randperm(500, generator=torch.Generator().manual_seed(0)) + 20_000
    before = held_elements()
    for n in sizes.tolist():
        uniform.keep(torch.empty(n, 3), 0.5)
    assert held_elements() - before < 3 * 21_000


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_are_the_same_before_and_after_larger_batches(monkeypatch, compiled, rank):
    """In any order of sizes; a compiled function is compiled for the first size, then for all."""
    uniform, graphs = Uniform(), []
    uniform.stream = stream = Stream((5, 6))
    stream.reserve(1)
    stream.move(1, 2, slice_=rank)
    sizes = (50, 7, 20_000, 50, 8, 30_000, 7, 20_000)
    monkeypatch.setattr(masks, "counters", {})
    key, second = stream.keys[0]
    expected = [
        hash_words(torch.arange(rank * n, (rank + 1) * n, dtype=torch.int32), key, second)
        for n in sizes
    ]

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counting))
    monkeypatch.setattr(masks, "_compiled", {} if compiled else None)
    torch.compiler.reset()
    for n, words in zip(sizes, expected, strict=True):
        assert torch.equal(uniform(torch.empty(2, n)), to_unit_interval(words))
    assert len(graphs) == 2 * compiled


def test_without_a_compiler_the_plain_masks_stay(monkeypatch, capsys):
    """Nothing is compiled before the first draw."""
    uniform, calls = Uniform(), []
    uniform.stream = Stream((5, 6, 7))
    x = torch.empty(3, 17, 9)
    plain = uniform(x)

    def broken(*_: object) -> None:
        calls.append(1)
        raise RuntimeError("No working C++ compiler found\nand more")

    monkeypatch.setattr(torch, "compile", lambda function: broken)
    monkeypatch.setattr(masks, "_compiled", None)
    masks.compile_masks()
    assert not calls
    assert torch.equal(uniform(x), plain)
    assert torch.equal(uniform.keep(x, 0.3), (plain >= 0.3) * (1 / 0.7))
    out = capsys.readouterr().out
    assert out.startswith("masks are not compiled (No working C++ compiler found): dropout and")
    assert (len(calls), out.count("\n")) == (1, 1)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_layer_that_draws_is_not_computed_again_in_the_backward_pass(reentrant):
    """The second pass would draw other numbers, and the gradient would be of another mask."""
    network, stream = (
        nn.Sequential(nn.Linear(4, 4), activations.create("soi"), nn.Linear(4, 1)),
        Stream(0),
    )
    attach(network, stream)
    stream.steps = True
    stream.move(0, 0)
    output = checkpoint(
        network.train(), torch.ones(8, 4, requires_grad=True), use_reentrant=reentrant
    )
    with pytest.raises(ActlabError, match="layers with stochastic activations"):
        output.sum().backward()


def test_the_global_generators_are_seeded_as_by_their_own_functions():
    seed_generators(2**40 + 7)
    found = torch.rand(3), np.random.rand(), random.random()
    torch.manual_seed(2**40 + 7)
    np.random.seed((2**40 + 7) % 2**32)
    random.seed(2**40 + 7)
    assert found[0].equal(torch.rand(3))
    assert found[1:] == (np.random.rand(), random.random())
