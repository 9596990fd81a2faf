"""Rows of what a Trainer logs, and how far its training is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor

from actlab.config.metrics import ONE_BATCH
from actlab.engines.run_records import JobRecord
from actlab.stacking import StackedTask
from actlab.studies.rows import Row, split_name
from actlab.studies.run_folder import RunFolder
from actlab.tasks.training import Training


class LoggedRows(Checkpoint):
    """Adds what a Trainer logs to the pending rows of runs, each value once.

    It neither writes rows nor decides whether a run goes on: `Recorder` does. A subclass of
    `Checkpoint`, because Lightning calls checkpoints after the metrics of an epoch are logged.
    """

    # Its hooks around a test are for loops: what steps log belongs to the epoch
    tested_by_steps = True

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        self.record = JobRecord(folders)
        self._seen: dict[str, Tensor] = {}  # metrics that already have rows, or none
        self._before_test: dict[str, Tensor] = {}

    def on_train_epoch_start(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> None:
        """Set aside the metrics logged so far, which do not belong to this epoch or validation."""
        self._seen = dict(trainer.callback_metrics)

    on_validation_start = on_train_epoch_start

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add rows for the validation metrics at this step."""
        self.add_loop(trainer, "val")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set aside the metrics logged so far, which do not belong to this test within training."""
        self._before_test = dict(trainer.callback_metrics)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add rows for the test metrics at this step; the epoch's own metrics are still to come."""
        metrics = _logged_since(self._before_test, trainer)
        self._add_named(trainer, metrics, "", "test")
        self._seen |= metrics

    def add_loop(self, trainer: Trainer, loop: str) -> None:
        """Add the metrics that a loop, ``train`` or ``val``, has logged since it began."""
        # Take what was logged: a stack logs the metrics of its runs itself
        task = trainer.lightning_module
        if isinstance(task, StackedTask):
            metrics = task.latest
            task.latest = {}
        else:
            metrics = _logged_since(self._seen, trainer)
            self._seen = dict(trainer.callback_metrics)

        # Add rows, with the split where metrics are named by it, else with the loop
        if trainer.sanity_checking:
            return
        if isinstance(task, Training):
            self._add_splits(trainer, metrics)
            return

        # Mark values of a single batch
        last_batch = _last_batch_metrics(trainer) if loop == "train" else {}
        whole_loop = {name: metrics[name] for name in metrics if name not in last_batch}
        self._add_named(trainer, whole_loop, "", loop)
        self._add_named(trainer, last_batch, ONE_BATCH, loop)

    def _add_splits(self, trainer: Trainer, metrics: Mapping[str, Tensor]) -> None:
        """Add rows of each run of actlab's tasks, whose names of metrics say the split."""
        moment = epochs_done(trainer), trainer.global_step
        for name, column in metrics.items():
            parts = split_name(name)
            values = column.flatten().tolist()  # of the runs
            for run, value in zip(self.record.runs, values, strict=True):
                row = Row(*moment, *parts, float(value))
                run.pending.append(row)

    def _add_named(
        self,
        trainer: Trainer,
        metrics: Mapping[str, Tensor],
        condition: str,
        loop: str,
    ) -> None:
        """Add rows with the loop, of a module whose names of metrics need not say it."""
        moment = epochs_done(trainer), trainer.global_step
        for name, value in metrics.items():
            split, metric, _ = split_name(name)
            row = Row(*moment, split, metric, condition, float(value), loop)
            self.record.runs[0].pending.append(row)


def _logged_since(before: Mapping[str, Tensor], trainer: Trainer) -> dict[str, Tensor]:
    """Return the metrics logged since there were those ``before``; Lightning keeps older values."""
    logged = trainer.callback_metrics
    return {
        name: value for name, value in logged.items() if value is not before.get(name)
    }


def _last_batch_metrics(trainer: Trainer) -> dict[str, Tensor]:
    """Return what training logged for its last batch, and not for the epoch.

    Lightning drops such values at a validation.
    """
    values = {}
    results: Any = trainer.fit_loop.epoch_loop._results
    for _, item in results.valid_items():
        is_per_batch = item.meta.on_step and not item.meta.on_epoch
        if is_per_batch and item._forward_cache is not None:
            values[item.meta.name] = item._forward_cache
    return values


def epochs_done(trainer: Trainer) -> float:
    """Return the number of passes over the training data, counted in batches; whole after an epoch.

    If the data loader has no length, the fraction of an epoch after n batches is n / (n + 1).
    """
    epoch = trainer.current_epoch
    progress = trainer.fit_loop.epoch_loop.batch_progress
    done = progress.current.completed

    batches = trainer.num_training_batches  # an infinite float without a length
    if isinstance(batches, int):
        return (epoch * batches + done) / max(1, batches)
    if progress.is_last_batch:
        return epoch + 1.0
    return epoch + done / (done + 1)


def fraction_done(trainer: Trainer, epochs: float) -> float:
    """Return the completed fraction of training after ``epochs``; below 1 until it is recorded."""
    # The limit that is nearer ends training: epochs or steps
    fraction = 0.0
    if trainer.max_epochs and trainer.max_epochs > 0:
        fraction = epochs / trainer.max_epochs
    if trainer.max_steps > 0:
        fraction = max(fraction, trainer.global_step / trainer.max_steps)
    return min(fraction, 0.999)
