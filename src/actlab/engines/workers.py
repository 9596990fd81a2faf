"""Workers: processes that train the jobs of a study side by side, one thread each; one that dies is replaced.

Two threads of one process wait for each other by spinning, several times an update; processes do not. Every
worker goes through all jobs, and the locks of run folders decide which of them trains which. So a worker may be
killed at any moment: the next one resumes its job from the last epoch.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

from actlab.engines import packing, queue
from actlab.engines.packing import Job
from actlab.engines.processes import Child, EndedError, Report
from actlab.engines.recording import LoggerFactory, Progress
from actlab.engines.settings import Settings
from actlab.errors import ActlabError
from actlab.runtime import signals
from actlab.studies.plan import Run

MOST_DEATHS = 3  # by signals, of the processes that train one job


def work(
    jobs: Sequence[Job],
    root: Path,
    progress: Progress,
    settings: Settings,
    logger: LoggerFactory | None = None,
    worker: Child | None = None,
) -> list[Job]:
    """Train each job that no other process is training, some at a time; `queue.work` in other processes.

    Args:
        jobs: of one study.
        root: the study's folder.
        progress: called for each run after each epoch.
        settings: how many workers, and how they compute.
        logger: makes a logger for a run, in the worker.
        worker: the one worker, where there is one; it lives on. By default all are made and ended.

    Returns:
        Jobs that were left to other starts of the study.

    Raises:
        ActlabError: for bad input, or files that cannot be written.
    """
    left = sorted(jobs, key=_length, reverse=True)
    runs = {run.id: run for job in jobs for run in job.runs}
    deaths: Counter[str] = Counter()
    seats = range(min(settings.jobs, len(jobs)))
    workers = [worker] if worker else [Child(settings, n if settings.jobs > 1 else None) for n in seats]
    training: dict[Child, Job | None] = dict.fromkeys(workers)
    try:
        for one in workers:
            one.ask(_train, left, root, logger)
        while training:
            signals.check()
            ready = {*wait([end for one in training for end in one.ends], timeout=1)}
            for one in [one for one in training if ready.intersection(one.ends)]:
                try:
                    kind, *content = one.heard()
                except EndedError as ended:
                    left = _after(ended, training[one], left, root, progress, deaths)
                    training[one] = None
                    one.ask(_train, left, root, logger)
                else:
                    if kind == "begun":
                        training[one] = content[0]
                    elif kind == "progress":
                        progress(runs[content[0]], content[1])
                    elif kind == "done":
                        del training[one]
    finally:
        for one in workers:
            if one in training or one is not worker:
                one.end(at_once=one in training)
    return list(queue.left(jobs, root))


def _length(job: Job) -> int:
    """About how long a job takes: the longest come first, so that none is left to one worker at the end."""
    return sum(run.epochs or 1 for run in job.runs)


def _train(report: Report, jobs: Sequence[Job], root: Path, logger: LoggerFactory | None) -> None:
    """Train jobs, in a worker."""

    def progress(run: Run, fraction: float) -> None:
        report("progress", run.id, fraction)

    queue.work(jobs, root, progress, logger, begun=lambda job: report("begun", job))


def _after(
    ended: EndedError, job: Job | None, jobs: list[Job], root: Path, progress: Progress, deaths: Counter[str]
) -> list[Job]:
    """The jobs that are left after a worker has ended.

    An exit would be repeated, so its runs have failed; a signal may have come from a system whose memory was
    short. A stack whose worker the system kills again and again is cut into halves.

    Raises:
        ActlabError: where workers end before they begin with a job.
    """
    name = job.id if job else ""
    deaths[name] += 1
    if ended.code < 0 and deaths[name] < MOST_DEATHS:
        return jobs
    if job is None:
        raise ActlabError(f"a process that was to train {ended.how}")
    if ended.code == -signal.SIGKILL and len(job.runs) > 1:
        return [*packing.halve(job, root), *(other for other in jobs if other.id != job.id)]
    times = f" in {deaths[name]} attempts" if deaths[name] > 1 else ""
    for run in job.runs:
        queue.fail(run, f"the process that trained it {ended.how}{times}", root, progress)
    return jobs
