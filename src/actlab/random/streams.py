"""Random streams: the numbers of a run depend on (run seed, purpose, position), never on a global state.

A run draws the same numbers alone, as a member of a stack of ``R`` runs, on any device and after any resume.
With a `Stream` attached, the numbers of a site are a counter-based hash of (seed, site, step, element); one
call serves all R runs and costs as much as ``torch.rand``, or a tenth of that after `compile_masks`. In a
training step that is not compiled, several sites draw their numbers at once (`Ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from actlab.errors import ActlabError
from actlab.random.hashing import hash_words, key_words, seed_for, to_unit_interval
from actlab.random.seeding import Generators, seed_generators

MOST_AT_ONCE = 2**19  # numbers: more leave the cache of a CPU's core, and outweigh the start of an operator
FEW = 2**15  # numbers of a stochastic activation that are worth drawing with those of other sites


class Source(NamedTuple):
    """What determines the uniform numbers of a site."""

    elements: Tensor  # numbers of the elements, (N,)
    first: Tensor  # a key of each run, (R, 1)
    second: Tensor
    drawn: list[Tensor]  # the numbers, (1, R, N), where they were drawn with those of other sites


class Ahead:
    """The numbers of several sites of a training step, drawn at once when the first of these sites draws.

    Hashing takes 17 operators, which start more slowly than they compute unless there are many numbers. Sites
    that drew equally many numbers in the step before are expected to do so again; any other site draws alone.
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._before: dict[int, int] = {}  # how many numbers of a run each site drew in the step before
        self._here: dict[int, int] = {}
        self._drawn: dict[int, Tensor] = {}

    def take(self, site: int, elements: Tensor, stream: Stream) -> list[Tensor]:
        """Return the numbers of a site in a list, which is empty where the site draws alone."""
        if stream.step != self._step:
            self._step, self._before, self._here, self._drawn = stream.step, self._here, {}, {}
        number, expected = len(elements), self._before.get(site)
        if number == expected and site not in self._here and site not in self._drawn:
            alike = [s for s, other in self._before.items() if other == number and s not in self._here]
            most = MOST_AT_ONCE // max(1, number * len(stream.seeds))
            if len(sites := alike[alike.index(site) :][:most]) > 1:
                first, second = torch.stack([stream.keys[s] for s in sites], 1)
                numbers = to_unit_interval(hash_words(elements, first, second))
                # Chunks without a shared version: one site overwrites its own while another's mask is kept.
                self._drawn |= zip(sites, numbers.unsafe_chunk(len(sites)), strict=True)
        self._here[site] = number
        drawn = self._drawn.pop(site, None)
        return [drawn] if drawn is not None and number == expected else []


class Stream:
    """The position in the random numbers of one run, or of the R runs of a stack.

    All `Uniform` sites of a network share one stream; the task moves the stream before each training step. With
    a sequence of seeds, the first axis of tensors at the sites is the run axis.
    """

    def __init__(self, seeds: int | Sequence[int]) -> None:
        self.seeds: tuple[int, ...] = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        self.position: tuple[int, ...] = (0,)
        self.slice = 0
        self.part = 0, 1  # size of the batch before this process's part, and size of the part
        self.moves = 0
        self.steps = False  # True: each move is a training step, in which repeated draws at a site differ
        self.sites = 0
        self.ahead = Ahead()
        self._base = key_words([seed_for(seed, "mask") for seed in self.seeds])
        self._known: dict[tuple[int, ...], Tensor] = {}  # keys of the positions that were prepared
        self.keys = torch.empty(0)

    def reserve(self, sites: int, device: torch.device | str = "cpu") -> None:
        """Allocate `keys`, int32 ``(sites, 2, R, 1)``, for a number of sites; `move` rewrites the keys."""
        self.sites, self._known = sites, {}
        self.keys = torch.empty((sites, 2, len(self.seeds), 1), dtype=torch.int32, device=device)
        self.move(*self.position, slice_=self.slice, part=self.part)

    def move(self, *position: int, slice_: int = 0, part: tuple[int, int] | None = None) -> None:
        """Move to a position, normally (epoch, batch of the epoch); equal positions draw equal numbers.

        ``slice_`` is the index of this process's slice of the global batch, ``part`` the number of samples of
        the global batch before the slice and in it, or None for slices of equal size.
        """
        self.position, self.slice, self.part = position, slice_, part or (slice_, 1)
        self.moves += 1
        if self.sites:
            known = self._known.get(position)
            self.keys.copy_(self._keys_at([position])[0] if known is None else known)

    def prepare(self, positions: Sequence[tuple[int, ...]]) -> None:
        """Compute the keys of some positions at once, in a tenth of the time, for `move`."""
        if self.sites:
            keys = self._keys_at(positions).to(self.keys.device)
            self._known = dict(zip(positions, keys, strict=True))

    def _keys_at(self, positions: Sequence[tuple[int, ...]]) -> Tensor:
        """Return the keys of P positions, int32 ``(P, sites, 2, R, 1)``."""
        here = key_words([seed_for(0, "position", *position) for position in positions])
        first, second = here.view(2, -1, 1, 1, 1)
        sites = torch.arange(self.sites, dtype=torch.int32).view(-1, 1, 1)
        mixed = hash_words(hash_words(self._base, first, second) + sites, second, first)
        return hash_words(mixed, first, second).unsqueeze(-1)

    @property
    def whole(self) -> Stream:
        """This stream; of a `MemberStream`, that of its stack."""
        return self

    @property
    def step(self) -> int | None:
        """Number of the training step, or None when moves are not training steps."""
        return self.moves if self.steps else None

    def unit_seed(self, *site: int) -> int:
        """Return the seed of the global generators here, for activations that do not use `Uniform`."""
        return seed_for(self.seeds[0], "unit", *site, *self.position, self.slice)


