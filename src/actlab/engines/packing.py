"""Pack runs into stacks; the decision is made once, written to ``stacks.json`` and reused by a restart.

A resumed stack reproduces an uninterrupted one bit for bit only with the same members, order and number of
threads.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import SingleDeviceStrategy

from actlab import experiments
from actlab.engines import compatibility, stack_trial
from actlab.engines.devices import SMALL, threads_for
from actlab.engines.jobs import Job
from actlab.engines.settings import Settings
from actlab.errors import ActlabError
from actlab.experiments import Experiment
from actlab.stacking import task as stacking
from actlab.storage.files import read_json, write_json
from actlab.studies import locks, stacks
from actlab.studies.folders import RunFolder
from actlab.studies.plan import MAX_STACK, Run
from actlab.studies.stacks import Stack

TRIALS = "trials.json"
_RETRY = "delete it; the trials of stacks are then run again"


@dataclass(frozen=True)
class Packing:
    """The jobs of a study.

    Args:
        jobs: jobs with unfinished runs, stacks first.
        reasons: why runs that differ only in settings are not stacked.
    """

    jobs: list[Job]
    reasons: list[str]


def pack(
    runs: Sequence[Run],
    root: Path,
    max_stack: int = MAX_STACK,
    stacked: bool = True,
    settings: Settings | None = None,
) -> Packing:
    """Group unfinished runs into jobs; keep the stacks of earlier starts.

    Args:
        runs: runs of one study.
        root: the study's folder; ``stacks.json`` there is read and written.
        max_stack: largest number of runs in one stack.
        stacked: whether to form new stacks.
        settings: numbers of processes and of threads in each; by default one process.

    Raises:
        ActlabError: if a member of an earlier stack is no longer a run of the study.
    """
    folders = {run.id: RunFolder(root, run) for run in runs}
    unfinished = {name for name, folder in folders.items() if not folder.finished}
    known = read_stacks(root, runs, unfinished)
    placed = {run.id for job in known for run in job.runs}
    unplaced = unfinished - placed
    free = [run for run in runs if run.id in unplaced and not folders[run.id].checkpoint.exists()]
    settings = settings or Settings()
    new, reasons = form_stacks(free, root, max_stack, settings) if stacked else ([], [])
    stacks.write(root, map(_entry, new))
    busy = {job.id for job in new if any(locks.is_locked(root, run.id) for run in job.runs)}
    if busy:  # another process began to train members alone, before it could see the stacks
        stacks.write(root, (), without=busy)
        new = [job for job in new if job.id not in busy]
    unplaced -= {run.id for job in new for run in job.runs}
    jobs = [job for job in (*known, *new) if any(run.id in unfinished for run in job.runs)]
    alone = [Job(run.id, (run,), settings.threads) for run in runs if run.id in unplaced]
    return Packing([*jobs, *alone], reasons)


def form_stacks(
    runs: Iterable[Run], root: Path, max_stack: int, settings: Settings
) -> tuple[list[Job], list[str]]:
    """Return stacks of compatible runs, and the reasons why other compatible runs are not stacked."""
    found: list[Job] = []
    reasons: dict[str, None] = {}
    tried: dict[str, str] = read_json(root / TRIALS, dict[str, str], _RETRY) if (root / TRIALS).exists() else {}
    groups = compatibility.similar(runs)
    for key, group in groups.items():
        experiment = experiments.build(group[0].config)
        if (reason := reason_against(experiment)) is None:
            if key not in tried:
                tried[key] = stack_trial.difference(group) or ""
                write_json(root / TRIALS, tried)
            reason = tried[key]
        if reason:
            reasons[reason] = None
        else:
            samples = getattr(experiment.data, "batch_size", SMALL)
            size = for_all(len(group), max_stack, settings.jobs, len(groups))
            parts = [part for part in even_parts(group, size) if len(part) > 1]
            threads = [settings.threads or threads_for(len(part) * samples) for part in parts]
            found += map(stack, parts, threads)
    return found, list(reasons)


def reason_against(experiment: Experiment) -> str | None:
    """Return why a run cannot be a member of a stack, or None if it can."""
    trainer, task, data = experiment
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        return "several devices, or a custom strategy"
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return "a loss scaler shared by all members would couple them (precision 16)"
    if trainer.gradient_clip_val is not None:
        return "gradient clipping over all members would couple them"
    if getattr(trainer, "overfit_batches", 0):
        return "overfit_batches replaces the order of batches"
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if type(callback) is not ModelCheckpoint and not getattr(callback, "stackable", False):
            return (
                f"{type(callback).__name__} does not declare 'stackable = True', so it may not support stacks"
            )
    if not getattr(data, "stackable", False):
        return (
            f"{type(data).__name__} makes batches for one seed, not for several (or does not declare "
            "'stackable = True')"
        )
    return stacking.reason_against(task)


def even_parts(group: Sequence[Run], size: int) -> list[Sequence[Run]]:
    """Split a group into the fewest parts of at most ``size`` runs, all about equally large."""
    number = math.ceil(len(group) / size)
    bounds = [round(i * len(group) / number) for i in range(number + 1)]
    return [group[a:b] for a, b in pairwise(bounds)]


def for_all(members: int, size: int, jobs: int, groups: int) -> int:
    """Return the size of stacks that keeps all processes busy, also if there are few groups.

    Args:
        members: number of runs in a group.
        size: largest number of runs in a stack.
        jobs: number of processes.
        groups: number of groups.

    >>> for_all(15, 15, jobs=2, groups=1), for_all(45, 15, jobs=2, groups=1), for_all(15, 15, jobs=2, groups=6)
    (8, 12, 15)
    """
    parts = math.ceil(members / size)
    if groups % jobs and groups < 4 * jobs:
        parts = math.ceil(parts / jobs) * jobs
    return math.ceil(members / min(parts, members))


def halve(job: Job, root: Path) -> list[Job]:
    """Replace a stack that did not fit into memory by two, also in ``stacks.json``; they keep its lock."""
    parts = even_parts(job.runs, math.ceil(len(job.runs) / 2))
    halves = [stack(part, job.threads) for part in parts]
    with locks.alone(root, locks.DECIDING):
        (lock,) = stacks.locks(root, [job.runs[0].id])
        lock = job.id if lock == job.runs[0].id else lock  # a node of a cluster has no file of stacks
        stacks.write(root, ({**_entry(half), "lock": lock} for half in halves), without=[job.id])
    job.checkpoint(root).unlink(missing_ok=True)
    return halves


def _entry(job: Job) -> Stack:
    return {"id": job.id, "members": [run.id for run in job.runs], "threads": job.threads}


def stack(members: Sequence[Run], threads: int) -> Job:
    """Return the stack of some runs; its id is a hash of their ids."""
    digest = hashlib.sha256("\n".join(run.id for run in members).encode()).hexdigest()[:12]
    return Job(digest, tuple(members), threads)


def read_stacks(root: Path, runs: Sequence[Run], unfinished: set[str]) -> list[Job]:
    """Return the stacks of these runs that earlier starts of the study formed.

    Args:
        root: the study's folder.
        runs: the planned runs of the study.
        unfinished: ids of the unfinished runs.

    Raises:
        ActlabError: if a stack contains an unfinished run and a run that is not among ``runs``.
    """
    by_id = {run.id: run for run in runs}
    jobs = []
    for entry in stacks.read(root):
        missing = [member for member in entry["members"] if member not in by_id]
        if missing and unfinished & set(entry["members"]):
            raise ActlabError(
                f"stack {entry['id']} in {root / stacks.FILE} contains {missing[0]}, which this study no "
                "longer has: run the study with the settings of its first start, or in another --runs-dir"
            )
        if not missing:
            members = tuple(by_id[member] for member in entry["members"])
            jobs.append(Job(entry["id"], members, entry["threads"]))
    return jobs
