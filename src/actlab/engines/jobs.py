"""Jobs of an engine, the runs that one Trainer trains, and how a study is arranged in jobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from actlab.engines.settings import Settings
from actlab.runtime import signals
from actlab.studies import stacks
from actlab.studies.plan import Run
from actlab.studies.run_folder import RunFolder

T = TypeVar("T")
LoggerFactory = Callable[[Run], Any]  # creates the Lightning logger of a run


class Shard(NamedTuple):
    """The share of one of several starts on a folder.

    It has the runs at positions ``part``, ``part + number``, ``part + 2 * number`` and so on.
    """

    part: int  # from 0
    number: int  # of starts


def share_of(shard: Shard | None, runs: Sequence[T]) -> Sequence[T]:
    """Return the runs of a shard, or all of them.

    Shards take runs in turns, so that each shard has seeds of each grid point.
    """
    if shard is None:
        return runs
    return runs[shard.part :: shard.number]


@dataclass(frozen=True)
class Job:
    """A stack of runs, or one run as a plain module, trained by one Trainer.

    It knows whether its runs are over, records that they failed, and replaces itself by smaller
    jobs. `actlab.engines.packing` decides which runs form a job, `actlab.engines.training` trains
    it.
    """

    runs: tuple[Run, ...]  # in the order of the run axis
    stacked: bool = False

    @property
    def names(self) -> list[str]:
        """Ids of the runs."""
        return [run.id for run in self.runs]

    @property
    def id(self) -> str:
        """Id of the run, or of the stack."""
        if len(self.runs) == 1:
            return self.runs[0].id
        return stacks.id_of(self.names)

    def folder(self, root: Path) -> Path:
        """Return the folder of a stack, which exists only during training."""
        return root / stacks.FOLDER / stacks.id_of(self.names)

    def checkpoint(self, root: Path) -> Path:
        """Return the path of a stack's checkpoint."""
        return self.folder(root) / stacks.CHECKPOINT

    def is_over(self, root: Path) -> bool:
        """Return whether all runs have finished, or failed in this start of the study."""
        for run in self.runs:
            folder = RunFolder(root, run)
            if not folder.finished and not folder.failure_file.exists():
                return False
        return True

    def fail(self, root: Path, reason: str) -> None:
        """Record the unfinished runs as failed."""
        for run in self.runs:
            folder = RunFolder(root, run)
            if not folder.finished:
                folder.fail(reason)
                signals.report([(folder.id, 1.0)])

    def halves(self, root: Path) -> list[Job]:
        """Replace a stack by two, which start from scratch."""
        size = ceil(len(self.runs) / 2)
        return self._split(root, even_parts(self.runs, size))

    def alone(self, root: Path) -> list[Job]:
        """Replace a stack by its runs, which start from scratch."""
        return self._split(root, [[run] for run in self.runs])

    def unfinished_alone(self, root: Path) -> list[Job]:
        """Return the runs that are not over, each alone."""
        parts = self.alone(root) if len(self.runs) > 1 else [self]
        return [part for part in parts if not part.is_over(root)]

    def _split(self, root: Path, parts: Iterable[Sequence[Run]]) -> list[Job]:
        """Delete what the stack has recorded, and return a job for each part."""
        shutil.rmtree(self.folder(root), ignore_errors=True)
        jobs = []
        for part in parts:
            jobs.append(replace(self, runs=tuple(part)))
        return jobs


class Arranged(NamedTuple):
    """How the runs of a study will be trained."""

    jobs: list[Job]
    settings: Settings  # of the processes
    single: bool  # whether each run uses a single device
    notes: list[str]  # lines to print about jobs and settings
    devices: Sequence[
        str
    ] = ()  # accelerators of the processes, in turn; without any, all see all

    def device_of(self, process: int) -> str | None:
        """Return the accelerator of a process; None if it sees all."""
        if not self.devices:
            return None
        return self.devices[process % len(self.devices)]

    def call(
        self, job: Job, root: Path, logger: LoggerFactory | None, locked: bool
    ) -> tuple[Any, ...]:
        """Return the function that trains a job, and its arguments."""
        if self.single:
            return "actlab.engines.training:work", job, root, logger, locked
        # Lightning starts a run's command again for each device, so the run has its own
        # process.
        return (
            "actlab.engines.multi_device:work",
            job,
            root,
            logger,
            locked,
            self.settings,
        )


def longest_first(jobs: Iterable[Job]) -> list[Job]:
    """Return jobs in the order in which they are trained, so that none runs alone at the end."""

    def epochs(job: Job) -> int:
        return sum(run.epochs or 1 for run in job.runs)

    return sorted(jobs, key=epochs, reverse=True)


def even_parts(runs: Sequence[Run], size: int) -> list[Sequence[Run]]:
    """Split runs into the fewest parts of at most ``size`` runs, all about equally large."""
    total = len(runs)
    number = ceil(total / size)
    bounds = [round(part * total / number) for part in range(number + 1)]

    parts = []
    for start, end in pairwise(bounds):
        parts.append(runs[start:end])
    return parts