class MemberStream:
    """The stream of run ``r`` within the `Stream` of a stack, for modules that are called once per run."""

    def __init__(self, whole: Stream, r: int) -> None:
        self.whole, self.r = whole, r
        self.seeds = (whole.seeds[r],)

    @property
    def keys(self) -> Tensor:
        """Keys of this run, ``(sites, 2, 1, 1)``."""
        return self.whole.keys[:, :, self.r : self.r + 1].contiguous()

    def unit_seed(self, *site: int) -> int:
        """Return the seed of the global generators here, the same as without a stack."""
        return seed_for(self.seeds[0], "unit", *site, *self.whole.position, self.whole.slice)


class Calls:
    """Counts the calls of a site within a training step, since a network may call one module several times."""

    _step: int | None = None
    _number = 0

    def count(self, stream: Stream | MemberStream) -> int:
        """Count this call and return the number of earlier calls in the same training step."""
        if torch._C._current_graph_task_id() != -1:  # a recomputed layer would draw other numbers
            raise ActlabError(
                "layers with stochastic activations or dropout must not be inside torch.utils.checkpoint"
            )
        step = stream.whole.step
        again = step is not None and step == self._step
        self._step, self._number = step, self._number + 1 if again else 0
        return self._number


class Uniform(nn.Module):
    """A source of uniform numbers for one site of a network, without parameters or state dict.

    A stochastic activation owns a `Uniform` and calls it with its input: ``u = self.uniform(x)``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream: Stream | MemberStream | None = None
        self.site = 0
        self._calls = Calls()

    def forward(self, x: Tensor) -> Tensor:
        """Return uniform float32 numbers in [0, 1) in the shape and on the device of ``x``; see `uniform`."""
        return cast(Tensor, self.draw(uniform, x))

    def keep(self, x: Tensor, p: float | Tensor) -> Tensor:
        """Return a mask of inverted dropout like ``x``: 0 with probability ``p``, else 1 / (1 − p).

        ``p`` is a number, or one per run, float64 ``(R, 1)``.
        """
        if isinstance(p, Tensor):
            p = p.view(-1, *[1] * (x.dim() - 1))
        return cast(Tensor, self.draw(_keep, x, p))

    def draw(self, function: Callable[..., Any], x: Tensor, *args: Any) -> Any:
        """Return ``function(source, x, *args)`` with the source of this site, for use with `uniform`.

        ``function`` is at module level and has no side effects; `compile_masks` fuses it into one pass.
        """
        if self.stream is None:
            return function(None, x, *args)
        whole = self.stream.whole
        if self.site >= whole.sites or whole.keys.device != x.device:
            whole.reserve(max(self.site + 1, whole.sites), x.device)
        keys = self.stream.keys[self.site]
        if again := self._calls.count(self.stream):
            keys = hash_words(keys, again, keys)
        before, size = whole.part  # of the global batch
        per_run = x.numel() // len(self.stream.seeds)
        first = before * per_run // max(size, 1)
        elements = _elements(first, first + per_run, x.device)
        drawn: list[Tensor] = []
        # Dropout overwrites its numbers; other functions read many of them faster straight after drawing them.
        worth = function is _keep or x.numel() <= FEW
        if worth and isinstance(self.stream, Stream) and whole.steps and not again and _may_draw_ahead():
            drawn = whole.ahead.take(self.site, elements, whole)
        return fused(function)(Source(elements, keys[0], keys[1], drawn), x, *args)


def _may_draw_ahead() -> bool:
    """Return whether tensors made here serve all sites: not if compiled, transformed or for inference only."""
    if torch.compiler.is_compiling() or _compiled is not None or torch.is_inference_mode_enabled():
        return False
    return torch._C._functorch.maybe_current_level() is None


_counters: dict[torch.device, Tensor] = {}  # 0, 1, 2, … on each device, up to the largest end so far


def _elements(first: int, end: int, device: torch.device) -> Tensor:
    """Return ``first`` … ``end`` − 1, int32: a slice of the one counter of a device, for draws of any size."""
    if torch.compiler.is_compiling():  # a whole network: the compiler fuses the counter with its use
        return torch.arange(first, end, dtype=torch.int32, device=device)
    counter = _counters.get(device)
    if counter is None or len(counter) < end:
        _counters[device] = counter = torch.arange(end, dtype=torch.int32, device=device)
    return counter[first:end]


def uniform(source: Source | None, x: Tensor) -> Tensor:
    """Return uniform float32 numbers in [0, 1) in the shape and on the device of ``x``, of shape ``(R, *)``.

    The numbers are multiples of 2⁻²⁴, below ``p`` with probability ``p`` to 6e-8; without a source they come
    from torch's own generator.
    """
    if source is None:
        return torch.rand_like(x, dtype=torch.float32)
    numbers = source.drawn.pop() if source.drawn else to_unit_interval(hash_words(*source[:3]))
    return numbers.view(x.shape)


def _keep(source: Source | None, x: Tensor, p: float | Tensor) -> Tensor:
    threshold = p.to(torch.float32) if isinstance(p, Tensor) else p  # plain numbers are compared in float32 too
    kept = uniform(source, x).ge_(threshold).to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    return kept.mul_(1 / (1 - p)).to(x.dtype)


_compiled: dict[Callable[..., Any], Callable[..., Any]] | None = None  # None: nothing is compiled


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` compiled to one pass over memory after `compile_masks`, else ``function`` itself."""
    if _compiled is None or torch.compiler.is_compiling():
        return function
    if function not in _compiled:
        _compiled[function] = partial(_drawn, function, torch.compile(function))
    return _compiled[function]


