"""Callbacks of Trainers: stop on signals, reject epochs that end early, fuse no activation."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from actlab.errors import RunError
from actlab.runtime import signals
from actlab.runtime.modules import unfuse


class StopOnSignal(Callback):
    """Ends a Trainer within one batch after a signal, even if code swallowed `Stopped`."""

    stackable = tested_by_steps = blocks = True

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """Raise `Stopped` if a signal has arrived."""
        signals.check()

    on_train_batch_end = on_train_batch_start
    on_validation_batch_start = on_validation_batch_end = on_train_batch_start
    on_test_batch_start = on_test_batch_end = on_train_batch_start
    on_predict_batch_start = on_predict_batch_end = on_train_batch_start


class Unfused(Callback):
    """Calls `unfuse` for a third-party module, which is complete after its ``configure_model``."""

    tested_by_steps = True

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Let encoder layers call their own activation."""
        unfuse(pl_module)

    on_validation_start = on_test_start = on_predict_start = on_fit_start


class PlannedLength(Callback):
    """Raises `RunError` for epochs that end before their planned number of batches.

    Lightning silently ends an epoch when a hook, a backward pass or an optimiser raises
    StopIteration, or when a data loader yields fewer batches than its length. Exempt are runs that
    reach ``max_steps``, set ``trainer.should_stop``, or skip the rest of an epoch in the module's
    ``on_train_batch_start``.
    """

    stackable = True

    def on_train_epoch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Compare the number of batches with the plan."""
        done: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        planned = trainer.num_training_batches
        skipped = done.started < done.ready == done.processed
        # -1 is no limit
        stopped = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
        if not (skipped or stopped) and done.completed < planned < float("inf"):
            raise RunError(
                f"epoch {trainer.current_epoch + 1} ended after {done.completed} of {planned} "
                "training batches without a stop request: a hook raised StopIteration, or the data "
                "loader yielded fewer batches than its length"
            )
