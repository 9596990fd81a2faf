"""Train a stack of runs with one Trainer and record each member in its own folder.

The run folders are the same as after training one by one. In addition, ``stacks/`` has one folder per stack
with its checkpoint. `actlab.engines.packing` decides which runs form a stack.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from torch import Tensor

from actlab.engines.jobs import Job
from actlab.engines.recording import LoggerFactory, Progress, Recorder, summarise
from actlab.runtime import signals
from actlab.runtime.devices import keep_freed, threads
from actlab.stacking import StackedTask
from actlab.stacking.building import assemble
from actlab.stacking.network import task_state
from actlab.storage.checkpoints import AtomicCheckpointIO, read, write_weights
from actlab.studies import stacks
from actlab.studies.folders import Row, RunFolder
from actlab.tasks.metrics import log_table


class StackRecorder(Recorder):
    """Records each member of a stack. A member that diverges is closed at once; the others continue."""

    engine = "stacked"

    def __init__(self, job: Job, folders: Sequence[RunFolder], checkpoint: Path, progress: Progress) -> None:
        super().__init__(
            folders, checkpoint, progress, f"delete {checkpoint.parent}; its runs start from scratch"
        )
        self.job = job
        self.loggers: dict[int, Logger] = {}  # by index of the run

    def _logged(self, trainer: pl.Trainer) -> list[dict[str, float]]:
        task = stacked_in(trainer)
        latest, task.latest = task.latest, {}
        columns = {name: values.tolist() for name, values in latest.items()}
        return [{name: values[r] for name, values in columns.items()} for r in range(len(self.folders))]

    def _state(self, r: int, trainer: pl.Trainer) -> tuple[Mapping[str, Tensor], Mapping[str, Any] | None]:
        task = stacked_in(trainer)
        return task_state(task.network, r), task.members[r].config

    def _log(self, r: int, rows: Sequence[Row], matrices: Mapping[str, Any]) -> None:
        if r in self.loggers:
            steps: dict[int, dict[str, float]] = {}
            for row in rows:
                steps.setdefault(row.step, {"epoch": row.epoch})[row.logged] = row.value
            for step, metrics in steps.items():
                self.loggers[r].log_metrics(metrics, step)
            for name, values in matrices.items():
                log_table(self.loggers[r], name, values, rows[-1].step)

    def _diverge(self, r: int, trainer: pl.Trainer) -> None:
        """Close the run with its weights from the epoch before; in the first epoch there are none."""
        if self.checkpoint.exists():
            task, (epoch, updates) = stacked_in(trainer), self.diverged[r]
            former = copy.deepcopy(task.network).to("cpu")
            state = read(self.checkpoint)["state_dict"]
            former.load_state_dict({n.removeprefix("network."): v for n, v in state.items() if "network." in n})
            config = task.members[r].config
            write_weights(task_state(former, r), epoch, updates, self.folders[r].checkpoint, config)
        self._finish(r, self.folders[r], trainer)

    def _finish(self, r: int, folder: RunFolder, trainer: pl.Trainer, **facts: Any) -> None:
        if r in self.loggers:
            summarise(self.loggers[r], self.rows[r], r in self.diverged)
        if r not in self.diverged:
            state, config = self._state(r, trainer)
            write_weights(state, trainer.current_epoch, trainer.global_step, folder.checkpoint, config)
        stack = {"id": self.job.id, "size": len(self.folders), "member": r, "threads": self.job.threads}
        super()._finish(r, folder, trainer, **facts, stack=stack)
        if r in self.loggers:
            self.loggers.pop(r).finalize("failed" if r in self.diverged else "success")


def stacked_in(trainer: pl.Trainer) -> StackedTask:
    """Return the stack that a Trainer trains."""
    task = trainer.lightning_module
    assert isinstance(task, StackedTask)
    return task


def train(job: Job, root: Path, progress: Progress, logger: LoggerFactory | None = None) -> None:
    """Train one stack to completion, resuming from its last checkpoint."""
    keep_freed()
    folders = [RunFolder(root, run) for run in job.runs]
    unfinished = [r for r, folder in enumerate(folders) if not folder.finished]
    for r in unfinished:
        folders[r].open()
    checkpoint = job.checkpoint(root)
    stacks.begin(checkpoint.parent, job.names, job.threads)  # a record of parts belongs to it
    recorder = StackRecorder(job, folders, checkpoint, progress)
    trainer, task, data = assemble([run.config for run in job.runs], recorder, checkpoint.parent)
    writer = trainer.strategy.checkpoint_io
    assert isinstance(writer, AtomicCheckpointIO)
    assert isinstance(task, StackedTask)
    writer.remedy = recorder.remedy
    resume = checkpoint if checkpoint.exists() else None
    try:
        recorder.loggers = {r: logger(job.runs[r]) for r in unfinished} if logger else {}
        with threads(job.threads), signals.measured(lambda: recorder.parts(trainer)):
            trainer.fit(task, datamodule=data, ckpt_path=resume)
        recorder.close(trainer)
    finally:  # loggers of unfinished members; a later start reopens them
        for left in recorder.loggers.values():
            left.finalize("failed")
    shutil.rmtree(checkpoint.parent, ignore_errors=True)  # each member now has its own checkpoint
