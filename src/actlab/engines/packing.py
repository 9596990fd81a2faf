"""Arrange runs in jobs: stacks that began earlier, then new stacks of what is left.

No digit of a run depends on the other runs of its stack, so each start may pack the runs as it
likes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actlab.checks.facts import BuiltFacts
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

_DEVICES = (
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
)


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
    built_facts: BuiltFacts | None = None,
    untried: str = "",
) -> Packing:
    """Group the runs of a study into jobs, stacks where possible.

    Args:
        runs: all runs of the study.
        root: folder of the study.
        max_stack: largest number of runs in a stack.
        jobs: number of processes that train at the same time.
        shard: returns only the jobs of this shard; by default all.
        todo: returns only jobs with these runs; by default with any.
        sharing: number of processes that share a device. Stacks then get the size that is best for
            them; 0 leaves them untimed.
        built_facts: the facts of the runs that were built, to which it adds.
        untried: why stacks could not be tried: each run is then a plain module.
    """
    # Take the stacks that have begun; of several shards, one trains a stack
    if todo is None:
        todo = runs
    unfinished = {run.id for run in todo if not RunFolder(root, run).finished}
    shard_ids = {run.id for run in share_of(shard, runs)}
    packed = []
    for job in begun(root, runs, unfinished):
        first_id = next(name for name in job.names if name in unfinished)
        if first_id in shard_ids:
            packed.append(job)
        unfinished = unfinished.difference(job.names)

    # Stack the other runs that are similar
    built_facts = built_facts or BuiltFacts()
    ids_to_pack = unfinished & shard_ids
    groups = compatibility.similar(
        (run for run in runs if run.id in ids_to_pack), built_facts
    )
    reasons: dict[str, None] = {}  # each once, in order
    for key, group in groups.items():
        signals.check()
        stacks_of_one = False  # whether runs alone are stacks of one
        reason = untried
        if not untried:
            stacks_of_one, reason = form_of(root, key, group, max_stack, built_facts)

        # Choose the size of the stacks
        size = 1 if reason else min(max_stack, len(group))
        if sharing and size > 1:
            updates = built_facts.updates_of(group[0]) or 1
            size = timing.best_size(group, updates, size, stacks_of_one, sharing)
            if size == 1:
                reason = "stacks save no time"
        if reason and len(group) > 1:
            reasons[reason] = None
        size = for_all(len(group), size, max(1, jobs), len(groups))

        # Split the group
        for part in even_parts(group, size):
            job = Job(tuple(part), stacked=stacks_of_one or len(part) > 1)
            packed.append(job)
    return Packing(packed, list(reasons))


def arrange(
    runs: Sequence[Run],
    todo: Sequence[Run],
    root: Path,
    max_stack: int,
    jobs: int | None,
    shard: Shard | None,
    built_facts: BuiltFacts,
    graphs: bool | None = None,
    devices: Sequence[str] = (),
    untried: str = "",
) -> Arranged:
    """Decide how the unfinished runs ``todo`` will be trained; see `pack` and `settings.decide`.

    ``devices`` are the accelerators of this machine, the best one first.
    """
    # Check that all runs use the same devices
    choices = {_device_settings(run.config) for run in runs}
    if len(choices) > 1:
        raise ActlabError(
            "the runs of a study must use the same devices. Set the same "
            f"{', '.join(_DEVICES)} for all runs."
        )

    # Decide how many processes train
    single = built_facts.of(todo[0]).single_device
    per_epoch = built_facts.updates_of(todo[0]) or 1
    updates = sum((run.epochs or 1) * per_epoch for run in runs)
    settings = execution.decide(root, len(runs), updates, jobs, single, graphs, devices)

    # Pack, with timed stacks where training takes long
    sharing = 0
    if updates >= execution.LONG and single:
        sharing = math.ceil(settings.jobs / max(1, len(devices)))
    packed = pack(
        runs, root, max_stack, settings.jobs, shard, todo, sharing, built_facts, untried
    )
    notes = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]

    if not single or are_numbered(todo[0].config):
        devices = ()  # each process sees all
    return Arranged(packed.jobs, settings, single, notes, devices)


def _device_settings(config: Mapping[str, Any]) -> str:
    """Return the settings of a config that choose devices, as text."""
    return canonical([get_dotted(config, key) for key in _DEVICES])


def are_numbered(config: Mapping[str, Any]) -> bool:
    """Return whether a config numbers its devices among all."""
    devices = get_dotted(config, "trainer.devices")
    return isinstance(devices, list) or "," in str(devices)


def begun(root: Path, runs: Sequence[Run], unfinished: set[str]) -> list[Job]:
    """Return the jobs of the stacks that have begun and have ``unfinished`` runs."""
    run_by_id = {run.id: run for run in runs}
    jobs = []
    for stack in stacks.begun(root):
        # A stack whose runs have all finished is deleted later
        if unfinished.isdisjoint(stack.members):
            continue
        members = []

        # The checkpoint has all members, so none can be left out
        for run_id in stack.members:
            if run_id not in run_by_id:
                raise ActlabError(
                    f"{stack.folder} contains {run_id}, which this study no longer has. Run the "
                    "study with the settings of its first start, or in another --runs-dir."
                )
            members.append(run_by_id[run_id])
        jobs.append(Job(tuple(members), stacked=True))
    return jobs


def form_of(
    root: Path, key: str, group: Sequence[Run], max_stack: int, built_facts: BuiltFacts
) -> tuple[bool, str]:
    """Return whether a run alone is a stack of one, and why several runs share no stack, or "".

    Whether a run alone is a stack of one does not depend on the group.
    """
    # Try the stacked form
    facts = built_facts.of(group[0])
    reason = facts.reason or trials.reason_against_form(root, key, group)
    if reason:
        return False, reason
    if facts.has_forms and min(len(group), max_stack) == 1:
        return True, ""

    # Try runs together. The digits of a GPU depend on the number of runs anyway, and a
    # mapped run alone would be slower.
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
