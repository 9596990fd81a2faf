"""Which runs of a study are trained as one: decided once, written to ``stacks.json``, reused by a restart.

A resumed stack goes on exactly as it was only if its members, their order and the number of threads stay.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytorch_lightning as pl

from actlab import experiments
from actlab.engines.folders import RunFolder, write_atomically
from actlab.engines.memory import memory_bound
from actlab.engines.sequential import batch_size, threads_for
from actlab.stacking.layers import can_stack
from actlab.stacking.slices import ELEMENTWISE_OPTIMIZERS
from actlab.studies.plan import SEED, Run, get_dotted, set_dotted
from actlab.tasks import Task

FILE = "stacks.json"
BEST_SIZE = 15  # measured best on two cores for the MNIST classifier (benchmarks/stacks.py)
LEARNING_RATE, DROPOUT, EPOCHS = "model.optimizer.lr", "model.network.dropout", "trainer.max_epochs"
# What members of a stack may differ in; of dropout only the probability, not whether there is any.
FREE = (SEED, LEARNING_RATE, "model.optimizer.weight_decay", "model.optimizer.momentum", DROPOUT, EPOCHS)


@dataclass(frozen=True)
class Stack:
    """Runs that are trained as one.

    Args:
        id: names the stack's folder.
        members: run ids, in the order of the run axis.
        threads: number of threads of torch, a part of bit-identity.
    """

    id: str
    members: tuple[str, ...]
    threads: int


def settings_left(run: Run) -> str:
    """Everything in a run's config that members of a stack have in common, as text."""
    config = copy.deepcopy(run.config)
    for key in FREE:
        value = get_dotted(config, key)
        if value is not None:
            set_dotted(config, key, bool(value) if key == DROPOUT else None)
    return json.dumps(config, sort_keys=True)


def reason_against(run: Run, task: pl.LightningModule) -> str | None:
    """Why a run cannot be a member of a stack, or None.

    Args:
        run: the run.
        task: what its config builds.
    """
    trainer = run.config.get("trainer", {})
    if str(trainer.get("precision", "")).startswith(("16", "transformer-engine")):
        return "one loss scaler for all members would couple them (precision 16)"
    if trainer.get("gradient_clip_val") is not None:
        return "one gradient clip for all members would couple them"
    if trainer.get("devices", 1) not in (1, "1", "auto", [0]) or trainer.get("num_nodes", 1) != 1:
        return "several devices"
    if not isinstance(task, Task) or not can_stack(task.network):
        return "its network is no sequence of linear layers"
    if not isinstance(task.optimizer(task.parameters()), ELEMENTWISE_OPTIMIZERS):
        return "its optimiser is not known to act elementwise"
    return None


def plan_stacks(
    runs: Sequence[Run],
    root: Path,
    max_size: int | None = None,
    find_size: Callable[[Sequence[Run], int], int] | None = None,
) -> tuple[list[Stack], list[Run], set[str]]:
    """Group the unfinished among ``runs`` into stacks; groupings of an earlier start are kept.

    Args:
        runs: of one study.
        root: the study's folder; ``stacks.json`` there is read and written.
        max_size: most members of a new stack.
        find_size: finds the best size for runs that may be stacked, given how many fit into memory; used
            without ``max_size``. By default it is `BEST_SIZE`, or less where memory is short.

    Returns:
        The stacks that have unfinished members; the runs left for the sequential engine; the reasons why.
    """
    known = read_stacks(root)
    placed = {member for stack in known for member in stack.members}
    fresh = [r for r in runs if not (f := RunFolder(root, r)).finished and r.id not in placed and not f.started]
    groups: dict[str, list[Run]] = {}
    for run in fresh:
        groups.setdefault(settings_left(run), []).append(run)
    reasons: set[str] = set()
    new: list[Stack] = []
    for group in (g for g in groups.values() if len(g) > 1):
        task = experiments.build(group[0].config).task
        if reason := reason_against(group[0], task):
            reasons.add(reason)
        else:
            group.sort(key=lambda r: [str(get_dotted(r.config, key)) for key in FREE if key != SEED])
            fit = memory_bound(task, batch_size(group[0]))
            size = max_size or (find_size(group, fit) if find_size else min(BEST_SIZE, fit))
            new += [_stack(part) for part in _even_parts(group, size) if len(part) > 1]
    write_stacks(root, [*known, *new])
    stacked = placed | {member for stack in new for member in stack.members}
    unfinished = {r.id for r in runs if not RunFolder(root, r).finished}
    return (
        [stack for stack in (*known, *new) if unfinished & set(stack.members)],
        [r for r in runs if r.id in unfinished - stacked],
        reasons,
    )


def _even_parts(group: Sequence[Run], most: int) -> list[Sequence[Run]]:
    """As few parts as ``most`` allows, of nearly equal size."""
    number = math.ceil(len(group) / most)
    bounds = [round(i * len(group) / number) for i in range(number + 1)]
    return [group[a:b] for a, b in pairwise(bounds)]


def _stack(members: Sequence[Run]) -> Stack:
    ids = tuple(run.id for run in members)
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:12]
    return Stack(digest, ids, threads_for(len(ids) * batch_size(members[0])))


def read_stacks(root: Path) -> list[Stack]:
    """The stacks decided on by earlier starts of the study."""
    path = root / FILE
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [Stack(e["id"], tuple(e["members"]), e["threads"]) for e in entries]


def write_stacks(root: Path, stacks: Sequence[Stack]) -> None:
    """Remember the stacks."""
    entries = [{"id": s.id, "members": s.members, "threads": s.threads} for s in stacks]
    root.mkdir(parents=True, exist_ok=True)
    write_atomically(root / FILE, json.dumps(entries, indent=1))
