"""A stack of runs with one Trainer, every member recorded into its own folder.

It leaves the folders that training one by one leaves, and in ``stacks/`` one folder a stack with its
checkpoint. `actlab.engines.packing` decides which runs form a stack.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger
from torch import Tensor

from actlab import experiments
from actlab.checkpoints import AtomicCheckpointIO, read
from actlab.datamodules.base import TensorDataModule
from actlab.engines import unit_records
from actlab.engines.devices import threads
from actlab.engines.folders import DIVERGED, FINISHED, Row, RunFolder, split_name
from actlab.engines.memory import keep_freed
from actlab.engines.packing import Job
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
from actlab.experiments import Experiment
from actlab.members import build_tasks
from actlab.stacking import StackedNetwork, StackedTask
from actlab.studies.plan import Run


class StackRecorder(TimedRecorder):
    """Writes every member's rows, and the checkpoint of the stack, after every epoch.

    A member that diverges, or reaches its own number of epochs, is closed there; the others go on.
    """

    def __init__(
        self,
        job: Job,
        folders: Sequence[RunFolder],
        path: Path,
        progress: Progress,
        loggers: Mapping[int, Logger],
    ) -> None:
        super().__init__()
        self.job, self.folders, self.progress, self.loggers = job, list(folders), progress, loggers
        self.checkpoint = path / "last.ckpt"
        for folder in folders:  # without rows of one member all begin anew
            folder.remedy = f"delete {path} and {folder.path}, then run the study again"
        self.pending: list[tuple[int, float, dict[str, list[float]]]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop rows that the resumed checkpoint does not hold."""
        assert isinstance(pl_module, StackedTask)
        for r, folder in enumerate(self.folders):
            if not folder.finished:
                self.cut_back(folder, trainer.global_step)
                unit_records.cut_back(folder, trainer.current_epoch)
                self._keep(r, pl_module, trainer.current_epoch, [])
        self.start_clock()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the validation metrics, at this step."""
        self._take(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Append rows; close members that diverged or have reached their end; save the stack."""
        assert isinstance(pl_module, StackedTask)
        self._take(trainer, pl_module)
        self.read_clock()
        epoch, units = trainer.current_epoch + 1, unit_records.seen(trainer)
        for r, folder in enumerate(self.folders):
            if folder.finished:
                continue
            rows = [
                Row(e, step, *split_name(name), "", values[r])
                for step, e, metrics in self.pending
                for name, values in metrics.items()
            ]
            if diverged(rows):
                self._close(r, trainer, DIVERGED, epoch - 1)
                continue
            self._keep(r, pl_module, epoch, rows)
            self.append(folder, rows)
            unit_records.append(folder, epoch, units, r)
            self._log(r, rows)
            last = folder.run.epochs
            if last is not None and epoch == last < (trainer.max_epochs or 0):
                self._close(r, trainer, FINISHED, epoch)
            else:
                done = fraction_done(trainer) if last is None else epoch / last
                self.progress(folder.run, min(done, 0.999))
        self.pending = []
        trainer.save_checkpoint(self.checkpoint)
        trainer.should_stop = all(folder.finished for folder in self.folders)

    def close(self, trainer: pl.Trainer) -> None:
        """Close the members that went to the end, in this start or in one that was killed closing them."""
        for r, folder in enumerate(self.folders):
            if not folder.finished:
                self._close(r, trainer, FINISHED, trainer.current_epoch)

    def _take(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, StackedTask)
        latest = {name: values.tolist() for name, values in task.latest.items()}
        task.latest = {}
        if latest and not trainer.sanity_checking:
            self.pending.append((trainer.global_step, epochs_done(trainer), latest))

    def _keep(self, r: int, task: StackedTask, epoch: int, rows: list[Row]) -> None:
        folder = self.folders[r]
        for name in self.kept_names(folder.run, epoch, rows):
            state, config = state_of(task.network, r), task.members[r].config
            write_checkpoint(state, epoch, task.global_step, folder.kept(name), config)

    def _log(self, r: int, rows: Iterable[Row]) -> None:
        if r in self.loggers:
            steps: dict[int, dict[str, float]] = {}
            for row in rows:
                steps.setdefault(row.step, {"epoch": row.epoch})[row.name] = row.value
            for step, metrics in steps.items():
                self.loggers[r].log_metrics(metrics, step)

    def _close(self, r: int, trainer: pl.Trainer, status: str, last_good_epoch: int) -> None:
        folder, task, updates = self.folders[r], trainer.lightning_module, trainer.global_step
        assert isinstance(task, StackedTask)
        self.check_rows(folder)
        if r in self.loggers:
            summarise(self.loggers[r], folder.rows(), status != FINISHED)
        network = task.network if status == FINISHED else self._last_good(task.network)
        if network is not None:
            state, config = state_of(network, r), task.members[r].config
            write_checkpoint(state, last_good_epoch, updates, folder.checkpoint, config)
        folder.finish(
            status,
            unit_records.close(folder, last_good_epoch, updates),
            engine="stacked",
            stack={"id": self.job.id, "size": len(self.folders), "member": r, "threads": self.job.threads},
            last_good_epoch=last_good_epoch,
            updates=updates,
            revisions=revisions_of(trainer),
            seconds=round(self.seconds / len(self.folders), 3),
        )
        if r in self.loggers:
            self.loggers[r].finalize("success" if status == FINISHED else "failed")
        self.progress(folder.run, 1.0)

    def _last_good(self, network: StackedNetwork) -> StackedNetwork | None:
        """The networks after the last epoch but one, as the stack's checkpoint has them; None in the first."""
        if not self.checkpoint.exists():
            return None
        state = read(self.checkpoint)["state_dict"]
        former = copy.deepcopy(network).to("cpu")
        own = {n.removeprefix("network."): v for n, v in state.items() if n.startswith("network.")}
        former.load_state_dict(own)
        return former


