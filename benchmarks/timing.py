"""How updates are timed: some at a time, the first few left out."""

from __future__ import annotations

import actlab  # noqa: F401  (first, for torchvision: see actlab.runtime.operators)

# isort: split
import time
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch

from actlab.runtime.devices import threads

BLOCK = 25  # most updates of a block
WARM_UP = 5  # updates, at least: a block ends the warm-up
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def synchronise() -> None:
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def updates_of(size: int = 1) -> int:
    """The number of updates of a fit of so many runs: a single one, then three blocks.

    In large stacks, whose updates take a tenth of a second, a block has ten.
    """
    return 1 + 3 * (BLOCK if size <= 15 else 10)


class Clock(pl.callbacks.Checkpoint):
    """Times the updates of a fit, the first few left out.

    Args:
        blocks: most updates in one batch of the Trainer, as studies have them; 1 for single
            updates.
        now: returns seconds.
    """

    def __init__(self, blocks: int = BLOCK, now: Callable[[], float] = time.perf_counter) -> None:
        self.blocks, self.now = blocks, now
        self.begin: tuple[int, float] | None = None  # updates, seconds
        self.end = (0, 0.0)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """Note the time after the warm-up and after each further block."""
        updates = trainer.global_step
        if updates >= WARM_UP:
            if self.begin is None or updates == trainer.max_steps:
                synchronise()
            self.end = updates, self.now()
            self.begin = self.begin or self.end

    @property
    def updates(self) -> int:
        """The number of updates that were timed."""
        assert self.begin is not None
        return self.end[0] - self.begin[0]

    @property
    def milliseconds(self) -> float:
        """Per update."""
        assert self.begin is not None
        return (self.end[1] - self.begin[1]) / self.updates * 1e3


def threads_of(size: int) -> Any:
    """The number of threads that the engines give to so many runs."""
    return threads(1)
