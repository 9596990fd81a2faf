"""Hand out the jobs of a study to worker processes, one request a job; a worker that dies is replaced.

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
    """Trains jobs in worker processes, which hold the locks of their runs if ``locked``.

    A worker without progress for at least ``stalled`` seconds is ended.
    """

    arranged: Arranged
    root: Path
    logger: LoggerFactory | None = None
    locked: bool = True
    stalled: float = STALLED
    deaths: Counter[str] = field(default_factory=Counter, init=False)  # by job
    held: list[Job] = field(default_factory=list, init=False)  # jobs that other starts are training
    left: list[Job] = field(default_factory=list, init=False)

    def train(self, jobs: Sequence[Job]) -> list[Job]:
        """Train jobs, the longest first; return those that other starts of the study are training."""
        self.left, self.held = longest_first(jobs), []
        number, settings = min(self.arranged.settings.jobs, len(jobs)), self.arranged.settings
        workers = [
            Worker(settings, self.arranged.device_of(n), self.stalled) for n in range(number)
        ]
        training: dict[Worker, Job] = {}
        try:
            while self.left or training:
                for worker in workers:
                    if worker not in training and self.left:
                        training[worker] = self.left.pop(0)
                        call = self.arranged.call(
                            training[worker], self.root, self.logger, self.locked
                        )
                        worker.ask(*call)
                wait([end for worker in training for end in worker.ends], timeout=1)
                for worker in [*training]:
                    self._hear(worker, training)
        finally:
            for worker in workers:
                worker.end(at_once=worker in training)
        return self.held

    def _hear(self, worker: Worker, training: dict[Worker, Job]) -> None:
        """Act on the next message of a worker."""
        try:
            message = worker.heard()
        except EndedError as ended:
            self._requeue(ended, training.pop(worker))
            return
        match message:
            case (signals.PROGRESS, parts):
                signals.report(parts)
            case ("done", over):
                job = training.pop(worker)
                worker.end()  # the next job starts another: no state outside networks passes on
                self.held += [] if over else [job]

    def _requeue(self, ended: EndedError, job: Job) -> None:
        """Try the job of a worker that has ended again, in halves or not at all."""
        if ended.code == LOST:
            self.left[:0] = job.left_alone(self.root)
            return
        self.deaths[job.id] += 1
        number = self.deaths[job.id]
        # Maybe by a system that ran out of memory; an exit recurs
        if ended.code < 0 and not ended.stalled:
            if number < MOST_DEATHS:
                # It resumes from its last epoch.
                self.left.insert(0, job)
                return
            if ended.code == -signal.SIGKILL and len(job.runs) > 1:
                self.left[:0] = job.halves(self.root)
                return
        times = f" in {number} attempts" if number > 1 else ""
        job.fail(self.root, f"the process that trained it {ended.how}{times}")


def freed(jobs: Sequence[Job], root: Path) -> list[Job]:
    """Wait until a job that other processes train is over or free; return the jobs that are not over."""
    while True:
        signals.check()
        show(jobs, root)
        rest = [job for job in jobs if not job.is_over(root)]
        if not rest or not all(
            any(locks.is_held(root, name) for name in job.names) for job in rest
        ):
            return rest
        time.sleep(locks.PAUSE)


def show(jobs: Sequence[Job], root: Path) -> None:
    """Report the progress of runs that other processes train, by their folders."""
    for run in (run for job in jobs for run in job.runs):
        folder = RunFolder(root, run)
        if folder.finished or folder.epochs:  # it has begun
            done = 1.0 if folder.finished else folder.epochs / (run.epochs or math.inf)
            signals.report([(run.id, done)])
