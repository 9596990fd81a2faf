"""How updates are timed: some at a time, the first few left out."""

from __future__ import annotations

import actlab  # noqa: F401  (first, for torchvision: see actlab.runtime.operators)

# isort: split
import time
from typing import Any

import pytorch_lightning as pl
import torch

from actlab.runtime.devices import threads, threads_for

UPDATES, WARM_UP = 25, 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def synchronise() -> None:
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class Clock(pl.callbacks.Checkpoint):
    """Seconds from the first to the last update of a fit, the first few left out."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """Note the time after the warm-up and after each further update."""
        if trainer.global_step in (WARM_UP, WARM_UP + UPDATES):
            synchronise()
        if trainer.global_step == WARM_UP:
            self.start = time.perf_counter()
        self.end = time.perf_counter()

    @property
    def milliseconds(self) -> float:
        """Per update."""
        return (self.end - self.start) / UPDATES * 1e3


def threads_of(size: int) -> Any:
    """The number of threads that the engines give to so many runs."""
    return threads(threads_for(128 * size))