def state_of(network: StackedNetwork, r: int) -> dict[str, Tensor]:
    """The state of member ``r``'s task, under the names that it has alone."""
    return {f"network.{name}": value for name, value in network.member_state(r).items()}


def train(job: Job, root: Path, progress: Progress, logger: LoggerFactory | None = None) -> None:
    """Train one stack to its end, resuming from its last checkpoint.

    Args:
        job: a stack.
        root: the study's folder.
        progress: called for each member after each epoch.
        logger: makes a logger for a run; none by default.
    """
    keep_freed()
    folders = [RunFolder(root, run) for run in job.runs]
    unfinished = [r for r, folder in enumerate(folders) if not folder.finished]
    for r in unfinished:
        folders[r].open()
    path = root / "stacks" / job.id
    loggers = {r: logger(job.runs[r]) for r in unfinished} if logger else {}
    recorder = StackRecorder(job, folders, path, progress, loggers)
    trainer, task, data = assemble(job.runs, recorder, path)
    if isinstance(writer := trainer.strategy.checkpoint_io, AtomicCheckpointIO):
        writer.remedy = f"delete {path}; its runs begin anew"
    resume = recorder.checkpoint if recorder.checkpoint.exists() else None
    with threads(job.threads):
        trainer.fit(task, datamodule=data, ckpt_path=resume)
    recorder.close(trainer)
    recorder.checkpoint.unlink(missing_ok=True)  # every member has its own by now


def assemble(runs: Sequence[Run], recorder: Checkpoint, path: Path) -> Experiment:
    """Trainer, stacked task and datamodule of some runs."""
    longest = max(runs, key=lambda run: run.epochs or 0)
    first = experiments.build(copy.deepcopy(longest.config), callbacks=[recorder], default_root_dir=str(path))
    tasks = list(build_tasks([run.config for run in runs], first))
    trainer, _, data = first
    writer = trainer.strategy.checkpoint_io
    if isinstance(writer, AtomicCheckpointIO):
        writer.config = None  # it is of one member; the stack's own checkpoint holds them all
    assert isinstance(data, TensorDataModule)  # the only ones that say they can serve a stack
    data.seed = [run.seed for run in runs]
    return Experiment(trainer, StackedTask(tasks), data)
