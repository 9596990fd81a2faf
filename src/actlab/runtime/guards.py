"""Callbacks of every Trainer that actlab builds: stop on signals and reject training that ends early."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Timer

from actlab.errors import RunError
from actlab.runtime import signals

PLANNED, STOPPED, TIME = "planned", "stopped by callback", "max_time"  # how training ends
_CAUSES = "a hook raised StopIteration, or the data loader yielded fewer batches than its length"


class StopOnSignal(Callback):
    """Ends a Trainer within one batch after a signal, even if code swallowed the exception `Stopped`."""

    stackable = tested_by_steps = True

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """Raise `Stopped` if a signal has arrived."""
        signals.check()

    on_train_batch_end = on_train_batch_start
    on_validation_batch_start = on_validation_batch_end = on_train_batch_start
    on_test_batch_start = on_test_batch_end = on_train_batch_start
    on_predict_batch_start = on_predict_batch_end = on_train_batch_start


class PlannedLength(Callback):
    """Raises `RunError` for epochs and training that end before their planned number of batches and epochs.

    Lightning silently ends an epoch or the whole training when a hook, a backward pass or an optimiser raises
    StopIteration, or when a data loader yields fewer batches than its length. Exempt are runs that reach
    ``max_steps``, set ``trainer.should_stop``, or skip the rest of an epoch in the module's
    ``on_train_batch_start``.
    """

    stackable = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the number of batches with the plan."""
        done: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        planned = trainer.num_training_batches
        skipped = done.started < done.ready == done.processed
        may_end = skipped or trainer.should_stop or _reached(trainer.global_step, trainer.max_steps)
        if not may_end and done.completed < planned < float("inf"):
            raise RunError(
                f"epoch {trainer.current_epoch + 1} ended after {done.completed} of {planned} training "
                f"batches without a stop request: {_CAUSES}"
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the number of epochs with the plan."""
        if ended(trainer) == STOPPED and not trainer.should_stop:
            epochs = trainer.max_epochs
            planned = f"{trainer.max_steps} updates" if epochs is None or epochs < 0 else f"{epochs} epochs"
            raise RunError(
                f"training ended after {trainer.current_epoch} epochs and {trainer.global_step} updates of "
                f"{planned} without a stop request: {_CAUSES}"
            )


def ended(trainer: pl.Trainer) -> str:
    """Return how the training of a Trainer ended: `PLANNED`, `TIME` or `STOPPED`."""
    if _reached(trainer.current_epoch, trainer.max_epochs) or _reached(trainer.global_step, trainer.max_steps):
        return PLANNED
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    left = [callback.time_remaining() for callback in callbacks if isinstance(callback, Timer)]
    return TIME if any(seconds is not None and seconds <= 0 for seconds in left) else STOPPED


def _reached(number: int, limit: int | None) -> bool:
    """Whether a limit is reached; -1 and None mean no limit."""
    return limit is not None and 0 <= limit <= number
