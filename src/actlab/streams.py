"""Random streams: what a run draws is a function of (run seed, purpose, position), never of a global state.

Initial weights, data order, masks and noise each have a stream of their own, so a run draws the same numbers
alone, as a member of a stack, on any device and after any resume.

Two sources:

- `generator`: a fresh ``torch.Generator`` for one purpose and position (initial weights, a data order).
- `Uniform`: uniform numbers for the masks of one site of a network. By default they come from torch's own
  generator; once a `Stream` is attached they are a counter-based hash of (seed, site, step, element), which
  costs a third of ``torch.rand`` and serves all R members of a stack in one call.

Shapes: ``R`` runs in a stack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def seed_for(seed: int, purpose: str, *position: int) -> int:
    """A 63-bit seed for one ``purpose`` ("init", "order", …) and ``position`` (epoch, step, …) of a run."""
    text = ":".join((str(seed), purpose, *map(str, position)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *position: int) -> torch.Generator:
    """A fresh CPU generator for one purpose and position of a run."""
    return torch.Generator().manual_seed(seed_for(seed, purpose, *position))


class Stream:
    """The position in the random numbers of one run, or of the R runs of a stack.

    One object is shared by all `Uniform` sites of a network; the task moves it before each training step.

    Args:
        seeds: the run's seed, or the R seeds of a stack; then tensors at the sites lead with the run axis.
    """

    def __init__(self, seeds: int | Sequence[int]) -> None:
        self.stacked = not isinstance(seeds, int)
        self.seeds: tuple[int, ...] = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        self.position: tuple[int, ...] = (0,)
        self.first_element = 0

    def move(self, *position: int, first_element: int = 0) -> None:
        """Go to a position, normally (epoch, batch of the epoch).

        Args:
            position: any whole numbers; equal positions draw equal numbers.
            first_element: index of the first element here within the global batch, as a fraction of sites'
                own element count: the rank, when every rank holds an equal contiguous slice.
        """
        self.position = position
        self.first_element = first_element

    def seed_global(self, *site: int) -> None:
        """Seed torch's global generator for the current position: units that know no `Uniform` draw from it."""
        torch.manual_seed(seed_for(self.seeds[0], "unit", *site, *self.position, self.first_element))

    def keys(self, site: int, device: torch.device) -> Tensor:
        """Two int32 key words per run, shape (2, R), for one site at the current position."""
        words = [seed_for(seed, "mask", site, *self.position) for seed in self.seeds]
        flat = torch.tensor(words, dtype=torch.int64).view(torch.int32).view(-1, 2)
        return flat.t().contiguous().to(device)


class Uniform(nn.Module):
    """A source of uniform numbers for one site of a network; has no parameters and no state dict.

    A stochastic unit holds one and calls it with its input: ``u = self.uniform(x)``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream: Stream | None = None
        self.site = 0

    def forward(self, x: Tensor) -> Tensor:
        """Uniform float32 numbers in [0, 1), of the shape and on the device of ``x``.

        With a stream they are multiples of 2⁻²⁴, so a number is below ``p`` with probability ``p`` to 6e-8.
        """
        if self.stream is None:
            return torch.rand_like(x, dtype=torch.float32)
        return (self.bits(x) >> 8 & 0xFFFFFF).to(torch.float32).mul_(2.0**-24)

    def bits(self, x: Tensor) -> Tensor:
        """Uniform int32 words over the full range, of the shape and on the device of ``x``."""
        if self.stream is None:
            return torch.randint(-(2**31), 2**31, x.shape, dtype=torch.int32, device=x.device)
        members = len(self.stream.seeds)
        per_member = x.numel() // members
        first = self.stream.first_element * per_member
        elements = torch.arange(first, first + per_member, dtype=torch.int32, device=x.device)
        key = self.stream.keys(self.site, x.device)
        return hash_words(elements, key[0].unsqueeze(1), key[1].unsqueeze(1)).view(x.shape)


def hash_words(elements: Tensor, key: Tensor, second_key: Tensor) -> Tensor:
    """A keyed hash of 32-bit words with full avalanche, in plain int32 tensor operations.

    Two rounds of multiply and xor-shift (constants of Chris Wellons' ``lowbias32``), each opened by a key
    word, so that the sequences of two keys are not shifts of each other.

    Args:
        elements: int32 counters, shape (N,).
        key: int32, broadcasts against ``elements``.
        second_key: likewise.

    Returns:
        int32 words, uniform over the full range; shape of the broadcast.
    """
    h = elements ^ key
    h.bitwise_xor_((h >> 16).bitwise_and_(0xFFFF))
    h.mul_(0x7FEB352D)
    h.bitwise_xor_(second_key)
    h.bitwise_xor_((h >> 15).bitwise_and_(0x1FFFF))
    h.mul_(-0x7B935975)  # 0x846CA68B as a signed word
    h.bitwise_xor_((h >> 16).bitwise_and_(0xFFFF))
    return h


def attach(network: nn.Module, stream: Stream) -> int:
    """Number the `Uniform` sites of a network in module order and bind them to ``stream``; returns how many."""
    sites = [module for module in network.modules() if isinstance(module, Uniform)]
    for number, uniform in enumerate(sites):
        uniform.stream, uniform.site = stream, number
    return len(sites)


class SeedGlobal:
    """A forward pre-hook for a foreign random unit: seeds torch's generator for this site before each draw.

    So a unit that calls ``torch.rand`` or ``F.dropout`` draws the same alone, in a stack and after a resume.
    """

    def __init__(self, stream: Stream, site: int) -> None:
        self.stream, self.site = stream, site

    def __call__(self, module: nn.Module, args: tuple[object, ...]) -> None:
        """Seed, in training mode."""
        if module.training:
            self.stream.seed_global(self.site)
