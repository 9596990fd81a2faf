"""Arrange runs in jobs: stacks that began earlier, then new stacks of the whole plan, then runs alone.

New stacks are formed of all runs of the plan, whatever has finished, so that a restart forms the same ones: a
stack is bit for bit the same only with the same members, order and number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import SingleDeviceStrategy
from typing_extensions import TypedDict

from actlab import experiments
from actlab.checks import stack_trial
from actlab.config.keys import get_dotted
from actlab.config.values import canonical
from actlab.datamodules.base import TensorDataModule
from actlab.engines import compatibility
from actlab.engines import settings as execution
from actlab.engines.jobs import Arranged, Job, Shard, even_parts, longest_first
from actlab.engines.settings import Decision, Settings
from actlab.errors import ActlabError
from actlab.experiments import Experiment
from actlab.runtime import signals
from actlab.runtime.accidents import has_float64
from actlab.runtime.devices import accelerators, threads_for
from actlab.runtime.machine import versions
from actlab.stacking import task as stacking
from actlab.storage.files import stored_json, write_json
from actlab.studies import stacks
from actlab.studies.folders import DAMAGED, DIVERGED, FINISHED, RunFolder
from actlab.studies.plan import MAX_STACK, Run

TRIALS = "trials.json"
_DEVICES = ("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy")


class StackVerdict(TypedDict):
    """The verdict of a stack trial, and the versions that it holds for."""

    verdict: Literal["agree", "differ"]
    reason: str
    versions: dict[str, str]


class Packing(NamedTuple):
    """The jobs of a study."""

    jobs: list[Job]  # with unfinished runs, stacks first
    reasons: list[str]  # why runs that differ only in settings are not stacked
    groups: dict[str, list[Run]]  # runs that can be stacked, by key


def pack(
    runs: Sequence[Run],
    root: Path,
    max_stack: int = MAX_STACK,
    stacked: bool = True,
    settings: Settings | None = None,
    shard: Shard | None = None,
    todo: Sequence[Run] | None = None,
) -> Packing:
    """Group the runs of a study into jobs; form new stacks, of at most ``max_stack`` runs, only if ``stacked``.

    ``settings`` are by default those of one process. Only the jobs of ``shard`` are returned, by default all,
    and only those of ``todo``, by default of all runs. The others have finished or failed; they count where
    stacks are formed and shared, so that a start that has seen no failure forms and shares the same ones.
    """
    settings = settings or Settings()
    folders = {run.id: RunFolder(root, run) for run in runs}
    wanted = {run.id for run in (runs if todo is None else todo)}
    missing = {name for name, folder in folders.items() if not folder.finished}
    unfinished, failed = missing & wanted, missing - wanted
    groups = compatibility.similar(runs, failed) if stacked else {}
    packed = form_stacks(groups, failed, root, max_stack, settings)
    cells = [*packed.jobs]
    in_cells = {name for cell in cells for name in cell.names}
    cells += [Job((run,), settings.threads) for run in runs if run.id not in in_cells]
    jobs = begun(root, runs, unfinished)
    placed = {name for job in jobs for name in job.names} | failed
    for cell in cells:
        if unfinished.isdisjoint(cell.names):
            continue
        left = [r for r in cell.runs if r.id not in placed and not _is_over_or_alone(folders[r.id])]
        if len(left) > 1 and not unfinished.isdisjoint(run.id for run in left):
            jobs.append(Job(tuple(left), cell.threads))
            placed |= {*jobs[-1].names}
    jobs += [Job((run,), settings.threads) for run in runs if run.id in unfinished - placed]
    if shard is not None:
        mine = share_of(shard, cells, groups)
        jobs = [job for job in jobs if mine.issuperset(job.names)]
    return packed._replace(jobs=jobs)


def arrange(
    runs: Sequence[Run],
    todo: Sequence[Run],
    root: Path,
    max_stack: int,
    jobs: int | None,
    shard: Shard | None,
    stacked: bool,
    graphs: bool | None = None,
) -> Arranged:
    """Decide how the unfinished runs ``todo`` of ``runs`` will be trained; see `pack` and `settings.decide`."""
    if len({canonical([get_dotted(run.config, key) for key in _DEVICES]) for run in runs}) > 1:
        raise ActlabError(
            f"the runs of a study must use the same devices: {', '.join(_DEVICES)} must not differ"
        )
    first = experiments.build(todo[0].config)
    per_epoch, single = first.updates_per_epoch(), first.trainer.world_size == 1
    updates = sum((r.epochs or 1) * (per_epoch or 1) for r in runs)
    chosen = execution.decide(root, len(runs), updates, jobs, single, shard is not None, graphs)
    packed = pack(runs, root, max_stack, stacked, chosen, shard, todo)
    reasons = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]
    untimed: dict[str, list[Run]] = {}
    if updates >= execution.LONG and single and chosen.jobs and shard is None:
        untimed = {key: group for key, group in packed.groups.items() if key not in chosen.stacks}
        if chosen.products == execution.UNTIMED and not untimed:
            untimed[""] = [todo[0]]
    devices = devices_for(todo[0].config) if single else []
    return Arranged(packed.jobs, chosen, single, reasons, untimed, devices)


def devices_for(config: Mapping[str, Any]) -> list[str]:
    """Return the accelerators for runs that use one each; none if a config numbers its devices among all."""
    wanted = get_dotted(config, "trainer.devices")
    return [] if isinstance(wanted, list) or "," in str(wanted) else accelerators()


def share_of(shard: Shard, cells: Sequence[Job], groups: Mapping[str, Sequence[Run]]) -> set[str]:
    """Return the ids of a shard's runs; ``groups`` take turns, so none depends on the stacks of another."""
    longest = longest_first(Job(tuple(group)) for group in groups.values())
    numbers, others = dict[str, Iterator[int]](), count()
    for number, job in enumerate(longest):
        numbers |= dict.fromkeys(job.names, count(number, len(longest)))
    mine = [c for c in longest_first(cells) if next(numbers.get(c.names[0], others)) % shard.of == shard.part]
    return {name for cell in mine for name in cell.names}


