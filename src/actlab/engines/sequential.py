"""One run with a Trainer of its own, recorded into its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from actlab import experiments
from actlab.checkpoints import AtomicCheckpointIO, config_of
from actlab.engines import unit_records
from actlab.engines.devices import SMALL, rank, threads, threads_for
from actlab.engines.folders import DIVERGED, FINISHED, Row, RunFolder, split_name
from actlab.engines.recording import (
    LoggerFactory,
    Progress,
    TimedRecorder,
    diverged,
    epochs_done,
    fraction_done,
    revisions_of,
    summarise,
    write_checkpoint,
)
from actlab.guards import ended
from actlab.studies.plan import Run


class Recorder(TimedRecorder):
    """Writes a run's rows and its checkpoint after every epoch, and stops it when it has diverged.

    On several devices all of them take part in saving, and the first one writes.
    """

    def __init__(self, folder: RunFolder, progress: Progress) -> None:
        super().__init__()
        self.folder, self.progress = folder, progress
        self.pending: list[Row] = []
        self.diverged = self.stopped = False
        self.last_good: int | None = None  # epochs before it diverged
        self._seen: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        """As every recorder's, with whether the run was stopped."""
        return {**super().state_dict(), "stopped": self.stopped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what `state_dict` holds."""
        super().load_state_dict(state_dict)
        self.stopped = bool(state_dict.get("stopped"))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop rows that the resumed checkpoint does not hold; do not go on where it was stopped early."""
        trainer.should_stop = self.stopped or trainer.should_stop
        if trainer.is_global_zero:
            self.cut_back(self.folder, trainer.global_step)
            unit_records.cut_back(self.folder, trainer.current_epoch)
        self._keep(trainer, pl_module, trainer.current_epoch)
        self.start_clock()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take note of what is there, which is old from now on."""
        self._seen = dict(trainer.callback_metrics)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take note of what is there, which is not of this validation."""
        self._seen = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the validation metrics, at this step."""
        if not trainer.sanity_checking:
            self._take(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Append the epoch's rows and save the checkpoint; stop at a loss that is not finite."""
        if trainer.is_global_zero:
            self.check_there(self.folder)
        self._take(trainer)
        if trainer.strategy.reduce_boolean_decision(diverged(self.pending), all=False):
            if not self.diverged:  # with min_epochs a Trainer goes on
                self.last_good = trainer.current_epoch
            self.diverged = trainer.should_stop = True
            return
        self.read_clock()
        self._keep(trainer, pl_module, trainer.current_epoch + 1)
        if trainer.is_global_zero:
            self.append(self.folder, self.pending)
            unit_records.append(self.folder, trainer.current_epoch + 1, unit_records.seen(trainer))
        self.pending, self.stopped = [], trainer.should_stop
        trainer.save_checkpoint(self.folder.checkpoint)
        self.progress(self.folder.run, fraction_done(trainer))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Sum the run up, before its loggers are closed."""
        for logger in trainer.loggers:
            summarise(logger, self.folder.rows() if trainer.is_global_zero else (), self.diverged)

    def _take(self, trainer: pl.Trainer) -> None:
        """Add what was logged since the last call as rows at this step; Lightning keeps what is older."""
        step, metrics = trainer.global_step, trainer.callback_metrics
        epoch = epochs_done(trainer)
        fresh = {name: value for name, value in metrics.items() if value is not self._seen.get(name)}
        self._seen = dict(metrics)
        self.pending += [Row(epoch, step, *split_name(name), "", float(value)) for name, value in fresh.items()]

    def _keep(self, trainer: pl.Trainer, task: pl.LightningModule, epoch: int) -> None:
        for name in self.kept_names(self.folder.run, epoch, self.pending):
            if trainer.is_global_zero:
                path, config = self.folder.kept(name), config_of(trainer)
                write_checkpoint(task.state_dict(), epoch, trainer.global_step, path, config)


def train(
    run: Run, root: Path, progress: Progress, logger: LoggerFactory | None = None, number: int = 0
) -> None:
    """Train one run to its end, resuming from its last checkpoint; a diverged run is recorded as such.

    Args:
        run: of a study.
        root: the study's folder.
        progress: called after each epoch.
        logger: makes a logger for a run; none by default.
        number: of threads; 0 leaves it to the size of a batch.

    Raises:
        ActlabError: for a config or dataset that cannot be used.
    """
    folder = RunFolder(root, run)
    if rank() == 0:
        folder.open()
    recorder = Recorder(folder, progress)
    trainer, task, data = experiments.build(run.config, callbacks=[recorder], default_root_dir=str(folder.path))
    if logger:
        trainer.logger = logger(run)
    if isinstance(writer := trainer.strategy.checkpoint_io, AtomicCheckpointIO):
        writer.remedy = folder.remedy
    resume = folder.checkpoint if folder.started else None
    with threads(number or threads_for(getattr(data, "batch_size", None) or SMALL)):
        trainer.fit(task, datamodule=data, ckpt_path=resume)
    if trainer.is_global_zero:
        finish(recorder, trainer)


def finish(recorder: Recorder, trainer: pl.Trainer) -> None:
    """Close the run folder with how the run ended."""
    last_good = trainer.current_epoch if recorder.last_good is None else recorder.last_good
    recorder.check_rows(recorder.folder)
    recorder.folder.finish(
        DIVERGED if recorder.diverged else FINISHED,
        unit_records.close(recorder.folder, last_good, trainer.global_step),
        engine="sequential",
        ended=DIVERGED if recorder.diverged else ended(trainer),
        last_good_epoch=last_good,
        updates=trainer.global_step,
        revisions=revisions_of(trainer),
        seconds=round(recorder.seconds, 3),
    )
    recorder.progress(recorder.folder.run, 1.0)
