"""The queue of jobs: each job of a study is trained once, by the first process that locks its runs."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import torch
from pytorch_lightning.utilities.memory import is_oom_error

from actlab.config import identity
from actlab.engines import packing, sequential, stacked
from actlab.engines.jobs import Job
from actlab.engines.recording import LoggerFactory, Progress
from actlab.errors import ActlabError, RunError, described
from actlab.runtime import signals
from actlab.storage.files import DamagedError
from actlab.studies.folders import RunFolder
from actlab.studies.locks import PAUSE, holding, is_held
from actlab.studies.plan import Run


def work(
    jobs: Sequence[Job],
    root: Path,
    progress: Progress,
    logger: LoggerFactory | None = None,
    begun: Callable[[Job], None] = lambda job: None,
) -> list[Job]:
    """Train each job that no other process is training.

    Args:
        jobs: jobs of one study; finished and failed jobs are skipped.
        root: the study's folder.
        progress: called for each run after each epoch.
        logger: creates a logger for a run; none by default.
        begun: called with each job before it is trained.

    Returns:
        The jobs that are not over, because other processes are training them.

    Raises:
        ActlabError: if the input is invalid, files cannot be written, or third-party files have changed.
    """
    for job in left(jobs, root):
        with holding(root, [run.id for run in job.runs]) as held:
            if held and not is_over(job, root):
                begun(job)
                check_sources(job)
                train(job, root, progress, logger)
    return list(left(jobs, root))


def left(jobs: Iterable[Job], root: Path) -> Iterator[Job]:
    """Yield the jobs that are not over when the loop reaches them; checking this is faster than locking."""
    for job in jobs:
        signals.check()
        if not is_over(job, root):
            yield job


def freed(jobs: Sequence[Job], root: Path, progress: Progress) -> list[Job]:
    """Wait until a job that other processes train is over or free; return the jobs that are not over.

    Args:
        jobs: jobs of one study, each of which another process was training.
        root: the study's folder.
        progress: called for each run with the progress that its folder shows.
    """
    while True:
        rest = list(left(jobs, root))
        for run in (run for job in jobs for run in job.runs):
            folder = RunFolder(root, run)
            progress(run, 1.0 if folder.finished else folder.epochs / (run.epochs or math.inf))
        if not rest or any(not is_held(root, job.runs[0].id) for job in rest):
            return rest
        time.sleep(PAUSE)


def check_sources(job: Job) -> None:
    """Check that third-party files have not changed since the runs were planned; run ids contain their digests.

    Raises:
        ActlabError: if a file has changed.
    """
    known: dict[str, str | None] = {}
    for run in job.runs:
        now = identity.sources_of(run.config, known)
        if changed := sorted(text for text in run.sources if now.get(text) != run.sources[text]):
            raise ActlabError(
                f"{changed[0]} has been changed since the study was started: start the study again to use it"
            )


def is_over(job: Job, root: Path) -> bool:
    """Return whether all runs of a job have finished, or failed in this start of the study."""
    folders = [RunFolder(root, run) for run in job.runs]
    return all(folder.finished or folder.failure_file.exists() for folder in folders)


def train(job: Job, root: Path, progress: Progress, logger: LoggerFactory | None = None) -> None:
    """Train one job; record runs that fail.

    A stack that runs out of memory is split into two halves. A stack that fails for another reason is trained
    run by run.

    Raises:
        ActlabError: if the input is invalid or files cannot be written.
    """
    too_large = False
    try:
        _train(job, root, progress, logger)
    except DamagedError as error:  # the damaged file is kept for inspection
        for run in job.runs:
            fail(run, str(error), root, progress)
    except RunError as error:
        _fail_alone(job, str(error), root, progress, logger)
    except ActlabError:
        raise
    except OSError as error:
        raise ActlabError(
            f"training stopped in {root}: {described(error)}; the same command resumes"
        ) from error
    except Exception as error:  # third-party activations, networks and callbacks may raise anything
        too_large = len(job.runs) > 1 and is_out_of_memory(error)
        if not too_large:
            _fail_alone(job, described(error), root, progress, logger)
    if too_large:  # here the error, whose traceback holds the stack's tensors, has been freed
        print(f"{len(job.runs)} runs in one stack do not fit into memory: trying half as many", flush=True)
        for half in packing.halve(job, root):
            train(half, root, progress, logger)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python, torch or an accelerator ran out of memory."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_oom_error(error)


def fail(run: Run, reason: str, root: Path, progress: Progress) -> None:
    """Record an unfinished run as failed."""
    folder = RunFolder(root, run)
    if not folder.finished:
        folder.fail(reason)
        progress(run, 1.0)


def _fail_alone(job: Job, reason: str, root: Path, progress: Progress, logger: LoggerFactory | None) -> None:
    """Record a run as failed; train the members of a stack one by one, to find out which members fail."""
    if len(job.runs) == 1:
        fail(job.runs[0], reason, root, progress)
        return
    print(f"a stack of {len(job.runs)} runs failed ({reason[:100]}); training them one by one", flush=True)
    for run in job.runs:
        if not RunFolder(root, run).finished:
            train(Job(run.id, (run,), job.threads), root, progress, logger)


def _train(job: Job, root: Path, progress: Progress, logger: LoggerFactory | None = None) -> None:
    """Train one job, then free its objects."""
    frozen = _is_frozen()
    if not frozen:
        gc.freeze()  # collect only this job's objects: scanning all takes longer than a short run
    try:
        if len(job.runs) > 1:
            stacked.train(job, root, progress, logger)
        else:
            sequential.train(job.runs[0], root, progress, logger, job.threads)
    finally:
        gc.collect()  # Trainer, task and loaders refer to each other
        if not frozen:
            gc.unfreeze()


@cache
def _is_frozen() -> bool:
    """Whether the process had frozen objects before its first job; counting them takes 0.1 s."""
    return gc.get_freeze_count() > 0
