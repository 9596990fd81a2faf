"""What watches every Trainer that actlab builds: signals end it, and training that ends early is an error."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, Timer

from actlab.errors import RunError
from actlab.runtime import signals

PLANNED, STOPPED, TIME = "planned", "stopped by callback", "max_time"  # how training ends


class StopOnSignal(Callback):
    """Ends a Trainer within a batch of a signal, also where code has swallowed the exception `Stopped`."""

    stackable = True

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """Raise `Stopped` where a signal has arrived."""
        signals.check()

    on_train_batch_end = on_train_batch_start
    on_validation_batch_start = on_validation_batch_end = on_train_batch_start
    on_test_batch_start = on_test_batch_end = on_train_batch_start
    on_predict_batch_start = on_predict_batch_end = on_train_batch_start


class PlannedLength(Callback):
    """Compares batches and epochs with those that were planned, at the end of each epoch and of training.

    Lightning ends an epoch, or the whole of training, without a word when a hook, a backward pass or an
    optimiser raises StopIteration, and when a data loader yields fewer batches than its length.

    Raises:
        RunError: where there are fewer, naming both numbers, unless ``max_steps`` is reached,
            ``trainer.should_stop`` is set, or the module's ``on_train_batch_start`` has skipped the rest of an
            epoch.
    """

    stackable = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the number of batches."""
        done: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        planned = trainer.num_training_batches
        skipped = done.started < done.ready == done.processed
        if not (skipped or _may_end(trainer)) and done.completed < planned < float("inf"):
            raise RunError(
                f"epoch {trainer.current_epoch + 1} ended after {done.completed} of {planned} training "
                f"batches, and nothing asked for that: {_CAUSES}"
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the number of epochs."""
        if ended(trainer) == STOPPED and not trainer.should_stop:
            epochs = trainer.max_epochs
            planned = f"{trainer.max_steps} updates" if epochs is None or epochs < 0 else f"{epochs} epochs"
            raise RunError(
                f"training ended after {trainer.current_epoch} epochs and {trainer.global_step} updates of "
                f"{planned}, and nothing asked for that: {_CAUSES}"
            )


_CAUSES = "a hook raised StopIteration, or the data loader yields fewer batches than its length"


def ended(trainer: pl.Trainer) -> str:
    """How the training of a Trainer ended: `PLANNED`, `TIME` or `STOPPED`."""
    if _reached(trainer.current_epoch, trainer.max_epochs) or _reached(trainer.global_step, trainer.max_steps):
        return PLANNED
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    left = [callback.time_remaining() for callback in callbacks if isinstance(callback, Timer)]
    return TIME if any(seconds is not None and seconds <= 0 for seconds in left) else STOPPED


def _may_end(trainer: pl.Trainer) -> bool:
    """Whether an epoch may end before its last batch."""
    return trainer.should_stop or _reached(trainer.global_step, trainer.max_steps)


def _reached(number: int, limit: int | None) -> bool:
    """Whether a limit is reached; -1 and None limit nothing."""
    return limit is not None and 0 <= limit <= number
