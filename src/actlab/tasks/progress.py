"""Lightning's counts of updates and epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl

AWAY = 10_007  # a prime number, so that what is periodic in the updates is elsewhere in its period


def count_updates(trainer: pl.Trainer, number: int = 1) -> None:
    """Count updates that Lightning has not made, wherever it counts its own."""
    loop: Any = trainer.fit_loop.epoch_loop
    progress = loop.automatic_optimization.optim_progress.optimizer
    _add(number, loop.batch_progress, progress.zero_grad, progress.step)
    loop._batches_that_stepped += number


@contextmanager
def moved(trainer: pl.Trainer, updates: bool) -> Iterator[None]:
    """Let a ``with`` block see a number of ``updates`` far away, or else of epochs."""

    def move(number: int) -> None:
        if updates:
            count_updates(trainer, number)
        else:
            _add(number, trainer.fit_loop.epoch_progress)

    move(AWAY)
    try:
        yield
    finally:
        move(-AWAY)


def _add(number: int, *counted: Any) -> None:
    for progress in counted:
        for numbers in (vars(progress.current), vars(progress.total)):
            for name in numbers:  # ready, started, processed, completed, as far as it has them
                numbers[name] += number