def _is_over_or_alone(folder: RunFolder) -> bool:
    """Whether a run needs no stack. One that diverged is trained again if the stack has no checkpoint."""
    kind = folder.state.kind
    return kind in (FINISHED, DAMAGED) or (kind != DIVERGED and folder.checkpoint.exists())


def begun(root: Path, runs: Sequence[Run], unfinished: set[str]) -> list[Job]:
    """Return the jobs of the stacks that have begun, or of the parts into which they were split."""
    by_id, known = {run.id: run for run in runs}, stacks.begun(root)
    split = [stack.members for stack in known if stack.parts]
    groups = [(stack, part) for stack in known for part in stack.parts or [stack.members] if part not in split]
    jobs = []
    for stack, group in groups:
        missing = [name for name in group if name not in by_id]
        if unfinished.isdisjoint(group):
            continue
        if missing:
            raise ActlabError(
                f"{stack.folder} contains {missing[0]}, which this study no longer has: run the study with the "
                "settings of its first start, or in another --runs-dir"
            )
        jobs.append(Job(tuple(by_id[name] for name in group), stack.threads))
    return jobs


def form_stacks(
    groups: Mapping[str, list[Run]], failed: set[str], root: Path, max_stack: int, settings: Settings
) -> Packing:
    """Return stacks of runs that have not all ``failed``, and why other compatible runs are not stacked."""
    jobs: list[Job] = []
    stackable: dict[str, list[Run]] = {}
    reasons: dict[str, None] = {}
    for key, group in groups.items():
        signals.check()
        if failed.issuperset(run.id for run in group):
            continue
        experiment = experiments.build(group[0].config)
        if reason := reason_against(experiment) or _difference(root, key, group):
            reasons[reason] = None
            continue
        stackable[key] = group
        decision = settings.stacks.get(key, Decision(size=0, reason=""))
        if decision["size"] == 1:
            reasons[decision["reason"]] = None
            continue
        largest = min(max_stack, decision["size"] or max_stack)
        size = for_all(len(group), largest, max(1, settings.jobs), len(groups))
        for part in even_parts(group, size):
            jobs.append(Job(tuple(part), settings.threads or threads_for(0)))  # one: see `threads_for`
    return Packing(jobs, list(reasons), stackable)


def _difference(root: Path, key: str, group: Sequence[Run]) -> str:
    """Return how a stack of a group differs from its runs alone, as a trial found; empty if it agrees."""
    path, remedy = root / TRIALS, "delete it; the trials of stacks are then run again"
    known = stored_json(path, dict[str, StackVerdict], remedy)
    if key not in known or known[key]["versions"] != versions():
        try:
            reason = stack_trial.difference(group) or ""
        except stack_trial.TrialError as error:  # no verdict, such as an exception: never kept
            return str(error)
        known[key] = StackVerdict(verdict="differ" if reason else "agree", reason=reason, versions=versions())
        write_json(path, known)
    return known[key]["reason"]


def reason_against(experiment: Experiment) -> str | None:
    """Return why a run cannot be a member of a stack, or None if it can."""
    trainer, task, data = experiment
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        return "several devices, or a custom strategy"
    if not has_float64(device := trainer.strategy.root_device):
        return f"the device {device.type} has no float64, in which stacks are compared with runs alone"
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return "a loss scaler shared by all members would couple them (precision 16)"
    if getattr(trainer, "overfit_batches", 0):
        return "overfit_batches replaces the order of batches"
    if reason := stacking.reason_against(task):  # which no declaration below would change
        return reason
    if not isinstance(data, TensorDataModule):
        return f"{type(data).__name__} makes batches for one seed, as every datamodule but a TensorDataModule"
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
    return None


def for_all(members: int, size: int, jobs: int, groups: int) -> int:
    """Return the size of stacks that keeps all processes busy, also if there are few groups of runs.

    >>> [for_all(members, 15, jobs=2, groups=1) for members in (1, 2, 3, 15, 45)], for_all(15, 15, 2, groups=6)
    ([1, 1, 2, 8, 12], 15)
    """
    parts = math.ceil(members / size)
    # With many groups, the processes that are idle at the end cost little.
    if groups % jobs and groups < 4 * jobs:
        parts = math.ceil(parts / jobs) * jobs
    return math.ceil(members / min(parts, members))
