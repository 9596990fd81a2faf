"""The stacked engine: runs that differ in seed, learning rate, weight decay or dropout share one Trainer.

It leaves the folders that the sequential engine leaves, and in ``stacks/`` one folder a stack with its
checkpoint. `actlab.engines.packing` decides which runs form a stack.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger

from actlab import experiments
from actlab.checkpoints import AtomicCheckpointIO
from actlab.datamodules.base import TensorDataModule
from actlab.engines.folders import DIVERGED, FINISHED, Row, RunFolder
from actlab.engines.memory import keep_freed
from actlab.engines.packing import EPOCHS, FILE, Stack
from actlab.engines.sequential import LoggerFactory, Progress, TimedRecorder, batch_size, threads, threads_for
from actlab.errors import ActlabError
from actlab.stacking.task import StackedTask
from actlab.studies.plan import Run, get_dotted, set_dotted
from actlab.tasks import Task

SIZES = (5, 15, 45, 150, 450)  # of stacks, that `find_size` tries
WARM_UP = 4  # updates that are not timed


class StackRecorder(TimedRecorder):
    """Writes every member's rows, and the checkpoint of the stack, after every epoch.

    A member that diverges, or reaches its own number of epochs, is closed there; the others go on.
    """

    def __init__(
        self,
        stack: Stack,
        folders: Sequence[RunFolder],
        path: Path,
        progress: Progress,
        loggers: Sequence[Logger] = (),
    ) -> None:
        super().__init__()
        self.stack, self.folders, self.progress, self.loggers = stack, list(folders), progress, loggers
        self.checkpoint = path / "last.ckpt"
        self.epochs = [int(get_dotted(f.run.config, EPOCHS)) for f in folders]
        self.pending: list[tuple[int, float, dict[str, list[float]]]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop rows that the resumed checkpoint does not hold."""
        for folder in self.folders:
            if not folder.finished:
                folder.cut_back(trainer.global_step)
        self.start_clock()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the validation metrics, at this step."""
        self._take(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Append rows; close members that diverged or are through; save the stack."""
        assert isinstance(pl_module, StackedTask)
        self._take(trainer, pl_module)
        self.read_clock()
        epoch = trainer.current_epoch + 1
        for r, folder in enumerate(self.folders):
            if folder.finished:
                continue
            rows = [
                Row(e, step, *split_name(name), "", values[r])
                for step, e, metrics in self.pending
                for name, values in metrics.items()
            ]
            if any(row.metric == "loss" and not math.isfinite(row.value) for row in rows):
                self._close(r, pl_module, DIVERGED, epoch - 1, trainer.global_step)
                continue
            folder.append(rows)
            self._log(r, rows)
            if epoch == self.epochs[r] < (trainer.max_epochs or 0):
                self._close(r, pl_module, FINISHED, epoch, trainer.global_step)
            elif epoch < self.epochs[r]:
                self.progress(folder.run, epoch / self.epochs[r])
        self.pending = []
        trainer.save_checkpoint(self.checkpoint)
        trainer.should_stop = all(folder.finished for folder in self.folders)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the members that went to the end."""
        assert isinstance(pl_module, StackedTask)
        for r, folder in enumerate(self.folders):
            if not folder.finished:
                self._close(r, pl_module, FINISHED, trainer.current_epoch, trainer.global_step)

    def _take(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, StackedTask)
        latest = {name: values.tolist() for name, values in task.latest.items()}
        task.latest = {}
        if latest:
            step = trainer.global_step
            self.pending.append((step, step / trainer.num_training_batches, latest))

    def _log(self, r: int, rows: Iterable[Row]) -> None:
        if self.loggers:
            steps: dict[int, dict[str, float]] = {}
            for row in rows:
                steps.setdefault(row.step, {"epoch": row.epoch})[f"{row.split}/{row.metric}"] = row.value
            for step, metrics in steps.items():
                self.loggers[r].log_metrics(metrics, step)

    def _close(self, r: int, task: StackedTask, status: str, last_good_epoch: int, updates: int) -> None:
        folder = self.folders[r]
        export(task, r, folder)
        folder.finish(
            status,
            engine="stacked",
            stack={"id": self.stack.id, "size": len(self.folders), "member": r, "threads": self.stack.threads},
            last_good_epoch=last_good_epoch,
            updates=updates,
            seconds=round(self.seconds / len(self.folders), 3),
        )
        if self.loggers:
            self.loggers[r].finalize("success" if status == FINISHED else "failed")
        self.progress(folder.run, 1.0)


def split_name(name: str) -> tuple[str, str]:
    """``val/loss`` → split and metric."""
    split, _, metric = name.partition("/")
    return split, metric


def export(task: StackedTask, r: int, folder: RunFolder) -> None:
    """Write member ``r`` as an ordinary checkpoint that ``actlab test`` and Trainer load."""
    state = {f"network.{name}": value for name, value in task.network.member_state(r).items()}
    checkpoint = {
        "state_dict": state,
        "epoch": task.current_epoch,
        "global_step": task.global_step,
        "pytorch-lightning_version": version("pytorch-lightning"),
    }
    AtomicCheckpointIO().save_checkpoint(checkpoint, folder.checkpoint)


def execute(
    runs: Sequence[Run],
    stacks: Sequence[Stack],
    root: Path,
    progress: Progress,
    logger: LoggerFactory | None = None,
) -> None:
    """Train each stack, resuming from its last checkpoint.

    Args:
        runs: of one study, among them all members.
        stacks: from `plan_stacks`.
        root: the study's folder.
        progress: called for each member after each epoch.
        logger: makes a logger for a run; none by default.

    Raises:
        ActlabError: when a member of a stack is no longer a run of the study.
    """
    keep_freed()
    by_id = {run.id: run for run in runs}
    for stack in stacks:
        if missing := [member for member in stack.members if member not in by_id]:
            raise ActlabError(
                f"stack {stack.id} in {root / FILE} holds {missing[0]}, which this study no "
                "longer has; run it as it was started, or in another --runs-dir"
            )
        train(stack, [by_id[member] for member in stack.members], root, progress, logger)


def train(
    stack: Stack, runs: Sequence[Run], root: Path, progress: Progress, logger: LoggerFactory | None = None
) -> None:
    """Train one stack to its end."""
    folders = [RunFolder(root, run) for run in runs]
    for folder in folders:
        if not folder.finished:
            folder.open()
    path = root / "stacks" / stack.id
    recorder = StackRecorder(stack, folders, path, progress, [logger(run) for run in runs] if logger else ())
    trainer, task, data = assemble(runs, recorder, path)
    resume = recorder.checkpoint if recorder.checkpoint.exists() else None
    with threads(stack.threads):
        trainer.fit(task, datamodule=data, ckpt_path=resume)
    recorder.checkpoint.unlink(missing_ok=True)  # every member has its own by now


class Stopwatch(Checkpoint):
    """Times every update."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        """Note the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Of the fastest update: what else the computer does only adds time."""
        return min(after - before for before, after in pairwise(self.times[WARM_UP:]))


def find_size(runs: Sequence[Run], most: int) -> int:
    """The size of stacks that is fastest here, by a few updates of each.

    Args:
        runs: that may be stacked.
        most: how many fit into memory.

    Returns:
        One of `SIZES`, ``most``, or the number of runs: the one of the least time an update and run.
    """
    most = min(most, len(runs))
    sizes = sorted({most, *(size for size in SIZES if size < most)})
    if len(sizes) == 1:
        return most
    keep_freed()
    short = [replace(run, config=_short(run)) for run in runs[:most]]
    taken: dict[int, float] = {}
    for size in sizes:
        watch = Stopwatch()
        with TemporaryDirectory() as folder, threads(threads_for(size * batch_size(runs[0]))):
            trainer, task, data = assemble(short[:size], watch, Path(folder))
            trainer.fit(task, datamodule=data)
        taken[size] = watch.seconds / size
    return min(taken, key=taken.__getitem__)


def _short(run: Run) -> dict[str, Any]:
    config = copy.deepcopy(run.config)
    changes = {"max_steps": WARM_UP + 16, "max_epochs": 1000, "limit_val_batches": 0, "callbacks": None}
    for key, value in changes.items():
        set_dotted(config, f"trainer.{key}", value)
    return config


def assemble(runs: Sequence[Run], recorder: Checkpoint, path: Path) -> experiments.Experiment:
    """Trainer, stacked task and datamodule of some runs."""
    members = [experiments.build(run.config).task for run in runs]
    longest = copy.deepcopy(max(runs, key=lambda run: int(get_dotted(run.config, EPOCHS))).config)
    trainer, _, data = experiments.build(longest, callbacks=[recorder], default_root_dir=str(path))
    assert isinstance(data, TensorDataModule)
    data.seed = [run.seed for run in runs]
    return experiments.Experiment(trainer, StackedTask([m for m in members if isinstance(m, Task)]), data)
