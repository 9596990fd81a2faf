"""Random streams: the numbers of a run depend on (run seed, purpose, position), on no global state.

A run draws the same numbers alone, as a member of a stack of ``R`` runs, on any device and after
any resume. With a `Stream` attached, the numbers of a site are a counter-based hash of (seed, site,
step, element). One call serves all R runs and costs as much as ``torch.rand``, or a tenth of its
time after `masks.compile_masks`. In a training step that is not compiled, several sites draw their
numbers at once (`JointDraws`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.random import masks
from actlab.random.hashing import hash_words, key_words, seed_for
from actlab.random.joint_draws import JointDraws

# Numbers of a stochastic activation that are worth drawing with those of other sites.
FEW = 2**15


class Stream:
    """The position in the random numbers of one run, or of the R runs of a stack.

    All `Uniform` sites of a network share one stream; the task moves the stream before each
    training step. With a sequence of seeds, the first axis of tensors at the sites is the run axis.
    """

    def __init__(self, seeds: int | Sequence[int]) -> None:
        self.seeds: tuple[int, ...] = (
            (seeds,) if isinstance(seeds, int) else tuple(seeds)
        )
        self.position: tuple[int, ...] = (0,)
        self.slice = 0
        # Size of the batch before this process's part, and size of the part.
        self.part = (
            0,
            1,
        )
        self.moves = 0
        # True: moves are training steps; repeated draws at a site differ.
        self.steps = False
        self.sites = 0
        self.joint_draws = JointDraws()
        self._base = key_words([seed_for(seed, "mask") for seed in self.seeds])
        self._prepared: dict[
            tuple[int, ...], Tensor
        ] = {}  # keys of the positions of `prepare`
        self.keys = torch.empty(0)

    def reserve(self, sites: int, device: torch.device | str = "cpu") -> None:
        """Allocate `keys`, int32 ``(sites, 2, R, 1)``, for a number of sites; `move` sets them."""
        self.sites = sites
        self._prepared = {}
        self.keys = torch.empty(
            (sites, 2, len(self.seeds), 1), dtype=torch.int32, device=device
        )
        self.move(*self.position, slice_=self.slice, part=self.part)

    def move(
        self, *position: int, slice_: int = 0, part: tuple[int, int] | None = None
    ) -> None:
        """Move to a position, normally (epoch, batch of the epoch).

        Equal positions draw equal numbers. ``slice_`` is the index of this process's slice of the
        global batch, ``part`` the number of samples of the global batch before the slice and in it,
        or None for slices of equal size.
        """
        self.position = position
        self.slice = slice_
        self.part = part or (slice_, 1)
        self.moves += 1

        if self.sites:
            keys = self._prepared.get(position)
            # Outside blocks, and in evaluations
            if keys is None:
                keys = self._keys_at([position])[0]
            self.keys.copy_(keys)

    def prepare(self, positions: Sequence[tuple[int, ...]]) -> None:
        """Compute the keys of some positions at once, in a tenth of the time, for `move`."""
        if self.sites:
            keys = self._keys_at(positions).to(self.keys.device)
            self._prepared = dict(zip(positions, keys, strict=True))

    def _keys_at(self, positions: Sequence[tuple[int, ...]]) -> Tensor:
        """Return the keys of P positions, int32 ``(P, sites, 2, R, 1)``."""
        seeds = [seed_for(0, "position", *position) for position in positions]
        first_key, second_key = key_words(seeds).view(2, -1, 1, 1, 1)
        sites = torch.arange(self.sites, dtype=torch.int32).view(-1, 1, 1)

        words = hash_words(self._base, first_key, second_key)
        words = hash_words(words + sites, second_key, first_key)
        return hash_words(words, first_key, second_key).unsqueeze(-1)

    @property
    def root(self) -> Stream:
        """This stream; of a `MemberStream`, the stream of its stack."""
        return self

    @property
    def step(self) -> int | None:
        """Number of the training step, or None when moves are not training steps."""
        return self.moves if self.steps else None


class MemberStream:
    """The stream of run ``r`` within the `Stream` of a stack, for modules called once per run."""

    def __init__(self, root: Stream, r: int) -> None:
        self.root = root
        self.r = r
        self.seeds = (root.seeds[r],)

    @property
    def keys(self) -> Tensor:
        """Keys of this run, ``(sites, 2, 1, 1)``."""
        return self.root.keys[:, :, self.r : self.r + 1].contiguous()


def global_seed(stream: Stream | MemberStream, *site: int) -> int:
    """Return the seed of the global generators here, for code that draws from them."""
    root = stream.root
    return seed_for(stream.seeds[0], "unit", *site, *root.position, root.slice)


class Calls:
    """Counts the calls of a site within a training step, since modules may be called repeatedly."""

    _step: int | None = None
    _number = 0

    def count(self, stream: Stream | MemberStream) -> int:
        """Count this call and return the number of earlier calls in the same training step."""
        if torch._C._current_graph_task_id() != -1:
            # A recomputed layer would draw other numbers.
            raise ActlabError(
                "layers with stochastic activations or dropout must not be inside "
                "torch.utils.checkpoint. Remove the checkpoint around them."
            )
        step = stream.root.step
        if step is not None and step == self._step:
            self._number += 1
        else:
            self._number = 0
        self._step = step
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
        """Return uniform float32 numbers in [0, 1), shaped like ``x`` and on its device."""
        numbers: Tensor = self.draw(masks.uniform, x)
        return numbers

    def keep(self, x: Tensor, p: float | Tensor) -> Tensor:
        """Return a mask of inverted dropout like ``x``: 0 with probability ``p``, else 1 / (1 − p).

        ``p`` is a number, or one per run, float64 ``(R, 1)``.
        """
        if isinstance(p, Tensor):
            p = p.view(-1, *[1] * (x.dim() - 1))
        mask: Tensor = self.draw(masks.keep, x, p)
        return mask

    def draw(self, function: Callable[..., Any], x: Tensor, *args: Any) -> Any:
        """Return ``function(source, x, *args)`` with the source of this site, for `masks.uniform`.

        ``function`` is at module level and has no side effects; `masks.compile_masks` fuses it.
        """
        if self.stream is None:
            return function(None, x, *args)

        # Select the keys of this site and call
        root = self.stream.root
        if self.site >= root.sites or root.keys.device != x.device:
            root.reserve(max(self.site + 1, root.sites), x.device)
        keys = self.stream.keys[self.site]
        repeat = self._calls.count(self.stream)
        if repeat:
            keys = hash_words(keys, repeat, keys)

        # Number the elements within the global batch, for any number of devices
        before, size = root.part
        per_run = x.numel() // len(self.stream.seeds)
        begin = before * per_run // max(size, 1)
        elements = masks.elements(begin, begin + per_run, x.device)

        # Draw with other sites. Dropout overwrites its numbers; other functions read
        # many of them faster straight after drawing them.
        drawn: list[Tensor] = []
        is_worth = function is masks.keep or x.numel() <= FEW
        if is_worth and self.stream is root and root.steps and not repeat:
            drawn = root.joint_draws.take(self.site, elements, root.keys, root.moves)

        source = masks.Source(elements, keys[0], keys[1], drawn)
        return masks.fused(function)(source, x, *args)


def attach(network: nn.Module, stream: Stream) -> int:
    """Number a network's `Uniform` sites in module order, bind them and return their count."""
    sites = [module for module in network.modules() if isinstance(module, Uniform)]
    for number, uniform in enumerate(sites):
        uniform.stream = stream
        uniform.site = number
    stream.reserve(len(sites))
    return len(sites)
