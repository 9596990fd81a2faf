"""Lightning's counts of updates and epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl

OFFSET = 10_007  # a prime number, so that periodic things are elsewhere in their period


def updates_of(trainer: pl.Trainer) -> tuple[Any, ...]:
    """Return what counts the updates of a Trainer."""
    loop = trainer.fit_loop.epoch_loop
    progress = loop.automatic_optimization.optim_progress.optimizer
    # Callbacks and loggers read one or another of these
    return loop.batch_progress, progress.zero_grad, progress.step


def add(number: int, *counts: Any) -> None:
    """Add a number to ready, started, processed and completed of Lightning's counts.

    A count without one of these is added to without it.
    """
    for progress in counts:
        for numbers in (vars(progress.current), vars(progress.total)):
            # Some counts have no entry ``started`` or ``processed``
            for name in numbers:
                numbers[name] += number


@contextmanager
def far_away(*counts: Any) -> Iterator[None]:
    """Let a ``with`` block see counts that are far from the present counts."""
    add(OFFSET, *counts)
    try:
        yield
    finally:
        add(-OFFSET, *counts)
