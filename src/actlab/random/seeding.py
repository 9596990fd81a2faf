"""The global generators of torch, numpy and Python, from which other people's units draw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from actlab.errors import ActlabError
from actlab.random.hashing import seed_for


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


class Generators(NamedTuple):
    """Where the global generators of the CPU are, for going back there."""

    torchs: torch.Tensor
    numpys: Any
    pythons: Any

    @classmethod
    def now(cls) -> Generators:
        """As they are."""
        return cls(torch.get_rng_state(), np.random.get_state(), random.getstate())

    def restore(self) -> None:
        """Go on from there."""
        torch.set_rng_state(self.torchs)
        np.random.set_state(self.numpys)
        random.setstate(self.pythons)


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed the global generators for a while; afterwards they go on as if nothing had been drawn."""
    before = Generators.now()
    seed_generators(seed)
    try:
        yield
    finally:
        before.restore()


class Position(Protocol):
    """Where a run is in its random numbers; see `actlab.random.streams`."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the run."""

    @property
    def step(self) -> int | None:
        """Number of the training step; None where steps are not distinguished."""

    def unit_seed(self, *site: int) -> int:
        """The seed of the global generators here."""


class Calls:
    """Counts the calls of a site in a training step: one module may act at several places."""

    _step: int | None = None
    _number = 0

    def count(self, stream: Position) -> int:
        """How many calls there were before this one.

        Raises:
            ActlabError: in a backward pass: a layer that is computed again there would draw other numbers.
        """
        if torch._C._current_graph_task_id() != -1:
            raise ActlabError("leave layers with random units or dropout out of torch.utils.checkpoint")
        again = stream.step is not None and stream.step == self._step
        self._step, self._number = stream.step, self._number + 1 if again else 0
        return self._number


class SeedGlobal:
    """Hooks of a foreign random unit: the global generators are seeded for this site during each call.

    So a unit that calls ``torch.rand``, ``F.dropout`` or ``numpy.random`` draws the same alone, in a stack and
    after a resume, and takes nothing from those who draw outside it, such as loaders. One that is random in
    evaluation too draws the same numbers in each of its batches.
    """

    def __init__(self, stream: Position, site: int) -> None:
        self.stream, self.site, self._calls = stream, site, Calls()
        self._before: list[Generators] = []

    def attach(self, module: nn.Module) -> None:
        """Act on a module's calls."""
        module.register_forward_pre_hook(self)
        module.register_forward_hook(self.after, always_call=True)

    def __call__(self, module: nn.Module, args: tuple[object, ...]) -> None:
        """Seed."""
        self._before.append(Generators.now())
        if not module.training:
            seed_generators(seed_for(self.stream.seeds[0], "evaluation", self.site))
        else:
            again = self._calls.count(self.stream)
            seed_generators(self.stream.unit_seed(self.site, *[again] * bool(again)))

    def after(self, module: nn.Module, args: object, output: object) -> None:
        """Let the generators go on as if the module had drawn nothing."""
        self._before.pop().restore()
