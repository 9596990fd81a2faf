"""Train a job in a worker: hold the locks of its runs, record failed runs, split failed stacks.

A run alone is a stack of one, or a plain module. A stack has a folder in ``stacks/`` with its
checkpoint; `actlab.engines.packing` decides which runs form one.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pytorch_lightning.callbacks import ModelCheckpoint

from actlab.config import identity
from actlab.engines.jobs import Job, LoggerFactory
from actlab.engines.recording import Recorder
from actlab.errors import ActlabError
from actlab.errors.messages import described
from actlab.experiments import Experiment
from actlab.runtime import signals
from actlab.runtime.accidents import check_device, is_out_of_memory
from actlab.runtime.devices import keep_freed, rank, threads
from actlab.stacking import StackedTask
from actlab.stacking.building import assemble
from actlab.storage import contents
from actlab.storage.checkpoints import AtomicCheckpointIO, read
from actlab.storage.files import DamagedError
from actlab.studies import changes, stacks
from actlab.studies.locks import holding


def work(
    job: Job, root: Path, logger: LoggerFactory | None = None, locked: bool = True
) -> bool:
    """Train a job unless another process trains one of its runs; return whether the job is over.

    A run that has finished, or failed in this start of the study, is left as it is. A shard needs
    no locks.
    """
    # Leave runs that another process trains or has finished
    with holding(root, job.names if locked else ()) as is_held:
        if not is_held or job.is_over(root):
            return is_held

        check_sources(job)
        queue = [job]
        while queue:
            job = queue.pop(0)
            parts: list[Job] = []
            with _frozen():
                try:
                    fit(job, root, logger)
                except Exception as error:  # third-party code may raise anything
                    parts = _parts_after(error, job, root)
            queue[:0] = [part for part in parts if not part.is_over(root)]
        return True


def check_sources(job: Job) -> None:
    """Raise an ActlabError if a user's file has changed since the runs were planned.

    Ids of runs contain the digests of these files.
    """
    # Compute the digest of each file once for all runs
    digests: contents.ContentsByText = {}
    for run in job.runs:
        current: contents.ContentsByText = {**identity.sources_of(run.config, digests)}

        # Add the files that the code opens
        for text in run.sources.keys() - current.keys():
            current[text] = contents.content_of(text, True)

        # Name the first file that differs
        for text in sorted(run.sources):
            if current.get(text) != run.sources[text]:
                code = contents.digests_of_code(text)
                name = changes.files_of(text, run.code, code)[0]
                remedy = "Start the study again to use it."
                raise ActlabError(
                    f"{name} has been changed since the study began. {remedy}"
                )


@contextmanager
def _frozen() -> Iterator[None]:
    """Collect only the objects of a block: scanning all takes longer than a short run."""
    frozen = _is_frozen()
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        gc.collect()  # Trainer, task and loaders refer to each other
        if not frozen:
            gc.unfreeze()


def _parts_after(error: Exception, job: Job, root: Path) -> list[Job]:
    """Record runs as failed, or raise; return the parts into which a failed stack is split."""
    if isinstance(error, OSError):  # such as a full disk
        raise ActlabError(
            f"training stopped in {root}: {described(error)}. The same command resumes."
        ) from error

    # Halve a stack that is too large
    is_explained = isinstance(error, ActlabError)
    number = len(job.runs)
    if number > 1 and not is_explained and is_out_of_memory(error):
        print(
            f"{number} runs in one stack do not fit into memory: trying half as many",
            flush=True,
        )
        return job.halves(root)

    # Of another stack, find out which members fail
    reason = str(error) if is_explained else described(error)
    parts: list[Job] = []
    if number == 1 or isinstance(error, DamagedError):
        # The damaged file stays for inspection.
        job.fail(root, reason)
    else:
        failure = f"a stack of {number} runs failed ({reason[:100]})"
        print(f"{failure}; training them one by one", flush=True)
        parts = job.alone(root)

    if not is_explained:
        check_device(error)  # other runs go on in another process
    return parts


def fit(job: Job, root: Path, logger: LoggerFactory | None = None) -> None:
    """Train the runs of a job to completion with one Trainer, resuming from the last checkpoint."""
    recorder = Recorder(job, root)
    unfinished = recorder.record.active_runs
    if rank() == 0:
        for run in unfinished:
            run.folder.open()
    if recorder.stacked:
        keep_freed()
        stacks.begin(recorder.path, job.names)
    try:
        # Create loggers before the runs are built, which leaves the generators seeded
        if logger:
            recorder.loggers = {
                run.index: logger(job.runs[run.index]) for run in unfinished
            }
        trainer, task, data = _built(job, recorder)

        # Train the runs
        checkpoint = _checkpoint_to_resume(recorder)
        with threads(1), signals.measured(lambda: recorder.parts(trainer)):
            trainer.fit(task, datamodule=data, ckpt_path=checkpoint)
        if trainer.is_global_zero:
            recorder.close(trainer)
    finally:
        # Close the loggers of unfinished members, which a later start reopens
        for unfinished_logger in recorder.loggers.values():
            unfinished_logger.finalize("failed")
    if recorder.stacked:  # each member now has its own checkpoint
        shutil.rmtree(recorder.path, ignore_errors=True)


def _built(job: Job, recorder: Recorder) -> Experiment:
    """Build the runs of a job as one experiment, which the recorder and its loggers observe."""
    # Assemble the runs, with the recorder as a callback
    configs = [run.config for run in job.runs]
    experiment = assemble(configs, recorder, recorder.path, job.stacked)
    trainer, task, _ = experiment

    # Only the recorder writes the checkpoint that a run resumes from, since it has all rows
    callbacks = []
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
            callback.save_last = None
            if callback.filename == recorder.checkpoint.stem:
                continue
        callbacks.append(callback)
    trainer.callbacks = callbacks  # type: ignore[attr-defined]

    # Lightning logs for a run alone, the task for the members of a stack
    if isinstance(task, StackedTask):
        task.loggers_of = recorder.loggers
    elif recorder.loggers:
        trainer.logger = recorder.loggers.pop(0)

    # The message about a damaged checkpoint names this remedy
    writer = trainer.strategy.checkpoint_io
    if isinstance(writer, AtomicCheckpointIO):
        writer.remedy = recorder.remedy
    return experiment


def _checkpoint_to_resume(recorder: Recorder) -> Path | None:
    """Return the checkpoint of a job that was interrupted."""
    if not recorder.record.active_runs or not recorder.checkpoint.exists():
        return None
    # A run whose result was deleted has only its weights there.
    if "optimizer_states" not in read(recorder.checkpoint, remedy=recorder.remedy):
        return None
    return recorder.checkpoint


@cache
def _is_frozen() -> bool:
    """Whether the process had frozen objects before its first job; counting them takes 0.1 s."""
    return gc.get_freeze_count() > 0
