"""Hand out the jobs of a study to worker processes, one request a job, and replace dead workers.

The threads of one process spin while they wait for each other, several times per update; processes
do not, so each worker has one thread. Each job has a process of its own, so no run depends on state
that users' code keeps outside its instances. A worker may be killed at any time: its job is resumed
from the last epoch.
"""

from __future__ import annotations

import math
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from actlab.engines.jobs import Arranged, Job, LoggerFactory, longest_first
from actlab.engines.workers import LOST, STALLED, EndedError, Worker
from actlab.runtime import signals
from actlab.studies import locks
from actlab.studies.run_folder import RunFolder

MOST_DEATHS = 3  # by signals, of the workers that train one job


@dataclass
class Pool:
    """Trains jobs in worker processes on this machine.

    It hands out jobs, the longest first, reports their progress, and decides what happens to a job
    whose worker died. It does not decide which runs form a job (`actlab.engines.packing`), does not
    train (`actlab.engines.training`, in the workers), and neither reads nor writes results: folders
    of runs say what has finished or failed.

    Args:
        arranged: settings and devices of the workers.
        root: folder of the study.
        logger: creates the Lightning logger of a run.
        locked: whether workers hold the locks of their runs.
        stalled: least seconds without progress after which a worker is ended.
    """

    arranged: Arranged
    root: Path
    logger: LoggerFactory | None = None
    locked: bool = True
    stalled: float = STALLED
    deaths: Counter[str] = field(default_factory=Counter, init=False)  # by job
    queue: list[Job] = field(default_factory=list, init=False)
    # Jobs that other starts are training.
    held: list[Job] = field(default_factory=list, init=False)

    def train(self, jobs: Sequence[Job]) -> list[Job]:
        """Train jobs; return the jobs that other starts of the study are training."""
        self.queue = longest_first(jobs)
        self.held = []
        workers = self._workers(len(jobs))
        training: dict[Worker, Job] = {}
        try:
            while self.queue or training:
                # Ask idle workers
                for worker in workers:
                    if worker not in training and self.queue:
                        job = self.queue.pop(0)
                        training[worker] = job
                        call = self.arranged.call(
                            job, self.root, self.logger, self.locked
                        )
                        worker.ask(*call)

                # Wait for messages
                ends = []
                for worker in training:
                    ends += worker.ends
                wait(ends, timeout=1)
                for worker in list(training):
                    self._receive(worker, training)
        finally:
            for worker in workers:
                worker.end(at_once=worker in training)
        return self.held

    def _workers(self, most: int) -> list[Worker]:
        """Return the workers, at most so many; their processes start with their first jobs."""
        settings = self.arranged.settings
        workers = []
        for number in range(min(settings.jobs, most)):
            device = self.arranged.device_of(number)
            workers.append(Worker(settings, device, self.stalled))
        return workers

    def _receive(self, worker: Worker, training: dict[Worker, Job]) -> None:
        """Act on the next message of a worker."""
        try:
            message = worker.receive()
        except EndedError as ended:
            self._requeue(ended, training.pop(worker))
            return
        match message:
            case (signals.PROGRESS, parts):
                signals.report(parts)
            case ("done", is_over):
                job = training.pop(worker)
                worker.end()  # the next job starts another: no state outside networks passes on
                if not is_over:
                    self.held.append(job)

    def _requeue(self, ended: EndedError, job: Job) -> None:
        """Try the job of a worker that has ended again, in halves or not at all."""
        # A failed accelerator does not count as a death
        if ended.code == LOST:
            self.queue[:0] = job.unfinished_alone(self.root)
            return

        # Count how often this job has ended its process
        self.deaths[job.id] += 1
        number = self.deaths[job.id]

        # A signal may come from a system that ran out of memory; an exit recurs
        if ended.code < 0 and not ended.stalled:
            if number < MOST_DEATHS:
                self.queue.insert(0, job)  # it resumes from its last epoch
                return
            if ended.code == -signal.SIGKILL and len(job.runs) > 1:
                self.queue[:0] = job.halves(self.root)
                return

        attempts = f" in {number} attempts" if number > 1 else ""
        job.fail(self.root, f"the process that trained it {ended.ending}{attempts}")


def wait_for(jobs: Sequence[Job], root: Path) -> list[Job]:
    """Wait until a job that other processes train is over or free; return the unfinished jobs."""
    while True:
        signals.check()
        show(jobs, root)

        # Return if another job can be trained, or none is left
        unfinished = [job for job in jobs if not job.is_over(root)]
        if not unfinished or not all(_is_held(job, root) for job in unfinished):
            return unfinished
        time.sleep(locks.PAUSE)


def _is_held(job: Job, root: Path) -> bool:
    """Return whether a process trains or evaluates a run of a job."""
    return any(locks.is_held(root, name) for name in job.names)


def show(jobs: Sequence[Job], root: Path) -> None:
    """Report the progress of runs that other processes train, read from their folders."""
    for job in jobs:
        for run in job.runs:
            folder = RunFolder(root, run)
            if folder.finished:
                signals.report([(run.id, 1.0)])
            elif folder.epochs:  # it has begun
                fraction = folder.epochs / (run.epochs or math.inf)
                signals.report([(run.id, fraction)])
