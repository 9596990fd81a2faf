"""The queue: every job of a study is trained once, by whichever process gets to it first."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import torch
from pytorch_lightning.utilities.memory import is_oom_error

from actlab.config import identity
from actlab.engines import packing, sequential, stacked
from actlab.engines.packing import Job
from actlab.engines.recording import LoggerFactory, Progress
from actlab.errors import ActlabError, RunError, described
from actlab.runtime import signals
from actlab.storage.files import DamagedError
from actlab.studies.folders import RunFolder
from actlab.studies.locks import holding
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
        jobs: of one study; those that have finished or failed by then are passed over.
        root: the study's folder.
        progress: called for each run after each epoch.
        logger: makes a logger for a run; none by default.
        begun: called with each job before it is trained.

    Returns:
        Jobs that were left to other processes.
    """
    for job in left(jobs, root):
        with holding(root, job.runs) as held:
            if held and not is_over(job, root):
                begun(job)
                check_sources(job)
                train(job, root, progress, logger)
    return list(left(jobs, root))


def left(jobs: Iterable[Job], root: Path) -> Iterator[Job]:
    """The jobs that are not over when their turn comes, for looking is faster than taking locks."""
    for job in jobs:
        signals.check()
        if not is_over(job, root):
            yield job


def check_sources(job: Job) -> None:
    """Check that files from outside are what they were when the runs were planned and named after them.

    Raises:
        ActlabError: for one that has been changed since.
    """
    known: dict[str, str | None] = {}
    for run in job.runs:
        now = identity.sources_of(run.config, known)
        if changed := sorted(text for text in run.sources if now.get(text) != run.sources[text]):
            raise ActlabError(
                f"{changed[0]} has been changed since the study was started: start it again to run it as it is"
            )


def is_over(job: Job, root: Path) -> bool:
    """Whether all runs of a job have finished, or failed at this start of the study."""
    return all(folder.finished or folder.failed for folder in (RunFolder(root, run) for run in job.runs))


def train(job: Job, root: Path, progress: Progress, logger: LoggerFactory | None = None) -> None:
    """Train one job; runs that fail are recorded as failed.

    A stack that runs out of memory is trained as two halves; one that fails otherwise is trained one by one.

    Raises:
        ActlabError: for bad input, or files that cannot be written.
    """
    too_large = False
    try:
        _train(job, root, progress, logger)
    except DamagedError as error:  # it stays as it is until somebody has looked
        for run in job.runs:
            fail(run, str(error), root, progress)
    except RunError as error:
        _fail_alone(job, str(error), root, progress, logger)
    except ActlabError:
        raise
    except OSError as error:
        raise ActlabError(f"cannot go on in {root}: {described(error)}; the same command resumes") from error
    except Exception as error:  # third-party activations, networks and callbacks may raise anything
        too_large = len(job.runs) > 1 and is_out_of_memory(error)
        if not too_large:
            _fail_alone(job, described(error), root, progress, logger)
    if too_large:  # the error, which holds the stack's tensors, is gone by now
        print(f"{len(job.runs)} runs in one stack do not fit into memory: half as many are tried", flush=True)
        for half in packing.halve(job, root):
            train(half, root, progress, logger)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch or an accelerator had no memory left."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_oom_error(error)


def fail(run: Run, reason: str, root: Path, progress: Progress) -> None:
    """Record an unfinished run as failed."""
    folder = RunFolder(root, run)
    if not folder.finished:
        folder.fail(reason)
        progress(run, 1.0)


def _fail_alone(job: Job, reason: str, root: Path, progress: Progress, logger: LoggerFactory | None) -> None:
    """Record a run as failed; train the members of a stack one by one, to see which of them fail."""
    if len(job.runs) == 1:
        fail(job.runs[0], reason, root, progress)
        return
    print(f"a stack of {len(job.runs)} runs failed ({reason[:100]}); they are trained one by one", flush=True)
    for run in job.runs:
        if not RunFolder(root, run).finished:
            train(Job(run.id, (run,), job.threads), root, progress, logger)


def _train(job: Job, root: Path, progress: Progress, logger: LoggerFactory | None = None) -> None:
    """Train one job and release what it has built."""
    frozen = _is_frozen()
    if not frozen:
        gc.freeze()  # so that only what this job leaves is collected: all else takes longer than a short run
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
    """Return whether the process had frozen objects before its first job; counting them takes 0.1 s."""
    return gc.get_freeze_count() > 0
