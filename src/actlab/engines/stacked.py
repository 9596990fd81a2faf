"""A stack of runs with one Trainer, every member recorded into its own folder.

It leaves the folders that training one by one leaves, and in ``stacks/`` one folder a stack with its
checkpoint. `actlab.engines.packing` decides which runs form a stack.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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
from actlab.engines.recording import (
    LEFT_OUT,
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
from actlab.files import DamagedError
from actlab.guards import ended
from actlab.members import build_tasks
from actlab.stacking import StackedNetwork, StackedTask
from actlab.studies.plan import Run

if TYPE_CHECKING:
    from actlab.engines.packing import Job


class StackRecorder(TimedRecorder):
    """Writes every member's rows, and the checkpoint of the stack, after every epoch.

    A member that diverges is closed there; the others go on.
    """

    def __init__(
        self,
        job: Job,
        folders: Sequence[RunFolder],
        checkpoint: Path,
        progress: Progress,
        loggers: Mapping[int, Logger],
    ) -> None:
        super().__init__()
        self.job, self.folders, self.progress, self.loggers = job, list(folders), progress, dict(loggers)
        self.checkpoint = checkpoint
        self.left_out: set[int] = set()  # members whose record is damaged or lost: trained on, not recorded
        self.lost: list[Run] = []  # those whose record is lost
        self.pending: list[tuple[int, float, dict[str, list[float]]]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop rows that the resumed checkpoint does not hold."""
        assert isinstance(pl_module, StackedTask)
        for r, folder in self._open():
            with self._named(r):
                if self.has_lost(folder):
                    print(f"{folder.run.id} has lost its rows: it is trained from scratch, on its own")
                    self.lost.append(folder.run)
                    self._leave_out(r)
                    continue
                self.cut_back(folder, trainer.global_step)
                unit_records.cut_back(folder, trainer.current_epoch)
                self._keep(r, pl_module, trainer.current_epoch, [])
        trainer.should_stop = trainer.should_stop or not self._open()
        self.start_clock()

    def _open(self) -> list[tuple[int, RunFolder]]:
        """The members that are recorded."""
        members = enumerate(self.folders)
        return [(r, folder) for r, folder in members if not folder.finished and r not in self.left_out]

    @contextmanager
    def _named(self, r: int) -> Iterator[None]:
        """Record a member whose files are damaged as failed; the others are trained."""
        try:
            yield
        except DamagedError as error:
            self._leave_out(r)
            self.folders[r].fail(str(error))
            self.progress(self.folders[r].run, 1.0)

    def _leave_out(self, r: int) -> None:
        """Record a member no longer, in a later start neither: its rows would lack epochs."""
        self.left_out.add(r)
        self.recorded[self.folders[r].run.id] = LEFT_OUT

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the validation metrics, at this step."""
        self._take(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Append rows; close members that diverged; save the stack."""
        assert isinstance(pl_module, StackedTask)
        self._take(trainer, pl_module)
        self.read_clock()
        epoch, units = trainer.current_epoch + 1, unit_records.seen(trainer)
        for _, folder in self._open():
            self.check_there(folder)
        for r, folder in self._open():
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
            self.progress(folder.run, min(fraction_done(trainer), 0.999))
        self.pending = []
        trainer.save_checkpoint(self.checkpoint)
        trainer.should_stop = not self._open()

    def close(self, trainer: pl.Trainer) -> None:
        """Close the members that went to the end, in this start or in one that was killed closing them."""
        for r, _ in self._open():
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
        with self._named(r):
            self._finish(r, trainer, status, last_good_epoch)

    def _finish(self, r: int, trainer: pl.Trainer, status: str, last_good_epoch: int) -> None:
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
            ended=DIVERGED if status == DIVERGED else ended(trainer),
            stack={"id": self.job.id, "size": len(self.folders), "member": r, "threads": self.job.threads},
            last_good_epoch=last_good_epoch,
            updates=updates,
            revisions=revisions_of(trainer),
            seconds=round(self.seconds / len(self.folders), 3),
        )
        if r in self.loggers:
            self.loggers.pop(r).finalize("success" if status == FINISHED else "failed")
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


def train(job: Job, root: Path, progress: Progress, logger: LoggerFactory | None = None) -> list[Run]:
    """Train one stack to its end, resuming from its last checkpoint.

    Args:
        job: a stack.
        root: the study's folder.
        progress: called for each member after each epoch.
        logger: makes a logger for a run; none by default.

    Returns:
        Members that have lost the rows which the checkpoint presupposes; they are to be trained from scratch.
    """
    keep_freed()
    folders = [RunFolder(root, run) for run in job.runs]
    unfinished = [r for r, folder in enumerate(folders) if not folder.finished]
    for r in unfinished:
        folders[r].open()
    checkpoint = job.checkpoint(root)
    loggers = {r: logger(job.runs[r]) for r in unfinished} if logger else {}
    recorder = StackRecorder(job, folders, checkpoint, progress, loggers)
    trainer, task, data = assemble(job.runs, recorder, checkpoint.parent)
    if isinstance(writer := trainer.strategy.checkpoint_io, AtomicCheckpointIO):
        writer.remedy = f"delete {checkpoint.parent}; its runs begin anew"
    resume = checkpoint if checkpoint.exists() else None
    try:
        with threads(job.threads):
            trainer.fit(task, datamodule=data, ckpt_path=resume)
        recorder.close(trainer)
    finally:  # those of members that did not end: a later start opens their histories again
        for left in recorder.loggers.values():
            left.finalize("failed")
    checkpoint.unlink(missing_ok=True)  # every member has its own by now
    return recorder.lost


def assemble(runs: Sequence[Run], recorder: Checkpoint, path: Path) -> Experiment:
    """Trainer, stacked task and datamodule of some runs."""
    first = experiments.build(copy.deepcopy(runs[0].config), callbacks=[recorder], default_root_dir=str(path))
    tasks = list(build_tasks([run.config for run in runs], first))
    trainer, _, data = first
    writer = trainer.strategy.checkpoint_io
    if isinstance(writer, AtomicCheckpointIO):
        writer.config = None  # it is of one member; the stack's own checkpoint holds them all
    assert isinstance(data, TensorDataModule)  # the only ones that say they can serve a stack
    data.seed = [run.seed for run in runs]
    return Experiment(trainer, StackedTask(tasks), data)
