"""Worker processes that train the jobs of a study in parallel, one thread each; a worker that dies is replaced.

The threads of one process spin while they wait for each other, several times per update; processes do not. Each
worker tries all jobs in order, and run locks ensure that a job is trained by one worker only. A worker may
therefore be killed at any time: its job is resumed from the last epoch.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

from actlab.engines import packing, queue
from actlab.engines.jobs import Job
from actlab.engines.processes import Child, EndedError, Report
from actlab.engines.recording import LoggerFactory, Progress
from actlab.engines.settings import Settings
from actlab.errors import ActlabError
from actlab.runtime import signals
from actlab.studies.plan import Run

MOST_DEATHS = 3  # by signals, of the workers that train one job


def work(
    jobs: Sequence[Job],
    root: Path,
    progress: Progress,
    settings: Settings,
    logger: LoggerFactory | None = None,
    worker: Child | None = None,
) -> list[Job]:
    """Train each job that no other process is training, several in parallel; see `queue.work`.

    Args:
        jobs: jobs of one study.
        root: the study's folder.
        progress: called for each run after each epoch.
        settings: number of workers and their execution settings.
        logger: creates a logger for a run, in the worker.
        worker: an existing process to use as the only worker; it keeps running unless an error is raised. By
            default workers are started and ended.

    Returns:
        The jobs that are not over, because other starts of the study are training them.

    Raises:
        ActlabError: if the input is invalid, files cannot be written, or workers end before they start a job.
    """
    left = sorted(jobs, key=duration, reverse=True)
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
                    left = _requeue(ended, training[one], left, root, progress, deaths)
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


def duration(job: Job) -> int:
    """Return an estimate of a job's duration; long jobs start first, so that none runs alone at the end."""
    return sum(run.epochs or 1 for run in job.runs)


def _train(report: Report, jobs: Sequence[Job], root: Path, logger: LoggerFactory | None) -> None:
    """Train jobs; called in a worker."""

    def progress(run: Run, fraction: float) -> None:
        report("progress", run.id, fraction)

    queue.work(jobs, root, progress, logger, begun=lambda job: report("begun", job))


def _requeue(
    ended: EndedError, job: Job | None, jobs: list[Job], root: Path, progress: Progress, deaths: Counter[str]
) -> list[Job]:
    """Return the remaining jobs after a worker has ended; record the runs of its job as failed or keep them.

    An exit would happen again, so the runs have failed. A signal may come from a system that ran out of memory,
    so the job is tried again. A stack whose workers are killed repeatedly is split into halves.

    Raises:
        ActlabError: if workers end before they start a job.
    """
    name = job.id if job else ""
    deaths[name] += 1
    if ended.code < 0 and deaths[name] < MOST_DEATHS:
        return jobs
    if job is None:
        raise ActlabError(f"a worker process {ended.how} before it started a job")
    if ended.code == -signal.SIGKILL and len(job.runs) > 1:
        return [*packing.halve(job, root), *(other for other in jobs if other.id != job.id)]
    times = f" in {deaths[name]} attempts" if deaths[name] > 1 else ""
    for run in job.runs:
        queue.fail(run, f"the process that trained it {ended.how}{times}", root, progress)
    return jobs
