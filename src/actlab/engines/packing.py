"""Arrange runs in jobs: stacks that began earlier, then new stacks of what is left.

No digit of a run depends on the other runs of its stack, so each start may pack the runs as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch.nn.modules.conv import _ConvNd

from actlab import experiments
from actlab.config.keys import get_dotted
from actlab.config.values import canonical
from actlab.datamodules.base import TensorDataModule
from actlab.engines import compatibility, timing, trials
from actlab.engines import settings as execution
from actlab.engines.jobs import Arranged, Job, Shard, even_parts, share_of
from actlab.errors import ActlabError
from actlab.experiments import Experiment
from actlab.runtime import signals
from actlab.runtime.accidents import has_float64
from actlab.runtime.devices import accelerators
from actlab.stacking import task as stacking
from actlab.studies import stacks
from actlab.studies.folders import RunFolder
from actlab.studies.plan import MAX_STACK, Run
from actlab.tasks import Task

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
    timed: bool = False,
    untried: str = "",
) -> Packing:
    """Group the runs of a study into jobs of at most ``max_stack`` runs, for a number of processes.

    Only the jobs of ``shard`` are returned, by default all, and only those of ``todo``, by default of all runs.
    If updates are ``timed``, stacks have the best size. ``untried`` is why stacks were not tried: each run is a
    plain module.
    """
    left = {run.id for run in (runs if todo is None else todo) if not RunFolder(root, run).finished}
    mine = {run.id for run in share_of(shard, runs)}
    packed = []
    for job in begun(root, runs, left):
        first = next(name for name in job.names if name in left)
        if first in mine:  # of several shards, one trains it
            packed.append(job)
        left = left.difference(job.names)

    groups = compatibility.similar(run for run in runs if run.id in left & mine)
    reasons: dict[str, None] = {}
    for key, group in groups.items():
        signals.check()
        alone, reason = (False, untried) if untried else form_of(root, key, group, max_stack)
        size = 1 if reason else min(max_stack, len(group))
        if timed and size > 1:
            size = timing.best_size(group, size, alone)
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
    graphs: bool | None = None,
    untried: str = "",
) -> Arranged:
    """Decide how the unfinished runs ``todo`` of ``runs`` will be trained; see `pack` and `settings.decide`."""
    if len({canonical([get_dotted(run.config, key) for key in _DEVICES]) for run in runs}) > 1:
        raise ActlabError(
            f"the runs of a study must use the same devices: {', '.join(_DEVICES)} must not differ"
        )
    first = experiments.build(todo[0].config)
    per_epoch, single = first.updates_per_epoch(), first.trainer.world_size == 1
    updates = sum((r.epochs or 1) * (per_epoch or 1) for r in runs)
    settings = execution.decide(root, len(runs), updates, jobs, single, graphs)
    timed = updates >= execution.LONG and single and settings.jobs > 0
    packed = pack(runs, root, max_stack, settings.jobs, shard, todo, timed, untried)
    reasons = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]
    devices = devices_for(todo[0].config) if single else []
    return Arranged(packed.jobs, settings, single, reasons, devices)


def devices_for(config: Mapping[str, Any]) -> list[str]:
    """Return the accelerators for runs that use one each; none if a config numbers its devices among all."""
    wanted = get_dotted(config, "trainer.devices")
    return [] if isinstance(wanted, list) or "," in str(wanted) else accelerators()


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
        jobs.append(Job(tuple(by_id[name] for name in stack.members), stacked=True))
    return jobs


def form_of(root: Path, key: str, group: Sequence[Run], max_stack: int) -> tuple[bool, str]:
    """Return whether a run alone is a stack of one, and why several share no stack; empty if they may.

    The former does not depend on the group.
    """
    experiment = experiments.build(group[0].config)
    reason = reason_against(experiment) or trials.reason_against_form(root, key, group)
    if reason:
        return False, reason
    assert isinstance(experiment.task, Task)  # else there was a reason
    has_forms = stacking.has_forms(experiment.task)
    if has_forms and min(len(group), max_stack) == 1:
        return True, ""
    # The digits of a GPU depend on the number of runs anyway, and a mapped run alone would be slower.
    exact = experiment.trainer.strategy.root_device.type == "cpu"
    reason = trials.reason_against_stack(root, key, group, exact)
    return has_forms or (exact and not reason), reason


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
    if device.type == "cpu" and getattr(task, "ragged", False):
        return "its batches differ in size from run to run, and padding them would change sums"
    if device.type == "cpu" and any(isinstance(part, _ConvNd) for part in task.modules()):
        return "convolutions of several runs are computed in another way"
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
