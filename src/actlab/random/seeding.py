"""The global generators of torch, numpy and Python, which third-party activations draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch


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
    # MPS needs no initialisation
    in_use = getattr(module, "is_initialized", None) or module.is_available
    # An accelerator that nothing has used yet stays uninitialised
    return module if in_use() else None


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

    def same(self, other: Generators) -> bool:
        """Return whether two snapshots are equal: no number was drawn between them."""
        first, second = self.numpys, other.numpys
        arrays = (
            [self.torchs, self.accelerators, first[1]],
            [other.torchs, other.accelerators, second[1]],
        )
        equal = all(
            (a is None and b is None) or bool((a == b).all()) for a, b in zip(*arrays, strict=True)
        )
        return equal and first[2:] == second[2:] and self.pythons == other.pythons


@contextmanager
def own_generators(seed: int, drew: list[bool] | None = None) -> Iterator[None]:
    """Seed the global generators for a block and restore their states afterwards.

    ``drew`` gets whether numbers were drawn in the block.
    """
    before = Generators.now()
    seed_generators(seed)
    begun = Generators.now() if drew == [] else None
    try:
        yield
    finally:
        if drew == [] and begun is not None:
            drew.append(not begun.same(Generators.now()))
        before.restore()
