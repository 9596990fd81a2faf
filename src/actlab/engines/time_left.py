"""Estimate how long training will still take, from what its jobs have done so far.

The unit of work is one epoch of one run. Its seconds are measured in the jobs that are most alike: in the job
itself, else in jobs of the same points, else of the same size, else in others with the same network and data.
Stacks and runs alone are never alike. A job has no estimate before one that is alike has begun.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Hashable, Mapping, Sequence
from typing import NamedTuple

from actlab.config.keys import canonical
from actlab.engines.jobs import Job, longest_first
from actlab.reports.notes import duration
from actlab.studies.plan import Run

RECENT = 1000  # reports of a job; their later half is timed, which other programs may have slowed down
SAME = 0.5  # seconds within which reports, such as those of the members of a stack, are one
_ALIKE = 2  # entries of a kind that jobs have in common, at least, if one may be timed for the other
_STEPS = ((10, 1), (60, 5), (600, 60), (3600, 300))  # below so many seconds, estimates are rounded to these


class Part(NamedTuple):
    """A job: what is left, and what was measured.

    Args:
        kind: from the general to the special; the more of it two jobs have in common, the more they are alike.
        left: epochs to go, of all its runs.
        begun: whether it is being trained.
        gained: epochs, of all its runs, that were timed; 0 for none.
        seconds: how long these took.
    """

    kind: tuple[Hashable, ...]
    left: float
    begun: bool = False
    gained: float = 0.0
    seconds: float = 0.0


def seconds_left(parts: Sequence[Part], processes: int) -> tuple[float, float]:
    """Return the seconds until all jobs have ended, and the share of the epochs to go that these stand for.

    Jobs without an estimate take no time. Those that have not begun start in their order, each in the process
    that is free first.
    """
    todo, timed = [part for part in parts if part.left > 0], _timed(parts)
    known = [(part, part.left * rate) for part in todo if (rate := _seconds_per_epoch(part, timed)) is not None]
    ends = [seconds for part, seconds in known if part.begun]
    ends += [0.0] * (processes - len(ends))
    heapq.heapify(ends)
    for seconds in (seconds for part, seconds in known if not part.begun):
        heapq.heapreplace(ends, ends[0] + seconds)
    share = sum(part.left for part, _ in known) / sum(part.left for part in todo) if todo else 1.0
    return max(ends), share


def _timed(parts: Sequence[Part]) -> dict[Hashable, tuple[float, float]]:
    """Return the seconds and epochs that were timed in all jobs of a kind, by each beginning of kinds."""
    found: dict[Hashable, tuple[float, float]] = {}
    for part in (part for part in parts if part.gained > 0):
        for alike in _beginnings(part):
            seconds, gained = found.get(alike, (0.0, 0.0))
            found[alike] = seconds + part.seconds, gained + part.gained
    return found


def _seconds_per_epoch(part: Part, timed: Mapping[Hashable, tuple[float, float]]) -> float | None:
    """Return the seconds of one epoch of one run in the jobs most alike; None if none was timed."""
    seconds, gained = next((timed[alike] for alike in _beginnings(part) if alike in timed), (0.0, 0.0))
    return seconds / gained if gained else None


def _beginnings(part: Part) -> list[tuple[Hashable, ...]]:
    """Return the beginnings of a kind that jobs must share for one to be timed for the other, longest first."""
    return [part.kind[:common] for common in range(len(part.kind), _ALIKE - 1, -1)]


class TimeLeft:
    """Follows the progress of jobs. ``unfinished`` are the ids of the runs that are to be trained."""

    def __init__(self, jobs: Sequence[Job], unfinished: Container[str], processes: int) -> None:
        self.jobs, self.processes = longest_first(jobs), max(1, processes)
        self.job_of = {run.id: job for job in jobs for run in job.runs if run.id in unfinished}
        self.fractions: dict[str, float] = {}
        # of each job: times of reports, and epochs of all its runs until then
        self.points: dict[str, deque[tuple[float, float]]] = {job.id: deque(maxlen=RECENT) for job in jobs}
        self.last: dict[str, float] = {}  # time of the last report of each job
        self.kinds = {job.id: _kind(job) for job in jobs}

    def add(self, run: Run, fraction: float, now: float) -> None:
        """Add the completed fraction of a run.

        The first report of a run is no gain, as a run may resume. Neither is its end, which may be early.
        """
        if (job := self.job_of.get(run.id)) is None or fraction == self.fractions.get(run.id):
            return
        points = self.points[job.id]
        time, gained = points[-1] if points else (now, 0.0)
        if run.id in self.fractions and fraction < 1:
            gained += (fraction - self.fractions[run.id]) * (run.epochs or 1)
        self.fractions[run.id] = fraction
        self.last[job.id] = now
        if len(points) > 1 and now - time < SAME:
            points[-1] = time, gained
        elif not points or gained != points[-1][1]:
            points.append((now, gained))

    def text(self) -> str:
        """Return the time left in words: ``about 5 min left``, or ``at least``, of most of the epochs to go.

        Empty where most have no estimate.
        """
        seconds, share = seconds_left([self._part(job) for job in self.jobs], self.processes)
        bound = "about" if share == 1 else "at least"
        return f"{bound} {_rounded(seconds)} left" if seconds and share > 0.5 else ""

    def _part(self, job: Job) -> Part:
        runs = [run for run in job.runs if run.id in self.job_of]
        left = sum((1 - self.fractions.get(run.id, 0.0)) * (run.epochs or 1) for run in runs)
        kind, known = self.kinds[job.id], self.points[job.id]
        timed = [*known][: -1 if left else None]  # members of a stack may be missing in the last report
        if len(timed) < (3 if left else 2):  # the first updates of a job are slow
            return Part(kind, left, bool(known))
        begin, before = timed[(len(timed) - 1) // 2]
        end, gained = timed[-1]
        return Part(kind, left, True, gained - before, (end if left else self.last[job.id]) - begin)


def _kind(job: Job) -> tuple[Hashable, ...]:
    points = frozenset(canonical(run.point) for run in job.runs)
    return job.kind, len(job.runs) > 1, len(job.runs), points, job.id


def _rounded(seconds: float) -> str:
    step = next((step for limit, step in _STEPS if seconds < limit), 600)
    return duration(max(1, round(seconds / step)) * step)
