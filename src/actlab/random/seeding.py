"""The global generators of torch, numpy and Python, which third-party activations draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch, numpy, Python and the accelerator in use."""
    # `torch.manual_seed` takes a hundred times as long.
    torch.default_generator.manual_seed(seed)
    accelerator = _accelerator()
    if accelerator:
        accelerator.manual_seed(seed)
    # numpy takes 32 bits
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _accelerator() -> Any:
    """Return the module of the accelerator in use, such as ``torch.cuda``; None without one."""
    kind = torch.accelerator.current_accelerator()
    if kind is None:
        return None
    module = torch.get_device_module(kind)

    # MPS needs no initialisation. Another accelerator stays uninitialised until it is
    # used.
    is_in_use = getattr(module, "is_initialized", None) or module.is_available
    return module if is_in_use() else None


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
        # Only of an accelerator that the process uses: others would be initialised
        state = accelerator.get_rng_state() if accelerator else None
        return cls(
            torch.get_rng_state(), state, np.random.get_state(), random.getstate()
        )

    def restore(self) -> None:
        """Set the global generators to this snapshot."""
        torch.set_rng_state(self.torchs)
        if self.accelerators is not None:
            _accelerator().set_rng_state(self.accelerators)
        np.random.set_state(self.numpys)
        random.setstate(self.pythons)

    def same(self, other: Generators) -> bool:
        """Return whether two snapshots are equal: no number was drawn between them."""
        # numpy's state has its keys second, then plain numbers.
        keys, *numbers = self.numpys[1:]
        other_keys, *other_numbers = other.numpys[1:]
        if numbers != other_numbers or self.pythons != other.pythons:
            return False

        arrays = [self.torchs, self.accelerators, keys]
        other_arrays = [other.torchs, other.accelerators, other_keys]
        for array, other_array in zip(arrays, other_arrays, strict=True):
            if array is None and other_array is None:
                continue
            if not (array == other_array).all():
                return False
        return True


@contextmanager
def own_generators(seed: int, drew: list[bool] | None = None) -> Iterator[None]:
    """Seed the global generators for a block and restore their states afterwards.

    ``drew`` gets whether numbers were drawn in the block.
    """
    before = Generators.now()
    seed_generators(seed)
    # A snapshot costs time, so it is made only if somebody asks
    begun = Generators.now() if drew == [] else None
    try:
        yield
    finally:
        if drew == [] and begun is not None:
            is_same = begun.same(Generators.now())
            drew.append(not is_same)
        before.restore()
