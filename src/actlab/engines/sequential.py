"""The sequential engine: every run has a Trainer of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger

from actlab import experiments
from actlab.engines.folders import DIVERGED, FINISHED, Row, RunFolder
from actlab.studies.plan import Run, get_dotted

LoggerFactory = Callable[[Run], Logger]
SMALL = 400  # samples an update
Progress = Callable[[Run, float], None]  # a run and the fraction of it that is done


class TimedRecorder(Checkpoint):
    """A recorder that knows how long training took, also before a resume.

    A `Checkpoint`, because Lightning calls those after the epoch's metrics are logged.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def start_clock(self) -> None:
        """Begin, or go on, counting."""
        self._since = time.perf_counter()

    def read_clock(self) -> None:
        """Add the time since the last call to `seconds`."""
        now = time.perf_counter()
        self.seconds, self._since = self.seconds + now - self._since, now

    def state_dict(self) -> dict[str, Any]:
        """Time spent, for the checkpoint."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the time spent."""
        self.seconds = state_dict["seconds"]


class Recorder(TimedRecorder):
    """Writes a run's rows and its checkpoint after every epoch, and stops it when it has diverged."""

    def __init__(self, folder: RunFolder, progress: Progress) -> None:
        super().__init__()
        self.folder, self.progress = folder, progress
        self.pending: list[Row] = []
        self.diverged = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop rows that the resumed checkpoint does not hold."""
        self.folder.cut_back(trainer.global_step)
        self.start_clock()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the validation metrics, at this step."""
        self.pending += rows(trainer, ("val",))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Append the epoch's rows and save the checkpoint; stop at a loss that is not finite."""
        self.pending += rows(trainer, ("train", "test"))
        if any(row.metric == "loss" and not math.isfinite(row.value) for row in self.pending):
            self.diverged = trainer.should_stop = True
            return
        self.read_clock()
        self.folder.append(self.pending)
        self.pending = []
        trainer.save_checkpoint(self.folder.checkpoint)
        self.progress(self.folder.run, (trainer.current_epoch + 1) / (trainer.max_epochs or 1))


def threads_for(samples: int) -> int:
    """How many threads pay for updates of so many samples, over all members of a stack.

    Below `SMALL` samples a second thread gains at most a quarter alone, and on a busy machine it loses many
    times as much, waiting for the first.
    """
    return 1 if samples < SMALL and not torch.cuda.is_available() else torch.get_num_threads()


def batch_size(run: Run) -> int:
    """Samples an update."""
    return int(get_dotted(run.config, "data.batch_size", SMALL))


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch use some number of threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rows(trainer: pl.Trainer, splits: Iterable[str]) -> list[Row]:
    """The latest metrics of some splits as rows at the current step."""
    step = trainer.global_step
    epoch = step / trainer.num_training_batches
    named = ((*name.partition("/")[::2], value) for name, value in trainer.callback_metrics.items())
    return [
        Row(epoch, step, split, metric, "", float(value)) for split, metric, value in named if split in splits
    ]


def execute(runs: Iterable[Run], root: Path, progress: Progress, logger: LoggerFactory | None = None) -> None:
    """Train each unfinished run, resuming from its last checkpoint; diverged runs are recorded as such.

    Args:
        runs: of one study.
        root: the study's folder.
        progress: called after each epoch.
        logger: makes a logger for a run; none by default.

    Raises:
        ActlabError: for a config or dataset that cannot be used.
    """
    for run in runs:
        folder = RunFolder(root, run)
        if not folder.finished:
            folder.open()
            recorder = Recorder(folder, progress)
            experiment = build(run, recorder, logger)
            resume = folder.checkpoint if folder.started else None
            with threads(threads_for(batch_size(run))):
                experiment.trainer.fit(experiment.task, datamodule=experiment.data, ckpt_path=resume)
            finish(recorder, experiment.trainer)


def build(run: Run, recorder: Recorder, logger: LoggerFactory | None = None) -> experiments.Experiment:
    """Trainer, task and datamodule of a run, quiet and recording into its folder."""
    experiment = experiments.build(
        run.config,
        callbacks=[recorder],
        default_root_dir=str(recorder.folder.path),
    )
    if logger:
        experiment.trainer.logger = logger(run)
    return experiment


def finish(recorder: Recorder, trainer: pl.Trainer) -> None:
    """Close the run folder with how the run ended."""
    epochs = trainer.current_epoch
    recorder.folder.finish(
        DIVERGED if recorder.diverged else FINISHED,
        engine="sequential",
        last_good_epoch=epochs - 1 if recorder.diverged else epochs,
        updates=trainer.global_step,
        seconds=round(recorder.seconds, 3),
    )
    recorder.progress(recorder.folder.run, 1.0)
