"""Recorders: what a run or a stack writes while it trains, and all that it needs to resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger
from torch import Tensor

from actlab.engines import unit_records
from actlab.runtime.guards import ended
from actlab.storage.checkpoints import config_of, epochs_of, read, write_weights
from actlab.storage.files import DamagedError
from actlab.studies.folders import DIVERGED, FINISHED, Row, RunFolder, split_name
from actlab.studies.plan import Keep, Run

LoggerFactory = Callable[[Run], Logger]
Progress = Callable[[Run, float], None]  # a run and the fraction of it that is done


class Recorder(Checkpoint):
    """Records one run: after every epoch its rows and its checkpoint, at its end how it ended.

    The checkpoint holds the rows so far, so a resume needs nothing else. A run that has diverged is recorded no
    further. On several devices all of them take part in saving, and the first one writes.

    A `Checkpoint`, because Lightning calls those after the epoch's metrics are logged.

    Args:
        folders: one a run.
        checkpoint: where the state of training is saved.
        progress: called for each run after each epoch.
        remedy: what helps where the state is damaged.
    """

    engine = "sequential"

    def __init__(self, folders: Sequence[RunFolder], checkpoint: Path, progress: Progress, remedy: str) -> None:
        self.folders, self.checkpoint, self.progress, self.remedy = folders, checkpoint, progress, remedy
        self.rows: list[list[Row]] = [[] for _ in folders]
        self.diverged: dict[int, tuple[int, int]] = {}  # by number of a run: good epochs, updates
        self.seconds = 0.0  # of training, before a resume too
        self.stopped = False  # a callback has ended training
        self._pending: list[list[Row]] = [[] for _ in folders]  # of the epoch that is being trained
        self._best: dict[int, float] = {}  # lowest value of the kept metric so far
        self._seen: dict[str, Tensor] = {}
        self._since = 0.0

    def state_dict(self) -> dict[str, Any]:
        """All that is recorded so far, for the checkpoint."""
        return {
            "rows": {folder.run.id: packed(rows) for folder, rows in zip(self.folders, self.rows, strict=True)},
            "seconds": self.seconds,
            "stopped": self.stopped,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what `state_dict` holds.

        Raises:
            DamagedError: where it is of other runs.
        """
        rows, own = state_dict.get("rows", {}), [folder.run.id for folder in self.folders]
        if [*rows] != own:
            other = min(rows.keys() - {*own}, default="another version of actlab")
            raise DamagedError(f"the checkpoint of {own[0]} is damaged: it is of {other}; {self.remedy}")
        self.rows = [unpacked(rows[name]) for name in own]
        self.seconds, self.stopped = state_dict["seconds"], state_dict["stopped"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop what the resumed checkpoint does not hold; do not go on where training was ended early."""
        for r, folder in self._open():
            good, self._best[r] = best_of(folder.run.keep, self.rows[r]) or (0, math.inf)
            if trainer.is_global_zero:
                folder.rewrite(self.rows[r])
                unit_records.cut_back(folder, trainer.current_epoch)
                best = folder.kept("best")
                if folder.run.keep.best and best.exists() and epochs_of(read(best)) != good:
                    best.unlink()  # of an epoch that is trained again, or by another rule
            self._keep(r, trainer, trainer.current_epoch, [])
        trainer.should_stop = self.stopped or trainer.should_stop or not self._open()
        self._since = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take note of what was logged, which is old by then."""
        self._seen = dict(trainer.callback_metrics)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take note of what was logged, which is not of this validation."""
        self._seen = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the validation metrics, at this step."""
        self._take(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the epoch of each run that has not diverged, and save the checkpoint."""
        self._take(trainer)
        now = time.perf_counter()
        self.seconds, self._since = self.seconds + now - self._since, now
        epoch, units = trainer.current_epoch + 1, unit_records.seen(trainer)
        for r, folder in self._open():
            rows = self._pending[r]
            if trainer.strategy.reduce_boolean_decision(diverged(rows), all=False):
                self.diverged[r] = epoch - 1, trainer.global_step
                self._diverge(r, trainer)
                continue
            if trainer.is_global_zero:
                folder.append(rows)
                unit_records.append(folder, epoch, units, r)
            self._keep(r, trainer, epoch, rows)
            self.rows[r] += rows
            self._log(r, rows)
        self._pending = [[] for _ in self.folders]
        self.stopped = trainer.should_stop
        if still := self._open():
            trainer.save_checkpoint(self.checkpoint)
        trainer.should_stop = trainer.should_stop or not still
        for _, folder in still:
            self.progress(folder.run, min(fraction_done(trainer), 0.999))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Sum the run up, before its loggers are closed."""
        for logger in trainer.loggers:
            summarise(logger, self.rows[0] if trainer.is_global_zero else (), 0 in self.diverged)

    def close(self, trainer: pl.Trainer) -> None:
        """Record how each run ended, in this start or in one that was killed here.

        Raises:
            DamagedError: for one whose files are damaged, once the others are closed.
        """
        damage: DamagedError | None = None
        for r, folder in enumerate(self.folders):
            if not folder.finished:
                try:
                    self._finish(r, folder, trainer)
                except DamagedError as error:
                    damage = error
                    continue
            self.progress(folder.run, 1.0)
        if damage is not None:
            raise damage

    def _open(self) -> list[tuple[int, RunFolder]]:
        """The runs that are recorded, by their numbers."""
        return [
            (r, folder)
            for r, folder in enumerate(self.folders)
            if r not in self.diverged and not folder.finished
        ]

    def _take(self, trainer: pl.Trainer) -> None:
        """Add what was logged since the last call as rows at this step."""
        step, found = trainer.global_step, self._logged(trainer)
        if not trainer.sanity_checking:
            epoch = epochs_done(trainer)
            for rows, values in zip(self._pending, found, strict=True):
                rows += [Row(epoch, step, *split_name(name), "", value) for name, value in values.items()]

    def _logged(self, trainer: pl.Trainer) -> list[dict[str, float]]:
        """What was logged of each run since the last call; Lightning keeps what is older."""
        metrics = trainer.callback_metrics
        fresh = {name: float(value) for name, value in metrics.items() if value is not self._seen.get(name)}
        self._seen = dict(metrics)
        return [fresh]

    def _state(self, r: int, trainer: pl.Trainer) -> tuple[Mapping[str, Tensor], Mapping[str, Any] | None]:
        """The weights of a run, as its own task has them, and what was trained."""
        return trainer.lightning_module.state_dict(), config_of(trainer)

    def _keep(self, r: int, trainer: pl.Trainer, epoch: int, rows: list[Row]) -> None:
        """Keep the checkpoints that the study asks for after so many epochs."""
        run = self.folders[r].run
        names = [checkpoint_name(epoch)] if epoch in run.keep.epochs else []
        for name in names + ["best"] * self._improved(r, run.keep, rows):
            state, config = self._state(r, trainer)
            if trainer.is_global_zero:
                write_weights(state, epoch, trainer.global_step, self.folders[r].kept(name), config)

    def _improved(self, r: int, keep: Keep, rows: list[Row]) -> bool:
        values = [lowered(row.value, keep) for row in rows if keep.best is not None and row.name == keep.best]
        if not values or not values[-1] < self._best.get(r, math.inf):
            return False
        self._best[r] = values[-1]
        return True

    def _diverge(self, r: int, trainer: pl.Trainer) -> None:
        """Act when a run has diverged: its checkpoint, of the epoch before, stays as it is."""

    def _log(self, r: int, rows: Sequence[Row]) -> None:
        """Hand rows to the run's logger; Lightning has done so."""

    def _finish(self, r: int, folder: RunFolder, trainer: pl.Trainer, **facts: Any) -> None:
        epoch, updates = self.diverged.get(r, (trainer.current_epoch, trainer.global_step))
        folder.finish(
            DIVERGED if r in self.diverged else FINISHED,
            [*self.rows[r], *unit_records.close(folder, epoch, updates, self.remedy)],
            engine=self.engine,
            ended=DIVERGED if r in self.diverged else ended(trainer),
            last_good_epoch=epoch,
            updates=updates,
            revisions=dict(getattr(trainer.datamodule, "revisions", {})),  # type: ignore[attr-defined]
            seconds=round(self.seconds / len(self.folders), 3),
            **facts,
        )


def packed(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows of training as a checkpoint holds them: their names, and numbers as tensors."""
    names = list(dict.fromkeys((row.split, row.metric) for row in rows))
    number = {name: n for n, name in enumerate(names)}
    return {
        "names": names,
        "name": torch.tensor([number[row.split, row.metric] for row in rows], dtype=torch.int64),
        "epoch": torch.tensor([row.epoch for row in rows], dtype=torch.float64),
        "step": torch.tensor([row.step for row in rows], dtype=torch.int64),
        "value": torch.tensor([row.value for row in rows], dtype=torch.float64),
    }


def unpacked(found: Mapping[str, Any]) -> list[Row]:
    """The rows that `packed` was given."""
    columns = (found[key].tolist() for key in ("epoch", "step", "value"))
    names = (found["names"][number] for number in found["name"].tolist())
    return [
        Row(epoch, step, split, metric, "", value)
        for epoch, step, value, (split, metric) in zip(*columns, names, strict=True)
    ]


def lowered(value: float, keep: Keep) -> float:
    """A value as one of which the lowest is best."""
    return value if keep.mode == "min" else -value


def best_of(keep: Keep, rows: Iterable[Row]) -> tuple[int, float] | None:
    """After how many epochs the kept metric was best, by the last value of each, and that value, lowered."""
    last = {math.ceil(round(row.epoch, 6)): row.value for row in rows if row.name == keep.best}
    known = [(lowered(value, keep), epoch) for epoch, value in last.items() if not math.isnan(value)]
    if not known:
        return None
    value, epoch = min(known)
    return epoch, value


def summarise(logger: object, rows: Iterable[Row], diverged: bool) -> None:
    """Tell a logger that sums runs up what the whole run has recorded, before a resume too."""
    if callable(log_summary := getattr(logger, "log_summary", None)):
        values: dict[str, list[float]] = {}
        for row in rows:
            if not row.condition:
                values.setdefault(row.name, []).append(row.value)
        log_summary(values, diverged)


def checkpoint_name(epoch: int) -> str:
    """File name, without suffix, of the checkpoint kept after so many epochs."""
    return f"epoch={epoch}"


def is_loss(row: Row) -> bool:
    """Whether a row is of a loss, which ends a run when it is not finite."""
    return row.metric == "loss" or row.metric.endswith("_loss")


def diverged(rows: list[Row]) -> bool:
    """Whether a loss among the rows is not finite."""
    return any(is_loss(row) and not math.isfinite(row.value) for row in rows)


def fraction_done(trainer: pl.Trainer) -> float:
    """How much of its training a Trainer has done, from 0 to 1, at the end of an epoch."""
    epochs = trainer.max_epochs or -1
    by_epoch = (trainer.current_epoch + 1) / epochs if epochs > 0 else 0.0
    by_step = trainer.global_step / trainer.max_steps if trainer.max_steps > 0 else 0.0
    return min(max(by_epoch, by_step), 1.0)


def epochs_done(trainer: pl.Trainer) -> float:
    """How many passes over the training data have been made, by batches: at the end of an epoch a whole number.

    Where the data do not know their length, a moment within an epoch lies somewhere in it, later ones later.
    """
    whole, ended = trainer.current_epoch, trainer.fit_loop.epoch_loop.batch_progress
    batches, done = trainer.num_training_batches, ended.current.completed
    if isinstance(batches, int):
        return (whole * batches + done) / max(1, batches)
    return whole + (1.0 if ended.is_last_batch else done / (done + 1))
