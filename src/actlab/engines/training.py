"""Train a job in a worker: hold the locks of its runs, record runs that fail, split stacks that fail.

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

from actlab.config import identity
from actlab.engines.jobs import Job, LoggerFactory
from actlab.engines.recording import Recorder
from actlab.errors import ActlabError
from actlab.errors.messages import described
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


def work(job: Job, root: Path, logger: LoggerFactory | None = None, locked: bool = True) -> bool:
    """Train a job unless another process is training one of its runs; return whether the job is over.

    A run that has finished, or failed in this start of the study, is left as it is. A shard needs
    no locks.
    """
    with holding(root, job.names if locked else ()) as held:
        if held and not job.is_over(root):
            check_sources(job)
            left = [job]
            while left:
                part, parts = left.pop(0), list[Job]()
                with _frozen():
                    try:
                        fit(part, root, logger)
                    except Exception as error:  # third-party code may raise anything
                        parts = _after(error, part, root)
                left[:0] = [part for part in parts if not part.is_over(root)]
        return held


def check_sources(job: Job) -> None:
    """Check that third-party files have not changed since the runs were planned; ids contain their digests."""
    known: dict[str, str | None] = {}
    for run in job.runs:
        now: dict[str, str | None] = {**identity.sources_of(run.config, known)}
        for text in run.sources.keys() - now.keys():  # which the code opens
            now[text] = contents.content_of(text, True)
        for text in sorted(text for text in run.sources if now.get(text) != run.sources[text]):
            name = changes.files_of(text, run.code, contents.digests_of_code(text))[0]
            raise ActlabError(
                f"{name} has been changed since the study began: start the study again to use it"
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


def _after(error: Exception, job: Job, root: Path) -> list[Job]:
    """Record runs as failed, or raise; return the parts into which a stack that has failed is split."""
    if isinstance(error, OSError):  # such as a full disk
        raise ActlabError(
            f"training stopped in {root}: {described(error)}; the same command resumes"
        ) from error
    ours, number = isinstance(error, ActlabError), len(job.runs)
    if number > 1 and not ours and is_out_of_memory(error):
        print(f"{number} runs in one stack do not fit into memory: trying half as many", flush=True)
        return job.halves(root)
    reason, parts = str(error) if ours else described(error), list[Job]()
    if number == 1 or isinstance(error, DamagedError):  # the damaged file is kept for inspection
        job.fail(root, reason)
    else:  # to find out which members fail
        print(
            f"a stack of {number} runs failed ({reason[:100]}); training them one by one",
            flush=True,
        )
        parts = job.alone(root)
    if not ours:
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
        # Before the runs are built, which leaves the generators seeded.
        if logger:
            recorder.loggers = {run.index: logger(job.runs[run.index]) for run in unfinished}
        configs = [run.config for run in job.runs]
        trainer, task, data = assemble(configs, recorder, recorder.path, job.stacked)
        if isinstance(task, StackedTask):
            task.loggers_of = recorder.loggers
        elif recorder.loggers:
            trainer.logger = recorder.loggers.pop(0)
        if isinstance(writer := trainer.strategy.checkpoint_io, AtomicCheckpointIO):
            writer.remedy = recorder.remedy
        resume = recorder.checkpoint if unfinished and recorder.checkpoint.exists() else None
        if resume and "optimizer_states" not in read(resume, remedy=recorder.remedy):
            resume = None  # weights of a run whose result was deleted
        with threads(1), signals.measured(lambda: recorder.parts(trainer)):
            trainer.fit(task, datamodule=data, ckpt_path=resume)
        if trainer.is_global_zero:
            recorder.close(trainer)
    finally:  # loggers of unfinished members; a later start reopens them
        for left in recorder.loggers.values():
            left.finalize("failed")
    if recorder.stacked:  # each member now has its own checkpoint
        shutil.rmtree(recorder.path, ignore_errors=True)


@cache
def _is_frozen() -> bool:
    """Whether the process had frozen objects before its first job; counting them takes 0.1 s."""
    return gc.get_freeze_count() > 0
