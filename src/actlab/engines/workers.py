"""Workers: processes that train the jobs of a study side by side, one thread each; one that dies is replaced.

Two threads of one process wait for each other by spinning, several times an update; processes do not. Run
folders, locks and checkpoints are those of one process, so a worker may be killed at any moment: its job goes
on from the last epoch in the next one.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from actlab import stopping
from actlab.engines import packing, queue
from actlab.engines.children import Child, EndedError, Report
from actlab.engines.folders import RunFolder
from actlab.engines.packing import Job
from actlab.engines.recording import LoggerFactory, Progress
from actlab.engines.settings import Settings
from actlab.studies.plan import Run

MOST_DEATHS = 3  # by signals, of the processes that train one job


@dataclass
class Seat:
    """A worker and the job that it has.

    Args:
        worker: a process, and those that replace it.
        job: what it trains; None while it waits.
    """

    worker: Child
    job: Job | None = None


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
    waiting = deque(sorted(jobs, key=_length, reverse=True))
    runs: dict[str, Run] = {run.id: run for job in jobs for run in job.runs}
    deaths: dict[str, int] = {}
    busy: list[Job] = []
    number = min(settings.jobs, len(jobs))
    seats = [Seat(Child(settings, n if settings.jobs > 1 else None)) for n in range(number)]
    if worker is not None:
        seats = [Seat(worker)]
    try:
        for seat in seats:
            _hand_out(seat, waiting, root, logger)
        while working := [seat for seat in seats if seat.job is not None]:
            stopping.check()
            ready = {*wait([end for seat in working for end in seat.worker.ends], timeout=1)}
            for seat in (s for s in working if ready.intersection(s.worker.ends)):
                try:
                    kind, *content = seat.worker.heard()
                except EndedError as ended:
                    _put_back(seat.job, ended, root, progress, deaths, waiting)
                else:
                    if kind == "progress":
                        progress(runs[content[0]], content[1])
                    if kind != "done":
                        continue
                    if content[0] and seat.job:
                        busy.append(seat.job)
                _hand_out(seat, waiting, root, logger)
    finally:
        for seat in seats:
            if seat.job is not None or seat.worker is not worker:
                seat.worker.end(at_once=seat.job is not None)
    return busy


def _length(job: Job) -> int:
    """About how long a job takes: the longest come first, so that none is left to one worker at the end."""
    return sum(run.epochs or 1 for run in job.runs)


def _hand_out(seat: Seat, waiting: deque[Job], root: Path, logger: LoggerFactory | None) -> None:
    seat.job = waiting.popleft() if waiting else None
    if seat.job is not None:
        seat.worker.ask(_train, seat.job, root, logger)


def _train(report: Report, job: Job, root: Path, logger: LoggerFactory | None) -> bool:
    """Train a job, in a worker; whether it was left to another process."""

    def progress(run: Run, fraction: float) -> None:
        report("progress", run.id, fraction)

    return bool(queue.work([job], root, progress, logger))


def _put_back(
    job: Job | None,
    ended: EndedError,
    root: Path,
    progress: Progress,
    deaths: dict[str, int],
    waiting: deque[Job],
) -> None:
    """Put the job of a worker back that a signal has ended, or record its runs as failed.

    An exit would be repeated; a signal may have come from a system whose memory was short. A stack whose worker
    the system kills again and again is put back as two halves.
    """
    assert job is not None
    deaths[job.id] = deaths.get(job.id, 0) + 1
    if ended.code < 0 and deaths[job.id] < MOST_DEATHS:
        waiting.appendleft(job)
        return
    if ended.code == -signal.SIGKILL and len(job.runs) > 1:
        waiting.extendleft(packing.halve(job, root))
        return
    times = f" in {deaths[job.id]} attempts" if deaths[job.id] > 1 else ""
    for folder in (RunFolder(root, run) for run in job.runs):
        if not folder.finished:
            folder.open()
            folder.fail(f"the process that trained it {ended.how}{times}")
            progress(folder.run, 1.0)
