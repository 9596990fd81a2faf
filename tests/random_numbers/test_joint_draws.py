"""Numbers drawn at once for several sites are, bit for bit, those that each site draws alone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from actlab import activations
from actlab.networks import Dropout
from actlab.random import hashing, joint_draws, masks
from actlab.random.masks import Source, uniform
from actlab.random.streams import Stream, Uniform, attach

SIZES = 8, 8, 8, 5, 8, 8  # of batches: a ragged one breaks what is expected of the next
RATES = torch.tensor([[0.1], [0.6]], dtype=torch.float64)  # of two runs


class Twice(nn.Module):
    """A user's own module, which asks twice for the numbers of a site and overwrites them."""

    def __init__(self) -> None:
        super().__init__()
        self.uniform = Uniform()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.uniform.draw(_twice, x) if self.training else x
        return x * y


def _twice(source: Source | None, x: Tensor) -> Tensor:
    return (uniform(source, x).mul_(2) - uniform(source, x)).to(x.dtype)


class Ladder(nn.Module):
    """Layers of two widths, one of which is called twice."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.last = nn.ModuleList(parts), Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return torch.cat([self.last(self.last(x)), x], -1)


PARTS: dict[str, Callable[[], list[nn.Module]]] = {
    "dropout": lambda: [Dropout(0.5), Dropout(0.2), Dropout(0.5), Dropout(0.0)],
    "a rate of each run": lambda: [Dropout(RATES), Dropout(RATES), Dropout(0.5)],
    "stochastic maps": lambda: [
        activations.create(n) for n in ("soi", "rrelu", "adaptive_dropout", "soi")
    ],
    "of a user": lambda: [Twice(), Dropout(0.5), Twice(), activations.create("soi")],
    "two widths": lambda: [
        *(part for width in (3, 7, 3, 7) for part in (Dropout(0.5), nn.LazyLinear(width))),
    ],
}


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of the words that sites hash."""
    shapes: list[torch.Size] = []
    plain = hashing.hash_words

    def counted(elements: Tensor, *keys: Any) -> Tensor:
        words = plain(elements, *keys)
        if elements.dim() == 1:
            shapes.append(words.shape)
        return words

    for module in (joint_draws, masks):
        monkeypatch.setattr(module, "hash_words", counted)
    return shapes


def steps(
    network: nn.Module, stream: Stream, dtype: torch.dtype = torch.float32, **part: Any
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield outputs and gradients of training steps, each with the middle of an evaluation."""
    stream.steps = True
    for number, size in enumerate(SIZES):
        x = (
            torch.linspace(-2, 2, len(stream.seeds) * size * 7)
            .view(-1, size, 7)
            .to(dtype)
            .requires_grad_()
        )
        stream.move(0, number, **part)
        network.eval()(x)
        for layer in network.modules():
            if isinstance(layer, Dropout) and number > 3:
                # Without probability a layer draws nothing
                layer.set_scale(0.0 if number == 4 else 0.5)
        output = network.train()(x)
        (output * output.detach().cos()).sum().backward()
        assert x.grad is not None
        yield output.detach(), x.grad


def all_steps(parts: str, seeds: tuple[int, ...], **options: Any) -> list[tuple[Tensor, Tensor]]:
    network, stream = Ladder(*PARTS[parts]()), Stream(seeds)
    network.eval()(torch.ones(len(seeds), 8, 7))
    for number, parameter in enumerate(network.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    attach(network.to(options.get("dtype")), stream)
    return list(steps(network, stream, **options))


def check_alike(
    parts: str, seeds: tuple[int, ...], hashed: list[torch.Size], **options: Any
) -> None:
    together, calls = all_steps(parts, seeds, **options), hashed.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_draws, "_are_possible", lambda: False)
        hashed.clear()
        alone = all_steps(parts, seeds, **options)
    assert len(calls) < len(hashed)
    for one, other in zip(together, alone, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str
)
@pytest.mark.parametrize("parts", PARTS)
def test_sites_draw_together_what_they_draw_alone(parts, dtype, hashed):
    check_alike(parts, (3, 9), hashed, dtype=dtype)


@pytest.mark.parametrize("parts", sorted({*PARTS} - {"a rate of each run"}))
def test_a_run_without_a_stack_does_too(parts, hashed):
    check_alike(parts, (3,), hashed)


@pytest.mark.parametrize("part", [{"slice_": 2}, {"slice_": 1, "part": (8, 5)}], ids=str)
def test_a_device_does_too(part, hashed):
    check_alike("dropout", (3, 9), hashed, **part)


@pytest.mark.parametrize("most", [1, 250, 400])
def test_a_limit_of_numbers_only_splits_the_draws(most, hashed, monkeypatch):
    right = all_steps("dropout", (3, 9))
    monkeypatch.setattr(joint_draws, "MOST_AT_ONCE", most)
    hashed.clear()
    found = all_steps("dropout", (3, 9))
    assert max(shape.numel() for shape in hashed) <= max(most, 2 * 8 * 7)
    for one, other in zip(right, found, strict=True):
        assert all(map(torch.equal, one, other))


def drawn_masks(network: nn.Module, stream: Stream, number: int) -> Tensor:
    stream.move(0, number)
    result: Tensor = network(torch.ones(2, 4, 6))
    return result


def test_a_site_that_draws_another_number_does_not_get_what_was_expected():
    network, stream = nn.Sequential(Dropout(0.5), Dropout(0.5)), Stream((3, 9))
    attach(network, stream)
    stream.steps = True
    for number, size in enumerate((6, 6, 5, 4, 6)):
        stream.move(0, number)
        found = [layer(torch.ones(2, 4, n)) for layer, n in zip(network, (6, size), strict=True)]
        stream.move(0, number)
        alone = network[1](torch.ones(2, 4, size))
        assert torch.equal(found[1], alone)
        stream.move(0, number)
        for layer, n in zip(network, (6, size), strict=True):
            layer(torch.ones(2, 4, n))


def test_two_sources_of_one_site_draw_equal_numbers():
    network, stream = nn.Sequential(Dropout(0.5), Dropout(0.5), Dropout(0.5)), Stream((3, 9))
    attach(network, stream)
    network[2].uniform.site = 0
    stream.steps = True
    for number in range(3):
        stream.move(0, number)
        first, other, last = (layer(torch.ones(2, 4, 6)) for layer in network)
        assert torch.equal(first, last)
        assert not torch.equal(first, other)


@pytest.mark.parametrize("context", [torch.inference_mode, None], ids=["inference", "transform"])
def test_what_a_transformed_part_draws_serves_no_other(context, hashed):
    """Its tensors are of no use outside, and its draws count."""
    network, stream = nn.Sequential(Dropout(0.5), Dropout(0.5), Dropout(0.5)), Stream((3, 9))
    attach(network, stream)
    stream.steps = True
    for number in range(3):
        x = torch.ones(2, 4, 6, requires_grad=True)
        stream.move(0, number)
        if context is None:
            torch.func.grad(lambda x: network[0](x).sum())(x)
        else:
            with context():
                network[0](x)
        network[1:](x).sum().backward()
        again = network[0](x)
    assert hashed[-3:] == [(2, 24), (2, 2, 24), (2, 24)]
    assert not torch.equal(again, drawn_masks(network[:1], stream, number))