def _drawn(function: Callable[..., Any], compiled: Callable[..., Any], *args: Any) -> Any:
    """Return what ``compiled`` returns, or where that fails ``function``, which is used from then on."""
    global _compiled
    try:
        return compiled(*args)
    except (RuntimeError, OSError) as error:
        returned = function(*args)  # raises the error again if it is not the compiler's
        _compiled, reason = None, str(error).strip().partition("\n")[0]
        print(f"masks are not compiled ({reason}): dropout and stochastic activations run slower", flush=True)
        return returned


def compile_masks() -> None:
    """Fuse the functions that draw masks by ``torch.compile``, each at its first draw, for the tensor's device.

    Numbers and masks stay the same bit for bit: these functions only hash integers, compare, multiply and add.
    On the CPU this needs a C++ compiler; without a compiler the plain
    functions stay in use, and a line says why.
    """
    global _compiled
    if _compiled is None:
        _compiled, settings = {}, torch._dynamo.config
        settings.recompile_limit = max(64, settings.recompile_limit)  # a study may have many shapes


class SeedGlobal:
    """Hooks that seed the global generators during each call of a third-party stochastic activation.

    An activation that calls ``torch.rand``, ``F.dropout`` or ``numpy.random`` therefore draws the same numbers
    alone, in a stack and after a resume. The hooks restore the generators after each call, so other code, such
    as data loaders, draws as before. An activation that is also random in evaluation draws the same numbers in
    each evaluation batch.

    ``site`` is the number of the activation in its network.
    """

    def __init__(self, stream: Stream | MemberStream, site: int) -> None:
        self.stream, self.site, self._calls = stream, site, Calls()
        self._before: list[Generators] = []
        self._handles: list[RemovableHandle] = []

    def attach(self, module: nn.Module) -> None:
        """Register both hooks on a module."""
        self._handles = [
            module.register_forward_pre_hook(self),
            module.register_forward_hook(self.after, always_call=True),
        ]

    def detach(self) -> None:
        """Remove both hooks."""
        for handle in self._handles:
            handle.remove()

    def __call__(self, module: nn.Module, args: tuple[object, ...]) -> None:
        """Seed the global generators before the module's forward."""
        self._before.append(Generators.now())
        if not module.training:
            seed_generators(seed_for(self.stream.seeds[0], "evaluation", self.site))
        else:
            again = self._calls.count(self.stream)
            seed_generators(self.stream.unit_seed(self.site, *([again] if again else [])))

    def after(self, module: nn.Module, args: object, output: object) -> None:
        """Restore the generators after the module's forward."""
        self._before.pop().restore()


def attach(network: nn.Module, stream: Stream) -> int:
    """Number a network's `Uniform` sites in module order, bind them to ``stream`` and return their count."""
    sites = [module for module in network.modules() if isinstance(module, Uniform)]
    for number, uniform in enumerate(sites):
        uniform.stream, uniform.site = stream, number
    stream.reserve(len(sites))
    return len(sites)


def attach_like(module: nn.Module, stream: Stream | MemberStream) -> None:
    """Bind every `Uniform` and `SeedGlobal` in a module to another stream; site numbers stay the same."""
    for part in module.modules():
        if isinstance(part, Uniform):
            part.stream = stream
    for _, hook in seeded(module):
        hook.stream = stream


def seeded(module: nn.Module) -> list[tuple[nn.Module, SeedGlobal]]:
    """Return each part of a module that has `SeedGlobal` hooks, with them."""
    hooks = ((part, hook) for part in module.modules() for hook in part._forward_pre_hooks.values())
    return [(part, hook) for part, hook in hooks if isinstance(hook, SeedGlobal)]
