"""What recorders of one run and of a stack share: the clock, names of metrics, kept checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger
from torch import Tensor

from actlab.checkpoints import AtomicCheckpointIO, read
from actlab.engines.folders import Row, RunFolder
from actlab.errors import ActlabError
from actlab.files import DamagedError
from actlab.studies.plan import Keep, Run

LoggerFactory = Callable[[Run], Logger]
LEFT_OUT = -1  # in place of a number of rows: of a member that its stack no longer records
Progress = Callable[[Run, float], None]  # a run and the fraction of it that is done


class TimedRecorder(Checkpoint):
    """A recorder that knows how long training took, also before a resume.

    A `Checkpoint`, because Lightning calls those after the epoch's metrics are logged.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0
        self.best: dict[str, float] = {}  # lowest value of the kept metric so far, by run
        self.recorded: dict[str, int] = {}  # number of rows in the run's folder, by run
        self._resumed: tuple[str, ...] = ()  # the runs that the resumed checkpoint is of

    def start_clock(self) -> None:
        """Begin, or go on, counting."""
        self._since = time.perf_counter()

    def read_clock(self) -> None:
        """Add the time since the last call to `seconds`."""
        now = time.perf_counter()
        self.seconds, self._since = self.seconds + now - self._since, now

    def state_dict(self) -> dict[str, Any]:
        """Time spent, best values and numbers of rows, for the checkpoint."""
        return {"seconds": self.seconds, "best": self.best, "recorded": self.recorded}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up what `state_dict` holds."""
        self.seconds, self.best = state_dict["seconds"], state_dict["best"]
        self.recorded = dict(state_dict.get("recorded", {}))
        self._resumed = tuple(self.recorded)

    def cut_back(self, folder: RunFolder, step: int) -> None:
        """Drop a run's rows that the resumed checkpoint does not hold.

        Raises:
            DamagedError: where it holds some that are no longer there.
        """
        self._check_owner(folder)
        kept = folder.cut_back(step)
        self.recorded.setdefault(folder.run.id, kept)
        self.check_rows(folder)
        self._know_best(folder)

    def _know_best(self, folder: RunFolder) -> None:
        """Take the best value from the rows: another rule may have held before a resume, or none.

        A ``best.ckpt`` of another epoch is dropped, and one that was never kept is not made up for by a later
        epoch that is worse.
        """
        run, path = folder.run, folder.kept("best")
        if run.keep.best is None:
            return
        epoch, value = best_of(run.keep, folder.rows()) or (0, math.inf)
        self.best[run.id] = value
        if path.exists() and epochs_of(read(path)) != epoch:
            path.unlink()

    def has_lost(self, folder: RunFolder) -> bool:
        """Whether a run has no rows any more, but the resumed checkpoint counts some."""
        return bool(self.recorded.get(folder.run.id)) and not folder.recorded

    def check_there(self, folder: RunFolder) -> None:
        """Check that a run's folder and rows are still where they were put.

        Raises:
            ActlabError: where they are not; nothing is written into a folder that was moved or deleted.
        """
        if not folder.path.is_dir() or self.has_lost(folder):
            raise ActlabError(
                f"{folder.path} was deleted, moved or emptied while its run was trained: put it back, or leave "
                "it so and the run is trained from scratch; the same command resumes"
            )

    def append(self, folder: RunFolder, rows: list[Row]) -> None:
        """Add rows to a run's folder."""
        folder.append(rows)
        self.recorded[folder.run.id] = self.recorded.get(folder.run.id, 0) + len(rows)

    def check_rows(self, folder: RunFolder) -> None:
        """Compare a run's rows with what was counted.

        Raises:
            DamagedError: where their number is another.
        """
        self._check_owner(folder)
        found, known = len(folder.rows()), self.recorded.get(folder.run.id, 0)
        if known == LEFT_OUT:
            raise DamagedError(f"{folder.path} was damaged, and its stack was trained on: {folder.remedy}")
        if found != known:
            raise DamagedError(f"{folder.path} has {found} rows, but {known} were written: {folder.remedy}")

    def _check_owner(self, folder: RunFolder) -> None:
        if self._resumed and folder.run.id not in self._resumed:
            raise DamagedError(
                f"the checkpoint of {folder.run.id} is damaged: it is of {min(self._resumed)}; {folder.remedy}"
            )

    def kept_names(self, run: Run, epoch: int, rows: list[Row]) -> list[str]:
        """Names of the checkpoints that are to be kept of a run after so many epochs.

        Args:
            run: says what is kept.
            epoch: number of epochs trained; 0 before the first one.
            rows: what the epoch has measured.
        """
        names = [checkpoint_name(epoch)] if epoch in run.keep.epochs else []
        return names + ["best"] * self._improved(run.id, run.keep, rows)

    def _improved(self, run: str, keep: Keep, rows: list[Row]) -> bool:
        values = [row.value for row in rows if keep.best is not None and row.name == keep.best]
        if not values:
            return False
        value = _lowered(values[-1], keep)
        if not value < self.best.get(run, math.inf):
            return False
        self.best[run] = value
        return True


def _lowered(value: float, keep: Keep) -> float:
    """A value as one of which the lowest is best."""
    return value if keep.mode == "min" else -value


def best_of(keep: Keep, rows: Iterable[Row]) -> tuple[int, float] | None:
    """After how many epochs the kept metric was best, by the last value of each, and that value, lowered."""
    last = {math.ceil(round(row.epoch, 6)): row.value for row in rows if row.name == keep.best}
    known = [(_lowered(value, keep), epoch) for epoch, value in last.items() if not math.isnan(value)]
    if not known:
        return None
    value, epoch = min(known)
    return epoch, value


def epochs_of(checkpoint: Mapping[str, Any]) -> int:
    """How many epochs the weights of a checkpoint of `write_checkpoint` were trained."""
    return int(checkpoint["epoch"]) + (int(checkpoint["global_step"]) > 0)


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


def write_checkpoint(
    state: Mapping[str, Tensor], epoch: int, step: int, path: Path, config: Mapping[str, Any] | None
) -> None:
    """Write weights as an ordinary checkpoint that ``actlab test`` and a Trainer load.

    Args:
        state: of the LightningModule.
        epoch: number of epochs trained.
        step: number of updates.
        path: of the file.
        config: what was trained, as `actlab.records` has it; None where it is not known.
    """
    checkpoint = {
        "state_dict": dict(state),
        "epoch": max(0, epoch - 1),  # as Lightning counts: the number of the last one
        "global_step": step,
        "pytorch-lightning_version": version("pytorch-lightning"),
    }
    writer = AtomicCheckpointIO()
    writer.config = config
    writer.save_checkpoint(checkpoint, path)


def revisions_of(trainer: pl.Trainer) -> dict[str, str]:
    """Commits of the hub datasets that a Trainer trains on, where its datamodule says them in ``revisions``."""
    return dict(getattr(trainer.datamodule, "revisions", {}))  # type: ignore[attr-defined]


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
