"""The global generators of torch, numpy and Python, which third-party activations draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from actlab.errors import ActlabError
from actlab.random.hashing import seed_for

if TYPE_CHECKING:
    from actlab.random.streams import MemberStream, Stream


def seed_generators(seed: int) -> None:
    """Seed torch's, numpy's and Python's global generators, and that of the accelerator in use."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred times as long
    if accelerator := _accelerator():
        accelerator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _accelerator() -> Any:
    """Return the module of the accelerator in use, such as ``torch.cuda``, on its current device; or None."""
    if (kind := torch.accelerator.current_accelerator()) is None:
        return None
    module = torch.get_device_module(kind)
    in_use = getattr(module, "is_initialized", None) or module.is_available  # MPS needs no initialisation
    return module if in_use() else None  # an accelerator that nothing has used yet stays uninitialised


class Generators(NamedTuple):
    """A snapshot of the states of the global generators: all that `seed_generators` seeds."""

    torchs: torch.Tensor
    accelerators: torch.Tensor | None
    numpys: Any
    pythons: Any

    @classmethod
    def now(cls) -> Generators:
        """Return a snapshot of the current states."""
        accelerator = _accelerator()
        state = accelerator.get_rng_state() if accelerator else None
        return cls(torch.get_rng_state(), state, np.random.get_state(), random.getstate())

    def restore(self) -> None:
        """Set the global generators to this snapshot."""
        torch.set_rng_state(self.torchs)
        if self.accelerators is not None:
            _accelerator().set_rng_state(self.accelerators)
        np.random.set_state(self.numpys)
        random.setstate(self.pythons)


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed the global generators for a block and restore their states afterwards."""
    before = Generators.now()
    seed_generators(seed)
    try:
        yield
    finally:
        before.restore()


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
        again = stream.step is not None and stream.step == self._step
        self._step, self._number = stream.step, self._number + 1 if again else 0
        return self._number


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
            seed_generators(self.stream.unit_seed(self.site, *[again] * bool(again)))

    def after(self, module: nn.Module, args: object, output: object) -> None:
        """Restore the generators after the module's forward."""
        self._before.pop().restore()
