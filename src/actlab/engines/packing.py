"""Arrange runs in jobs: stacks that began earlier, then new stacks of what is left.

No digit of a run depends on the other runs of its stack, so each start may pack the runs as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actlab import experiments
from actlab.checks.facts import Known
from actlab.config.keys import get_dotted
from actlab.config.values import canonical
from actlab.engines import compatibility, timing, trials
from actlab.engines import settings as execution
from actlab.engines.jobs import Arranged, Job, Shard, even_parts
from actlab.errors import ActlabError
from actlab.runtime import signals
from actlab.runtime.devices import accelerators
from actlab.studies import stacks
from actlab.studies.folders import RunFolder
from actlab.studies.groups import by_point
from actlab.studies.plan import MAX_STACK, Run

_DEVICES = ("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy")


class Packing(NamedTuple):
    """The jobs of a study."""

    jobs: list[Job]  # with unfinished runs
    reasons: list[str]  # why runs that differ only in settings are not stacked


class Form(NamedTuple):
    """How the runs of a group are trained."""

    alone: bool  # whether a run alone is a stack of one
    together: bool  # whether several may share a stack
    reason: str  # why they do not; empty if they may, or if there is one


def pack(
    runs: Sequence[Run],
    root: Path,
    max_stack: int = MAX_STACK,
    stacked: bool = True,
    jobs: int = 1,
    shard: Shard | None = None,
    todo: Sequence[Run] | None = None,
    timed: bool = False,
    known: Known | None = None,
) -> Packing:
    """Group the runs of a study into jobs of at most ``max_stack`` runs, for a number of processes.

    Only the jobs of ``shard`` are returned, by default all, and only those of ``todo``, by default of all runs.
    Unless ``stacked``, each run is a plain module. Where updates are ``timed``, stacks have the best size.
    """
    left = {run.id for run in (runs if todo is None else todo) if not RunFolder(root, run).finished}
    mine = share_of(shard, runs)
    packed = []
    for job in begun(root, runs, left):
        first = next(name for name in job.names if name in left)
        if first in mine:  # of several shards, one trains it
            packed.append(job)
        left = left.difference(job.names)

    known = known or Known()
    groups = compatibility.similar((run for run in runs if run.id in left & mine), known)
    reasons: dict[str, None] = {}
    for key, group in groups.items():
        signals.check()
        form = form_of(root, key, group, known, max_stack) if stacked else Form(False, False, "")
        size, reason = (max_stack if form.together else 1), form.reason
        if timed and size > 1:
            size, reason = timing.best_size(group, max_stack, form.alone)
        if reason and len(group) > 1:
            reasons[reason] = None
        size = for_all(len(group), size, max(1, jobs), len(groups))
        packed += [Job(tuple(part), form.alone) for part in even_parts(group, size)]
    return Packing(packed, list(reasons))


def arrange(
    runs: Sequence[Run],
    todo: Sequence[Run],
    root: Path,
    max_stack: int,
    jobs: int | None,
    shard: Shard | None,
    known: Known,
    stacked: bool,
    graphs: bool | None = None,
) -> Arranged:
    """Decide how the unfinished runs ``todo`` of ``runs`` will be trained; see `pack` and `settings.decide`."""
    if len({canonical([get_dotted(run.config, key) for key in _DEVICES]) for run in runs}) > 1:
        raise ActlabError(
            f"the runs of a study must use the same devices: {', '.join(_DEVICES)} must not differ"
        )
    first = experiments.build(todo[0].config)
    known.of(todo[0], first)
    per_epoch, single = first.updates_per_epoch(), first.trainer.world_size == 1
    updates = sum((r.epochs or 1) * (per_epoch or 1) for r in runs)
    settings = execution.decide(root, len(runs), updates, jobs, single, graphs)
    timed = updates >= execution.LONG and single and settings.jobs > 0
    packed = pack(runs, root, max_stack, stacked, settings.jobs, shard, todo, timed, known)
    reasons = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]
    devices = devices_for(todo[0].config) if single else []
    return Arranged(packed.jobs, settings, single, reasons, devices)


def devices_for(config: Mapping[str, Any]) -> list[str]:
    """Return the accelerators for runs that use one each; none if a config numbers its devices among all."""
    wanted = get_dotted(config, "trainer.devices")
    return [] if isinstance(wanted, list) or "," in str(wanted) else accelerators()


def share_of(shard: Shard | None, runs: Sequence[Run]) -> set[str]:
    """Return the ids of a shard's runs: a part of each grid point, whose first parts go to shards in turn."""
    if shard is None:
        return {run.id for run in runs}
    mine = set[str]()
    for number, alike in enumerate(by_point(runs)):
        parts = even_parts(alike, math.ceil(len(alike) / shard.of))
        for index, part in enumerate(parts):
            if (number + index) % shard.of == shard.part:
                mine.update(run.id for run in part)
    return mine


def begun(root: Path, runs: Sequence[Run], unfinished: set[str]) -> list[Job]:
    """Return the jobs of the stacks that have begun and have ``unfinished`` runs."""
    by_id = {run.id: run for run in runs}
    jobs = []
    for stack in stacks.begun(root):
        if unfinished.isdisjoint(stack.members):
            continue
        if lacking := [name for name in stack.members if name not in by_id]:
            raise ActlabError(
                f"{stack.folder} contains {lacking[0]}, which this study no longer has: run the study with the "
                "settings of its first start, or in another --runs-dir"
            )
        jobs.append(Job(tuple(by_id[name] for name in stack.members), stack.alone_stacked))
    return jobs


def form_of(root: Path, key: str, group: Sequence[Run], known: Known, max_stack: int = MAX_STACK) -> Form:
    """Return how the runs of a group are trained; for a run alone this does not depend on the group."""
    facts = known.of(group[0])
    reason = facts.reason or trials.reason_against_form(root, key, group)
    if reason:
        return Form(False, False, reason)
    if facts.has_forms and min(len(group), max_stack) == 1:
        return Form(True, False, "")
    # The digits of a GPU depend on the number of runs anyway, and a mapped run alone would be slower.
    reason = trials.reason_against_stack(root, key, group, exact=facts.on_cpu)
    return Form(facts.has_forms or (facts.on_cpu and not reason), not reason, reason)


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
