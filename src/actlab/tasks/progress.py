"""Lightning's counts of updates and epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl

AWAY = 10_007  # a prime number, so that what is periodic is elsewhere in its period


def updates_of(trainer: pl.Trainer) -> tuple[Any, ...]:
    """Return what counts the updates of a Trainer."""
    loop = trainer.fit_loop.epoch_loop
    progress = loop.automatic_optimization.optim_progress.optimizer
    return loop.batch_progress, progress.zero_grad, progress.step


def add(number: int, *counted: Any) -> None:
    """Add a number to counts: ready, started, processed and completed, as far as they have them."""
    for progress in counted:
        for numbers in (vars(progress.current), vars(progress.total)):
            for name in numbers:
                numbers[name] += number


@contextmanager
def far_away(*counted: Any) -> Iterator[None]:
    """Let a ``with`` block see counts that are far from the present ones."""
    add(AWAY, *counted)
    try:
        yield
    finally:
        add(-AWAY, *counted)
