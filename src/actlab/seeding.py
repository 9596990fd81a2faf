"""The global generators of torch, numpy and Python, from which other people's units draw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch

from actlab.hashing import seed_for


def seed_generators(seed: int) -> None:
    """Seed torch's, numpy's and Python's global generators."""
    if _accelerated():
        torch.manual_seed(seed)
    else:  # that asks for every kind of device first, which takes a hundred times as long
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@cache
def _accelerated() -> bool:
    return torch.accelerator.is_available()


def seed_epoch(seed: int, epoch: int) -> None:
    """Seed them for an epoch of a run."""
    seed_generators(seed_for(seed, "epoch", epoch))


def seed_loader(seed: int, epoch: int, batch: int) -> None:
    """Seed them for what a loader does after a batch of a run."""
    seed_generators(seed_for(seed, "loader", epoch, batch))


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed the global generators for a while; afterwards they go on as if nothing had been drawn."""
    numpys, pythons = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        seed_generators(seed)
        try:
            yield
        finally:
            np.random.set_state(numpys)
            random.setstate(pythons)
