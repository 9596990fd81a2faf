"""Arrange runs in jobs: stacks that began earlier, then new stacks of what is left.

No digit of a run depends on the other runs of its stack, so each start may pack the runs as it
likes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actlab.checks.facts import Known
from actlab.config.paths import get_dotted
from actlab.config.values import canonical
from actlab.engines import compatibility, timing, trials
from actlab.engines import settings as execution
from actlab.engines.jobs import Arranged, Job, Shard, even_parts, share_of
from actlab.errors import ActlabError
from actlab.runtime import signals
from actlab.studies import stacks
from actlab.studies.plan import MAX_STACK, Run
from actlab.studies.run_folder import RunFolder

_DEVICES = ("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy")


class Packing(NamedTuple):
    """The jobs of a study."""

    jobs: list[Job]  # with unfinished runs
    reasons: list[str]  # why runs that differ only in settings are not stacked


def pack(
    runs: Sequence[Run],
    root: Path,
    max_stack: int = MAX_STACK,
    jobs: int = 1,
    shard: Shard | None = None,
    todo: Sequence[Run] | None = None,
    sharing: int = 0,
    known: Known | None = None,
    untried: str = "",
) -> Packing:
    """Group the runs of a study into jobs of at most ``max_stack`` runs, for a number of processes.

    Only the jobs of ``shard`` are returned, by default all, and only those of ``todo``, by default
    of all runs. Stacks have the best size for ``sharing`` processes on a device; where that is 0,
    they are not timed. ``untried`` is why stacks were not tried: each run is a plain module.
    """
    left = {run.id for run in (runs if todo is None else todo) if not RunFolder(root, run).finished}
    mine = {run.id for run in share_of(shard, runs)}
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
        alone, reason = (False, untried) if untried else form_of(root, key, group, max_stack, known)
        size = 1 if reason else min(max_stack, len(group))
        if sharing and size > 1:
            updates = known.updates_of(group[0]) or 1
            size = timing.best_size(group, updates, size, alone, sharing)
            reason = "stacks save no time" if size == 1 else ""
        if reason and len(group) > 1:
            reasons[reason] = None
        size = for_all(len(group), size, max(1, jobs), len(groups))
        packed += [Job(tuple(part), alone or len(part) > 1) for part in even_parts(group, size)]
    return Packing(packed, list(reasons))


def arrange(
    runs: Sequence[Run],
    todo: Sequence[Run],
    root: Path,
    max_stack: int,
    jobs: int | None,
    shard: Shard | None,
    known: Known,
    graphs: bool | None = None,
    devices: Sequence[str] = (),
    untried: str = "",
) -> Arranged:
    """Decide how the unfinished runs ``todo`` will be trained; see `pack` and `settings.decide`.

    ``devices`` are the accelerators of this machine, the best one first.
    """
    if len({canonical([get_dotted(run.config, key) for key in _DEVICES]) for run in runs}) > 1:
        raise ActlabError(
            f"the runs of a study must use the same devices: {', '.join(_DEVICES)} must not differ"
        )
    single = known.of(todo[0]).single_device
    per_epoch = known.updates_of(todo[0]) or 1
    updates = sum((run.epochs or 1) * per_epoch for run in runs)
    settings = execution.decide(root, len(runs), updates, jobs, single, graphs, devices)
    sharing = 0
    if updates >= execution.LONG and single:
        sharing = math.ceil(settings.jobs / max(1, len(devices)))
    packed = pack(runs, root, max_stack, settings.jobs, shard, todo, sharing, known, untried)
    reasons = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]
    if not single or are_numbered(todo[0].config):
        devices = ()  # each process sees all
    return Arranged(packed.jobs, settings, single, reasons, devices)


def are_numbered(config: Mapping[str, Any]) -> bool:
    """Return whether a config numbers its devices among all."""
    wanted = get_dotted(config, "trainer.devices")
    return isinstance(wanted, list) or "," in str(wanted)


def begun(root: Path, runs: Sequence[Run], unfinished: set[str]) -> list[Job]:
    """Return the jobs of the stacks that have begun and have ``unfinished`` runs."""
    by_id = {run.id: run for run in runs}
    jobs = []
    for stack in stacks.begun(root):
        if unfinished.isdisjoint(stack.members):
            continue
        if lacking := [name for name in stack.members if name not in by_id]:
            raise ActlabError(
                f"{stack.folder} contains {lacking[0]}, which this study no longer has: run the "
                "study with the settings of its first start, or in another --runs-dir"
            )
        jobs.append(Job(tuple(by_id[name] for name in stack.members), stacked=True))
    return jobs


def form_of(
    root: Path, key: str, group: Sequence[Run], max_stack: int, known: Known
) -> tuple[bool, str]:
    """Return whether a run alone is a stack of one, and why several share no stack, or "".

    The former does not depend on the group.
    """
    facts = known.of(group[0])
    reason = facts.reason or trials.reason_against_form(root, key, group)
    if reason:
        return False, reason
    if facts.has_forms and min(len(group), max_stack) == 1:
        return True, ""
    # The digits of a GPU depend on the number of runs anyway, and a mapped run alone would be
    # slower.
    reason = trials.reason_against_stack(root, key, group, exact=facts.on_cpu)
    return facts.has_forms or (facts.on_cpu and not reason), reason


def for_all(members: int, size: int, jobs: int, groups: int) -> int:
    """Return the size of stacks that keeps all processes busy, also for few groups of runs.

    >>> [for_all(members, 15, jobs=2, groups=1) for members in (1, 2, 3, 15, 45)]
    [1, 1, 2, 8, 12]
    >>> for_all(15, 15, jobs=2, groups=6)
    15
    """
    parts = math.ceil(members / size)
    # With many groups, the processes that are idle at the end cost little.
    if groups % jobs and groups < 4 * jobs:
        parts = math.ceil(parts / jobs) * jobs
    return math.ceil(members / min(parts, members))
