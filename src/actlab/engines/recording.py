"""Record a run or a stack during training, with all state that is needed to resume."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.loggers import Logger

from actlab.config.metrics import INITIAL, LEARNT
from actlab.engines import stored_weights, unit_records
from actlab.engines.jobs import Job
from actlab.engines.logged_rows import LoggedRows, epochs_done, fraction_done
from actlab.engines.run_facts import training_facts
from actlab.engines.run_loggers import log_epoch, summarise
from actlab.engines.run_records import RunRecord, of_run
from actlab.runtime import signals
from actlab.stacking import StackedTask
from actlab.storage.files import DamagedError
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from actlab.tasks import parameters
from actlab.tasks.training import Training


class Recorder(LoggedRows):
    """Records a run, or each run of a stack: rows and a checkpoint in every epoch, and its result.

    It decides when something is recorded. `JobRecord` holds the records, `LoggedRows` makes rows of
    metrics, and further modules write weights, facts and unit statistics, and log.

    The checkpoint contains the rows so far, so resuming requires no other file. Nothing more is
    recorded for a run after it has diverged; a member of a stack is closed at once, and the other
    members continue. On several devices all ranks take part in saving, and rank 0 writes.

    Attributes:
        path: folder of the checkpoint. A stack has its own; a run alone uses its run folder.
        checkpoint: path of the checkpoint.
        remedy: what to do if the checkpoint is damaged.
        loggers: loggers of the members of a stack, by index.
    """

    def __init__(self, job: Job, root: Path) -> None:
        super().__init__([RunFolder(root, run) for run in job.runs])
        self.stacked = job.stacked
        self.loggers: dict[int, Logger] = {}
        self._last_time = 0.0  # of the latest epoch's end; 0 before training

        folder = self.record.runs[0].folder
        self.path = folder.path
        self.checkpoint = folder.checkpoint
        self.remedy = folder.remedy
        if self.stacked:
            self.path = job.folder(root)
            self.checkpoint = job.checkpoint(root)
            self.remedy = f"Delete {self.path}. Its runs then start from scratch."

    def state_dict(self) -> dict[str, Any]:
        """Return everything recorded so far, for the checkpoint."""
        return self.record.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the output of `state_dict`; a state of other runs raises a DamagedError."""
        self.record.restore(state_dict, self.remedy)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delete records made after the resumed checkpoint; stop if training had ended early."""
        # Epoch 0 means that training starts from scratch
        epoch = trainer.current_epoch
        has_runs = isinstance(pl_module, Training)
        for run in self.record.active_runs:
            if epoch == 0 and has_runs:
                run.initial = parameters.values_of(pl_module, run.index)

            # Cut the files back to the checkpoint
            if trainer.is_global_zero:
                run.folder.rewrite(run.rows, loops=not has_runs)
                if epoch == 0:
                    self._write_curves(trainer, run, INITIAL)
                unit_records.cut_back(run.folder, epoch)
                stored_weights.delete_outdated_best(run)
            stored_weights.write_epoch(trainer, run, epoch)

        # Stop if no run is left, or if a callback had stopped training
        is_over = not self.record.active_runs
        trainer.should_stop = self.record.stopped or trainer.should_stop or is_over
        self._last_time = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the epoch of each run that has not diverged, and save the checkpoint."""
        self.add_loop(trainer, "train")

        # Time since the last epoch, or since training began
        now = time.perf_counter()
        self.record.seconds += now - self._last_time
        self._last_time = now

        # Take what was measured for all runs
        if isinstance(pl_module, Training):
            self.record.scored |= pl_module.scored
            self.record.sampling_errors |= pl_module.sampling_errors
            self.record.sample_losses = pl_module.sample_losses
            self.record.matrices = pl_module.take_matrices()

        # Record the epoch of each run
        for run in self.record.active_runs:
            # All devices must decide alike, or one would wait for the others without
            # end.
            if trainer.strategy.reduce_boolean_decision(run.is_diverging, all=False):
                run.divergence = trainer.current_epoch, trainer.global_step
                if isinstance(pl_module, StackedTask):
                    stored_weights.write_before_divergence(
                        pl_module, run, self.checkpoint
                    )
                    self._finish(trainer, run)
            else:
                self._record_epoch(trainer, run)
        for run in self.record.runs:
            run.pending = []
        self.record.stopped = trainer.should_stop

        # Last, because what the files hold beyond the checkpoint is cut back at a
        # resume
        if self.record.active_runs:
            trainer.save_checkpoint(self.checkpoint)
        else:
            trainer.should_stop = True
        signals.report(self._fractions(trainer, trainer.current_epoch + 1))

    def parts(self, trainer: Trainer) -> list[tuple[str, float]]:
        """Return the completed fraction of each run in training, by id; none before training."""
        if not self._last_time:
            return []
        return self._fractions(trainer, epochs_done(trainer))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Pass the summary of the run to its loggers, before Lightning closes them."""
        run = self.record.runs[0]
        rows = run.rows if trainer.is_global_zero else []
        diverged = run.divergence is not None
        for logger in trainer.loggers:
            summarise(logger, rows, diverged)

    def close(self, trainer: Trainer) -> None:
        """Record how each run ended, in this start or in an earlier one that was killed.

        A DamagedError, of files of one run, is raised after the other runs are recorded.
        """
        damage: DamagedError | None = None
        for run in self.record.runs:
            try:
                if not run.folder.finished:
                    self._finish(trainer, run)
                signals.report([(run.folder.id, 1.0)])
            except DamagedError as error:
                damage = error
        if damage is not None:
            raise damage

    def _fractions(self, trainer: Trainer, epochs: float) -> list[tuple[str, float]]:
        fraction = fraction_done(trainer, epochs)
        return [(run.folder.id, fraction) for run in self.record.active_runs]

    def _record_epoch(self, trainer: Trainer, run: RunRecord) -> None:
        """Write what was measured in an epoch and the weights, and log for a member of a stack."""
        # Select this run's share of what a stack measured
        epoch = trainer.current_epoch + 1
        matrices = of_run(self.record.matrices, run.index)
        losses = of_run(self.record.sample_losses, run.index)

        # Write what was measured
        if trainer.is_global_zero:
            run.folder.add_rows(run.pending)
            run.folder.keep_matrices(matrices | losses)
            unit_records.append(
                run.folder, epoch, unit_records.seen(trainer), run.index
            )
        run.rows += run.pending

        # The weights may be the best ones by these rows
        stored_weights.write_epoch(trainer, run, epoch)

        # Lightning has already logged the rows of a run alone
        if run.index in self.loggers:
            log_epoch(self.loggers[run.index], run.pending, matrices)

    def _write_curves(self, trainer: Trainer, run: RunRecord, name: str) -> None:
        """Write the curves of activations with learnt parameters, if a run has any."""
        task = trainer.lightning_module
        if isinstance(task, Training):
            run.folder.keep_matrices(parameters.curves_of(task, run.index, name))

    def _finish(self, trainer: Trainer, run: RunRecord) -> None:
        """Write the result of a run, and the last weights of a member of a stack.

        A run alone has its own checkpoint already. Only rank 0 calls this: a stack has one device,
        and `close` is called there.
        """
        folder = run.folder
        diverged = run.divergence is not None

        # Summarise a member of a stack in its logger
        logger = self.loggers.get(run.index)
        if logger is not None:
            summarise(logger, run.rows, diverged)

        # Write what only a complete training has
        if not diverged:
            self._write_curves(trainer, run, LEARNT)
            if self.stacked:
                stored_weights.write(trainer, run, trainer.current_epoch, "last")

        # Write the result
        facts = training_facts(trainer, self.record, run, self.stacked)
        last_good_epoch = facts["last_good_epoch"]
        unit_rows = unit_records.close(
            folder, last_good_epoch, facts["updates"], self.remedy
        )
        status = DIVERGED if diverged else FINISHED
        folder.finish(status, [*run.rows, *unit_rows], **facts)

        # Close its logger
        if logger is not None:
            del self.loggers[run.index]
            logger.finalize("failed" if diverged else "success")
