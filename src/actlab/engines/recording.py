"""Record a run or a stack during training, with all state that is needed to resume."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, Checkpoint
from pytorch_lightning.loggers import Logger
from torch import Tensor

from actlab import activations
from actlab.config.metrics import INITIAL, LEARNT, ONE_BATCH, logged
from actlab.engines import unit_records
from actlab.engines.jobs import Job
from actlab.runtime import matmul, signals
from actlab.runtime.devices import name_of
from actlab.stacking import StackedTask
from actlab.stacking.network import task_state
from actlab.storage import series
from actlab.storage.checkpoints import epochs_of, read, write_weights
from actlab.storage.files import DamagedError
from actlab.storage.json_files import update_json
from actlab.studies.plan import Keep
from actlab.studies.rows import Row, split_name
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from actlab.tasks import parameters
from actlab.tasks.metrics import log_table
from actlab.tasks.training import Training


class Recorder(Checkpoint):
    """Records a run, or each run of a stack: rows and a checkpoint after every epoch, and how training ended.

    The checkpoint contains the rows so far, so resuming requires no other file. Nothing more is recorded for a
    run after it has diverged; a member of a stack is closed at once, and the others continue. On several
    devices all ranks take part in saving, and rank 0 writes. ``remedy`` says what to do if the checkpoint is
    damaged. A stack has a folder of its own for its checkpoint; run folders are the same for both.

    A subclass of `Checkpoint`, because Lightning calls checkpoints after the epoch's metrics are logged.
    """

    tested_by_steps = True  # its hooks of testing are for loops; what steps log belongs to the training epoch

    def __init__(self, job: Job, root: Path) -> None:
        self.job, self.stacked = job, job.stacked
        self.folders = folders = [RunFolder(root, run) for run in job.runs]
        self.path, self.checkpoint, self.remedy = folders[0].path, folders[0].checkpoint, folders[0].remedy
        if self.stacked:
            self.path, self.checkpoint = job.folder(root), job.checkpoint(root)
            self.remedy = f"delete {self.path}; its runs start from scratch"
        self.loggers: dict[int, Logger] = {}  # of the members of a stack, by index
        self.rows: list[list[Row]] = [[] for _ in folders]
        self.diverged: dict[int, tuple[int, int]] = {}  # by index of the run: last good epoch, updates
        self.seconds = 0.0  # of training, including earlier starts
        self.stopped = False  # whether a callback has ended training
        self.scored: dict[str, int] = {}  # samples by split; see `Training.scored`
        self.sampling_errors: dict[str, list[float]] = {}  # of each run by metric; see `Training`
        self.initial: list[dict[str, float]] = [{} for _ in folders]  # learnt parameters before training
        self._pending: list[list[Row]] = [[] for _ in folders]  # rows of the current epoch
        self._seen: dict[str, Tensor] = {}
        self._before_test: dict[str, Tensor] = {}
        self._since = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return everything recorded so far, for the checkpoint."""
        return {
            "rows": {folder.id: packed(rows) for folder, rows in zip(self.folders, self.rows, strict=True)},
            "seconds": self.seconds,
            "stopped": self.stopped,
            "scored": self.scored,
            "sampling_errors": self.sampling_errors,
            "initial": self.initial,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`; a state of other runs raises a DamagedError."""
        rows, names = state_dict.get("rows", {}), self.job.names
        if [*rows] != names:
            other = min(rows.keys() - {*names}, default="another version of actlab")
            raise DamagedError(f"the checkpoint of {names[0]} is damaged: it belongs to {other}; {self.remedy}")
        self.rows = [unpacked(rows[name]) for name in names]
        self.seconds, self.stopped = state_dict["seconds"], state_dict["stopped"]
        self.scored, self.initial = state_dict["scored"], state_dict["initial"]
        self.sampling_errors = state_dict["sampling_errors"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Delete records made after the resumed checkpoint; stop at once if training had been ended early."""
        for r, folder in self._active_runs():
            if trainer.current_epoch == 0 and isinstance(pl_module, Training):
                self.initial[r] = parameters.values_of(pl_module, r)
            if trainer.is_global_zero:
                folder.rewrite(self.rows[r], not isinstance(pl_module, Training))
                if trainer.current_epoch == 0:
                    self._keep_curves(r, trainer, INITIAL)
                unit_records.cut_back(folder, trainer.current_epoch)
                best, keep = folder.kept("best"), folder.run.keep
                if keep.best and best.exists() and epochs_of(read(best)) != best_epoch(keep, self.rows[r]):
                    best.unlink()  # from an epoch that is trained again, or selected by another rule
            self._keep(r, trainer, trainer.current_epoch)
        trainer.should_stop = self.stopped or trainer.should_stop or not self._active_runs()
        self._since = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the metrics logged so far, which do not belong to this epoch or validation."""
        self._seen = dict(trainer.callback_metrics)

    on_validation_start = on_train_epoch_start

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add rows for the validation metrics at this step."""
        self._add_logged(trainer, "val")

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the metrics logged so far, which do not belong to this test within training."""
        self._before_test = dict(trainer.callback_metrics)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add rows for the test metrics at this step; those of the training epoch are still to come."""
        fresh = logged_since(self._before_test, trainer)
        self._add_rows(trainer, {name: float(value) for name, value in fresh.items()}, "test")
        self._seen |= fresh

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Record the epoch of each run that has not diverged, and save the checkpoint."""
        self._add_logged(trainer, "train")
        now = time.perf_counter()
        self.seconds, self._since = self.seconds + now - self._since, now
        losses: Mapping[str, Tensor] = {}
        if isinstance(pl_module, Training):
            self.scored |= pl_module.scored
            self.sampling_errors |= pl_module.sampling_errors
            losses = pl_module.sample_losses
        epoch, units = trainer.current_epoch + 1, unit_records.seen(trainer)
        matrices = taken_matrices(trainer, len(self.folders))
        for r, folder in self._active_runs():
            rows = self._pending[r]
            # All devices must decide alike, or one would wait for the others without end.
            if trainer.strategy.reduce_boolean_decision(diverged(rows), all=False):
                self.diverged[r] = epoch - 1, trainer.global_step
                if self.stacked:
                    self._close_diverged(r, trainer)
                continue
            if trainer.is_global_zero:
                folder.add_rows(rows)
                by_sample = {name: of.view(len(self.folders), -1)[r].tolist() for name, of in losses.items()}
                folder.keep_matrices(matrices[r] | by_sample)
                unit_records.append(folder, epoch, units, r)
            self.rows[r] += rows
            self._keep(r, trainer, epoch)
            self._log(r, rows, matrices[r])
        self._pending = [[] for _ in self.folders]
        self.stopped = trainer.should_stop
        # Last, because what the files hold beyond the checkpoint is cut back at a resume.
        if still := self._active_runs():
            trainer.save_checkpoint(self.checkpoint)
        trainer.should_stop = trainer.should_stop or not still
        done = fraction_done(trainer, trainer.current_epoch + 1)
        for _, folder in still:
            signals.report([(folder.id, done)])

    def parts(self, trainer: pl.Trainer) -> list[tuple[str, float]]:
        """Return the completed fraction of each run in training, by id, at any batch; none before training."""
        if not self._since:
            return []
        fraction = fraction_done(trainer, epochs_done(trainer))
        return [(folder.id, fraction) for _, folder in self._active_runs()]

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Pass the summary of the run to its loggers, before Lightning closes them."""
        for logger in trainer.loggers:
            summarise(logger, self.rows[0] if trainer.is_global_zero else (), 0 in self.diverged)

    def close(self, trainer: pl.Trainer) -> None:
        """Record how each run ended, in this start or in an earlier one that was killed before recording it.

        A DamagedError, of files of one run, is raised after the other runs are recorded.
        """
        damage: DamagedError | None = None
        for r, folder in enumerate(self.folders):
            if not folder.finished:
                try:
                    self._finish(r, folder, trainer)
                except DamagedError as error:
                    damage = error
                    continue
            signals.report([(folder.id, 1.0)])
        if damage is not None:
            raise damage

    def _active_runs(self) -> list[tuple[int, RunFolder]]:
        """Return the index and folder of each run that has neither diverged nor finished."""
        return [
            (r, folder)
            for r, folder in enumerate(self.folders)
            if r not in self.diverged and not folder.finished
        ]

    def _add_logged(self, trainer: pl.Trainer, loop: str) -> None:
        """Add rows at this step for the metrics that a loop has logged since the last call."""
        step, by_run = trainer.global_step, self._logged(trainer)
        if trainer.sanity_checking:
            return
        if not isinstance(trainer.lightning_module, Training):
            self._add_rows(trainer, by_run[0], loop)
            return
        epoch = epochs_done(trainer)
        for rows, values in zip(self._pending, by_run, strict=True):
            rows += [Row(epoch, step, *split_name(name), value) for name, value in values.items()]

    def _add_rows(self, trainer: pl.Trainer, values: Mapping[str, float], loop: str) -> None:
        """Add rows with the loop, of a module whose names of metrics need not say it."""
        last = of_last_batch(trainer) if loop == "train" else {}
        of_loop = {name: value for name, value in values.items() if name not in last}
        at = epochs_done(trainer), trainer.global_step
        for condition, logs in (("", of_loop), (ONE_BATCH, last)):
            named = ((split_name(name)[:2], value) for name, value in logs.items())
            self._pending[0] += [Row(*at, *name, condition, value, loop) for name, value in named]

    def _logged(self, trainer: pl.Trainer) -> list[dict[str, float]]:
        """Return the metrics of each run logged since the last call."""
        if isinstance(task := trainer.lightning_module, StackedTask):
            columns = {name: values.tolist() for name, values in task.latest.items()}
            task.latest = {}
            return [{name: values[r] for name, values in columns.items()} for r in range(len(self.folders))]
        fresh = logged_since(self._seen, trainer)
        self._seen = dict(trainer.callback_metrics)
        return [{name: float(value) for name, value in fresh.items()}]

    def _state(self, r: int, trainer: pl.Trainer) -> tuple[Mapping[str, Tensor], Mapping[str, Any] | None]:
        """Return the weights of a run, under the names in its own task, and the config that was trained."""
        if isinstance(task := trainer.lightning_module, StackedTask):
            return task_state(task.network, r), task.members[r].config
        return task.state_dict(), getattr(trainer.strategy.checkpoint_io, "config", None)

    def _keep(self, r: int, trainer: pl.Trainer, epoch: int) -> None:
        """Write the checkpoints that the study keeps after ``epoch`` epochs."""
        keep = self.folders[r].run.keep
        places: list[str | int] = [epoch] if epoch in keep.epochs else []
        if keep.best and best_epoch(keep, self.rows[r]) == epoch:
            places.append("best")
        for at in places:
            state, config = self._state(r, trainer)
            if trainer.is_global_zero:
                write_weights(state, epoch, trainer.global_step, self.folders[r].kept(at), config)

    def _keep_curves(self, r: int, trainer: pl.Trainer, name: str) -> None:
        """Keep the curves of activations with learnt parameters, if a run has any."""
        task = trainer.lightning_module
        if isinstance(task, Training) and (curves := parameters.curves_of(task, r, name)):
            self.folders[r].keep_matrices(curves)

    def _close_diverged(self, r: int, trainer: pl.Trainer) -> None:
        """Finish a member of a stack with its weights from the epoch before; in the first there are none."""
        task, (epoch, updates) = trainer.lightning_module, self.diverged[r]
        assert isinstance(task, StackedTask)
        if self.checkpoint.exists():
            # A copy, because the other members go on.
            former = copy.deepcopy(task.network).to("cpu")
            state = read(self.checkpoint)["state_dict"]
            former.load_state_dict({n.removeprefix("network."): v for n, v in state.items() if "network." in n})
            config = task.members[r].config
            write_weights(task_state(former, r), epoch, updates, self.folders[r].checkpoint, config)
        self._finish(r, self.folders[r], trainer)

    def _log(self, r: int, rows: Sequence[Row], matrices: Mapping[str, Any]) -> None:
        """Pass rows and matrices to a member's logger; Lightning has already logged those of a run alone."""
        if r in self.loggers:
            steps: dict[int, dict[str, float]] = {}
            for row in rows:
                steps.setdefault(row.step, {"epoch": row.epoch})[row.logged] = row.value
            for step, metrics in steps.items():
                self.loggers[r].log_metrics(metrics, step)
            for name, values in matrices.items():
                log_table(self.loggers[r], name, values, rows[-1].step)

    def _finish(self, r: int, folder: RunFolder, trainer: pl.Trainer) -> None:
        epoch, updates = self.diverged.get(r, (trainer.current_epoch, trainer.global_step))
        facts: dict[str, Any] = {}
        errors = {name: of_runs[r] for name, of_runs in self.sampling_errors.items()}
        if r not in self.diverged and (known := {n: e for n, e in errors.items() if math.isfinite(e)}):
            facts["sampling_errors"] = known
        if self.stacked:
            facts["stack"] = {"size": len(self.folders)}
        if self.initial[r]:
            facts["initial_parameters"] = self.initial[r]
        if r in self.loggers:
            summarise(self.loggers[r], self.rows[r], r in self.diverged)
        if r not in self.diverged:
            self._keep_curves(r, trainer, LEARNT)
            if self.stacked:  # the checkpoint of a run alone is its own
                state, config = self._state(r, trainer)
                write_weights(state, trainer.current_epoch, trainer.global_step, folder.checkpoint, config)
        task = trainer.lightning_module
        units = task.members[r].units if isinstance(task, Training) else ()
        if any(map(activations.has_surrogate_gradient, units)):
            facts["surrogate_gradient"] = True
        if isinstance(task, Training):
            reasons = {"single_updates": task.single_updates, "not_replayed": task.not_replayed}
            facts |= {name: reason for name, reason in reasons.items() if reason}
        folder.finish(
            DIVERGED if r in self.diverged else FINISHED,
            [*self.rows[r], *unit_records.close(folder, epoch, updates, self.remedy)],
            engine="stacked" if self.stacked else "sequential",
            last_good_epoch=epoch,
            updates=updates,
            scored=self.scored,
            matmul=matmul.backend(),
            revisions=dict(getattr(trainer.datamodule, "revisions", {})),  # type: ignore[attr-defined]
            seconds=round(self.seconds / len(self.folders), 3),
            hardware=name_of(trainer.strategy.root_device),
            **facts,
        )
        if r in self.loggers:
            self.loggers.pop(r).finalize("failed" if r in self.diverged else "success")


def logged_since(before: Mapping[str, Tensor], trainer: pl.Trainer) -> dict[str, Tensor]:
    """Return the metrics logged since there were those ``before``; Lightning keeps older values."""
    return {name: value for name, value in trainer.callback_metrics.items() if value is not before.get(name)}


def of_last_batch(trainer: pl.Trainer) -> dict[str, float]:
    """Return what training logged for each batch and not for the epoch, of the last batch that logged it.

    Lightning drops such values at a validation.
    """
    results: Any = trainer.fit_loop.epoch_loop._results
    of_batch = (item for _, item in results.valid_items() if item.meta.on_step and not item.meta.on_epoch)
    return {item.meta.name: float(item._forward_cache) for item in of_batch if item._forward_cache is not None}


def packed(rows: Sequence[Row]) -> dict[str, Any]:
    """Return training rows as a checkpoint stores them: names, in four parts with a loop, and tensors."""
    named = [row[2:5] + row[6:] if row.loop else (row.split, logged(row.metric, row.condition)) for row in rows]
    number = {name: n for n, name in enumerate(dict.fromkeys(named))}
    return {
        "names": list(number),
        "name": torch.tensor([number[name] for name in named], dtype=torch.int64),
        "epoch": torch.tensor([row.epoch for row in rows], dtype=torch.float64),
        "step": torch.tensor([row.step for row in rows], dtype=torch.int64),
        "value": torch.tensor([row.value for row in rows], dtype=torch.float64),
    }


def unpacked(record: Mapping[str, Any]) -> list[Row]:
    """Return the rows from the output of `packed`."""
    columns = (record[key].tolist() for key in ("epoch", "step", "value"))
    parts = [name if len(name) == 4 else split_name("/".join(filter(None, name))) for name in record["names"]]
    names = (parts[number] for number in record["name"].tolist())
    return [
        Row(epoch, step, split, metric, condition, value, *loop)
        for epoch, step, value, (split, metric, condition, *loop) in zip(*columns, names, strict=True)
    ]


def is_kept(row: Row, keep: Keep) -> bool:
    """Return whether a row is of the metric that selects an epoch: ``val/loss``, or validation's ``loss``."""
    names = (row.name, f"val/{row.name}") if row.loop == "val" else (row.name,)
    return row.loop in ("", "val") and keep.best in names


def best_epoch(keep: Keep, rows: Iterable[Row]) -> int | None:
    """Return after how many epochs the last value of the kept metric was best; None without a value but NaN."""
    # A value within an epoch counts for it; without rounding, 3.0000000000000004 would be in epoch 4.
    last = {math.ceil(round(row.epoch, 6)): row.value for row in rows if is_kept(row, keep)}
    sign = 1 if keep.mode == "min" else -1
    known = [(sign * value, epoch) for epoch, value in last.items() if not math.isnan(value)]
    return min(known)[1] if known else None


def summarise(logger: object, rows: Iterable[Row], diverged: bool) -> None:
    """Call a logger's ``log_summary(values, diverged)``, if it has one, with all rows."""
    if callable(log_summary := getattr(logger, "log_summary", None)):
        values: dict[str, list[float]] = {}
        rows = [*rows]
        named = series.names(row.logs for row in rows)
        for row in rows:
            values.setdefault(logged(named[row.logs], row.condition), []).append(row.value)
        log_summary(values, diverged)


def diverged(rows: list[Row]) -> bool:
    """Return whether the rows contain a non-finite loss, which ends the run."""
    losses = (row for row in rows if row.metric == "loss" or row.metric.endswith("_loss"))
    return not all(math.isfinite(row.value) for row in losses)


def fraction_done(trainer: pl.Trainer, done: float) -> float:
    """Return the completed fraction of training after ``done`` epochs; below 1 until the run is recorded."""
    by_epoch = done / trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else 0.0
    by_step = trainer.global_step / trainer.max_steps if trainer.max_steps > 0 else 0.0
    return min(max(by_epoch, by_step), 0.999)


def epochs_done(trainer: pl.Trainer) -> float:
    """Return the number of passes over the training data, counted in batches; whole at the end of an epoch.

    If the data loader has no length, the fraction of an epoch after n batches is n / (n + 1).
    """
    whole, ended = trainer.current_epoch, trainer.fit_loop.epoch_loop.batch_progress
    batches, done = trainer.num_training_batches, ended.current.completed
    if isinstance(batches, int):
        return (whole * batches + done) / max(1, batches)
    return whole + (1.0 if ended.is_last_batch else done / (done + 1))


def taken_matrices(trainer: pl.Trainer, runs: int) -> list[dict[str, Any]]:
    """Return for each run, by name, the results since the last call that are not numbers."""
    task = trainer.lightning_module
    if not isinstance(task, Training):
        return [{} for _ in range(runs)]
    matrices, task.matrices = task.matrices, {}
    return [{name: of_runs[r] for name, of_runs in matrices.items()} for r in range(runs)]


class MatrixFile(Callback):
    """Writes the latest results that are not numbers to a JSON file, after each evaluation."""

    tested_by_steps = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file; test data may have been evaluated after the epoch."""
        (matrices,) = taken_matrices(trainer, 1)
        if trainer.is_global_zero:
            update_json(self.path, matrices, "delete it")

    on_validation_end = on_test_end = on_train_epoch_end
