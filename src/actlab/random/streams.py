"""Random streams: what a run draws is a function of (run seed, purpose, position), never of a global state.

Initial weights, data order, masks and noise each have a stream of their own, so a run draws the same numbers
alone, as a member of a stack, on any device and after any resume.

Two sources here, and a third in `actlab.random.positions`, for the samples of a batch:

- `generator`: a fresh ``torch.Generator`` for one purpose and position (initial weights, a data order).
- `Uniform`: uniform numbers for the masks of one site of a network. By default they come from torch's own
  generator; once a `Stream` is attached they are a counter-based hash of (seed, site, step, element), which
  serves all R members of a stack in one call and costs what ``torch.rand`` does, a tenth after `compile_masks`.

Shapes: ``R`` runs in a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from actlab.random.hashing import hash_words, key_words, seed_for, to_unit_interval
from actlab.random.seeding import Calls, SeedGlobal

# Element numbers (N,) and the two keys (R, 1) of a site: what its uniform numbers are a function of.
Source = tuple[Tensor, Tensor, Tensor]


class Stream:
    """The position in the random numbers of one run, or of the R runs of a stack.

    One object is shared by all `Uniform` sites of a network; the task moves it before each training step.

    Args:
        seeds: the run's seed, or the R seeds of a stack; then tensors at the sites lead with the run axis.
    """

    def __init__(self, seeds: int | Sequence[int]) -> None:
        self.seeds: tuple[int, ...] = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        self.position: tuple[int, ...] = (0,)
        self.slice = 0
        self.moves = 0  # how often it was moved
        self.steps = False  # each move is a training step: a site that draws twice in it draws other numbers
        self.sites = 0
        self._base = key_words([seed_for(seed, "mask") for seed in self.seeds])
        self.keys = torch.empty(0)

    def reserve(self, sites: int, device: torch.device | str = "cpu") -> None:
        """Make room for the keys of some sites: `keys`, int32 ``(sites, 2, R, 1)``, rewritten by `move`."""
        self.sites = sites
        self.keys = torch.empty((sites, 2, len(self.seeds), 1), dtype=torch.int32, device=device)
        self.move(*self.position, slice_=self.slice)

    def move(self, *position: int, slice_: int = 0) -> None:
        """Go to a position, normally (epoch, batch of the epoch).

        Args:
            position: any whole numbers; equal positions draw equal numbers.
            slice_: which slice of the global batch this process holds, when every rank holds an equal one.
        """
        self.position, self.slice = position, slice_
        self.moves += 1
        if self.sites:
            here = key_words([seed_for(0, "position", *position)])
            sites = torch.arange(self.sites, dtype=torch.int32).view(-1, 1, 1)
            first, second = here[0], here[1]
            mixed = hash_words(hash_words(self._base, first, second) + sites, second, first)
            self.keys.copy_(hash_words(mixed, first, second).unsqueeze(-1))

    @property
    def step(self) -> int | None:
        """Number of the training step; None where moves are none."""
        return self.moves if self.steps else None

    def unit_seed(self, *site: int) -> int:
        """The seed of the global generators for this position: units that know no `Uniform` draw from them."""
        return seed_for(self.seeds[0], "unit", *site, *self.position, self.slice)

    def member(self, r: int) -> MemberStream:
        """The part of run ``r`` of a stack; it moves with the whole."""
        return MemberStream(self, r)


class MemberStream:
    """The part of one run in the `Stream` of a stack, for modules that are called member by member."""

    def __init__(self, whole: Stream, r: int) -> None:
        self.whole, self.r = whole, r
        self.seeds = (whole.seeds[r],)

    @property
    def slice(self) -> int:
        """Which slice of the global batch this process holds."""
        return self.whole.slice

    @property
    def step(self) -> int | None:
        """As of the whole."""
        return self.whole.step

    @property
    def sites(self) -> int:
        """Number of sites that have keys."""
        return self.whole.sites

    @property
    def keys(self) -> Tensor:
        """Those of this run, ``(sites, 2, 1, 1)``."""
        return self.whole.keys[:, :, self.r : self.r + 1].contiguous()

    def reserve(self, sites: int, device: torch.device | str = "cpu") -> None:
        """Make room for the keys of some sites, for all runs."""
        self.whole.reserve(sites, device)

    def unit_seed(self, *site: int) -> int:
        """The seed that the run alone has."""
        return seed_for(self.seeds[0], "unit", *site, *self.whole.position, self.whole.slice)


class Uniform(nn.Module):
    """A source of uniform numbers for one site of a network; has no parameters and no state dict.

    A stochastic unit holds one and calls it with its input: ``u = self.uniform(x)``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream: Stream | MemberStream | None = None
        self.site = 0
        self._calls = Calls()

    def forward(self, x: Tensor) -> Tensor:
        """Uniform float32 numbers in [0, 1), of the shape and on the device of ``x``; see `uniform`."""
        return cast(Tensor, self.draw(uniform, x))

    def keep(self, x: Tensor, p: float | Tensor) -> Tensor:
        """The mask of inverted dropout: 0 with probability ``p``, else 1 / (1 − p), like ``x``.

        Args:
            x: gives shape, dtype and device.
            p: drop probability, or one a run, float64 ``(R, 1)``.
        """
        if isinstance(p, Tensor):
            p = p.view(-1, *[1] * (x.dim() - 1))
        return cast(Tensor, self.draw(_keep, x, p))

    def draw(self, function: Callable[..., Any], x: Tensor, *args: Any) -> Any:
        """``function(source, x, *args)``, which draws from its source by `uniform`.

        Args:
            function: defined at module level, without side effects; `compile_masks` makes one pass of it.
            x: the input at this site.
            args: further arguments.
        """
        if self.stream is None:
            return function(None, x, *args)
        keys, first = self.position(x)
        elements = _elements(first, first + x.numel() // keys.shape[1], x.device)
        return fused(function)((elements, keys[0], keys[1]), x, *args)

    def position(self, x: Tensor) -> tuple[Tensor, int]:
        """What this site draws next: the keys, int32 ``(2, R, 1)``, and the number of a run's first element.

        Without a stream the keys are those of one run, drawn from torch's own generator.
        """
        if self.stream is None:
            words = torch.randint(-(2**31), 2**31, (2, 1, 1), device=x.device)
            return words.to(torch.int32), 0
        if self.site >= self.stream.sites or self.stream.keys.device != x.device:
            self.stream.reserve(max(self.site + 1, self.stream.sites), x.device)
        first = self.stream.slice * (x.numel() // len(self.stream.seeds))
        keys = self.stream.keys[self.site]
        if again := self._calls.count(self.stream):
            keys = hash_words(keys, torch.tensor(again, dtype=torch.int32, device=keys.device), keys)
        return keys, first


@lru_cache(maxsize=64)
def _elements(first: int, end: int, device: torch.device) -> Tensor:
    return torch.arange(first, end, dtype=torch.int32, device=device)


def uniform(source: Source | None, x: Tensor) -> Tensor:
    """Uniform float32 numbers in [0, 1), of the shape and on the device of ``x``.

    Args:
        source: element numbers ``(N,)`` and two keys ``(R, 1)``, which give multiples of 2⁻²⁴, so a number is
            below ``p`` with probability ``p`` to 6e-8. None is torch's own generator.
        x: shape ``(R, *)`` with N elements a run.
    """
    if source is None:
        return torch.rand_like(x, dtype=torch.float32)
    return to_unit_interval(hash_words(*source)).view(x.shape)


def _keep(source: Source | None, x: Tensor, p: float | Tensor) -> Tensor:
    threshold = p.to(torch.float32) if isinstance(p, Tensor) else p  # as torch compares with a plain number
    kept = (uniform(source, x) >= threshold).to(torch.promote_types(x.dtype, torch.float32))
    return kept.mul_(1 / (1 - p)).to(x.dtype)


_compiled: dict[Callable[..., Any], Callable[..., Any]] | None = None  # None: nothing is compiled


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as one pass over memory, once `compile_masks` was called; until then itself."""
    if _compiled is None:
        return function
    if function not in _compiled:
        _compiled[function] = torch.compile(function)
    return _compiled[function]


def compile_masks() -> str | None:
    """Let ``torch.compile`` fuse the functions that draw masks, for long runs; one line where it cannot.

    Uniform numbers and dropout masks stay the same to the bit; a stochastic unit compares them with a
    probability whose last bits may differ. On the CPU this needs a C++ compiler; without one the plain
    functions go on being used.
    """
    global _compiled
    if _compiled is not None:
        return None
    key = torch.zeros(1, 1, dtype=torch.int32)
    limit = torch._dynamo.config.recompile_limit  # shapes and parameters of units that a study may come to
    torch._dynamo.config.recompile_limit = max(64, limit)
    _compiled = {}
    try:
        fused(uniform)((torch.arange(4, dtype=torch.int32), key, key), torch.zeros(1, 4))
    except (RuntimeError, OSError) as error:
        _compiled, reason = None, str(error).strip().splitlines()[0]
        return f"masks are not compiled ({reason}): dropout and stochastic units run slower"
    return None


def attach(network: nn.Module, stream: Stream) -> int:
    """Number the `Uniform` sites of a network in module order and bind them to ``stream``; returns how many."""
    sites = [module for module in network.modules() if isinstance(module, Uniform)]
    for number, uniform in enumerate(sites):
        uniform.stream, uniform.site = stream, number
    stream.reserve(len(sites))
    return len(sites)


def attach_like(module: nn.Module, stream: Stream | MemberStream) -> None:
    """Bind everything random in a module to another stream, at the sites that it has."""
    for part in module.modules():
        if isinstance(part, Uniform):
            part.stream = stream
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, SeedGlobal):
                hook.stream = stream


def seeds_torch(module: nn.Module, recurse: bool = True) -> bool:
    """Whether torch's generator is seeded before a module, or one inside it, is called; see `SeedGlobal`."""
    parts = module.modules() if recurse else [module]
    return any(isinstance(hook, SeedGlobal) for part in parts for hook in part._forward_pre_hooks.values())
