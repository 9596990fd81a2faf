"""The stacked engine: runs that differ in seed, learning rate, weight decay or dropout share one Trainer.

It leaves the folders that the sequential engine leaves, and in ``stacks/`` one folder a stack with its
checkpoint. Which runs form a stack is decided once and written to ``stacks.json``; a restart reuses it, so that
a resumed stack goes on exactly as it was.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger

from actlab import cli
from actlab.checkpoints import AtomicCheckpointIO
from actlab.datamodules.base import TensorDataModule
from actlab.errors import ActlabError
from actlab.stacking import ELEMENTWISE_OPTIMIZERS, StackedTask, can_stack
from actlab.studies.memory import keep_freed, memory_bound
from actlab.studies.plan import SEED, Run, get_dotted, set_dotted
from actlab.studies.runs import DIVERGED, FINISHED, Row, RunFolder, write_atomically
from actlab.studies.sequential import SMALL, LoggerFactory, Progress, threads, threads_for
from actlab.tasks import Task

FILE = "stacks.json"
BEST_SIZE = 15  # measured best on two cores for the MNIST classifier; see benchmarks/stack_size
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


def reason_against(run: Run) -> str | None:
    """Why a run cannot be a member of a stack, or None."""
    trainer = run.config.get("trainer", {})
    if str(trainer.get("precision", "")).startswith(("16", "transformer-engine")):
        return "one loss scaler for all members would couple them (precision 16)"
    if trainer.get("gradient_clip_val") is not None:
        return "one gradient clip for all members would couple them"
    if trainer.get("devices", 1) not in (1, "1", "auto", [0]) or trainer.get("num_nodes", 1) != 1:
        return "several devices"
    task = cli.build(run.config).task
    if not isinstance(task, Task) or not can_stack(task.network):
        return "its network is no sequence of linear layers"
    if not isinstance(task.optimizer(task.parameters()), ELEMENTWISE_OPTIMIZERS):
        return "its optimiser is not known to act elementwise"
    return None


def plan_stacks(
    runs: Sequence[Run], root: Path, max_size: int | None = None
) -> tuple[list[Stack], list[Run], set[str]]:
    """Group the unfinished among ``runs`` into stacks; groupings of an earlier start are kept.

    Args:
        runs: of one study.
        root: the study's folder; ``stacks.json`` there is read and written.
        max_size: most members of a new stack; by default `BEST_SIZE`, or fewer where memory is short.

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
    for group in groups.values():
        if len(group) > 1 and (reason := reason_against(group[0])):
            reasons.add(reason)
        elif len(group) > 1:
            group.sort(key=lambda r: [str(get_dotted(r.config, key)) for key in FREE if key != SEED])
            size = max_size or min(BEST_SIZE, memory_bound(group[0]))
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
    samples = len(ids) * int(get_dotted(members[0].config, "data.batch_size", SMALL))
    return Stack(digest, ids, threads_for(samples))


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


class StackRecorder(Checkpoint):
    """Writes every member's rows, and the checkpoint of the stack, after every epoch.

    A member that diverges, or reaches its own number of epochs, is closed there; the others go on.
    """

    def __init__(self, stack: Stack, folders: Sequence[RunFolder], path: Path, progress: Progress,
                 loggers: Sequence[Logger] = ()) -> None:  # fmt: skip
        self.stack, self.folders, self.progress, self.loggers = stack, list(folders), progress, loggers
        self.checkpoint = path / "last.ckpt"
        self.epochs = [int(get_dotted(f.run.config, EPOCHS)) for f in folders]
        self.pending: list[tuple[int, float, dict[str, list[float]]]] = []
        self.seconds = 0.0
        self._since = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Time spent, for the checkpoint."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the time spent."""
        self.seconds = state_dict["seconds"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop rows that the resumed checkpoint does not hold."""
        for folder in self.folders:
            if not folder.finished:
                folder.cut_back(trainer.global_step)
        self._since = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the validation metrics, at this step."""
        self._take(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Append rows; close members that diverged or are through; save the stack."""
        assert isinstance(pl_module, StackedTask)
        self._take(trainer, pl_module)
        now = time.perf_counter()
        self.seconds, self._since = self.seconds + now - self._since, now
        epoch = trainer.current_epoch + 1
        for r, folder in enumerate(self.folders):
            if folder.finished:
                continue
            rows = [Row(e, step, *split_name(name), values[r])
                    for step, e, metrics in self.pending for name, values in metrics.items()]  # fmt: skip
            if any(row.metric == "loss" and not math.isfinite(row.value) for row in rows):
                self._close(r, pl_module, DIVERGED, epoch - 1, trainer.global_step)
                continue
            folder.append(rows)
            self._log(r, rows)
            if epoch == self.epochs[r] < (trainer.max_epochs or 0):
                self._close(r, pl_module, FINISHED, epoch, trainer.global_step)
            elif epoch < self.epochs[r]:
                self.progress(folder.run, epoch / self.epochs[r])
        self.pending = []
        trainer.save_checkpoint(self.checkpoint)
        trainer.should_stop = all(folder.finished for folder in self.folders)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Close the members that went to the end."""
        assert isinstance(pl_module, StackedTask)
        for r, folder in enumerate(self.folders):
            if not folder.finished:
                self._close(r, pl_module, FINISHED, trainer.current_epoch, trainer.global_step)

    def _take(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, StackedTask)
        latest = {name: values.tolist() for name, values in task.latest.items()}
        task.latest = {}
        if latest:
            step = trainer.global_step
            self.pending.append((step, step / trainer.num_training_batches, latest))

    def _log(self, r: int, rows: Iterable[Row]) -> None:
        if self.loggers:
            steps: dict[int, dict[str, float]] = {}
            for row in rows:
                steps.setdefault(row.step, {"epoch": row.epoch})[f"{row.split}/{row.metric}"] = row.value
            for step, metrics in steps.items():
                self.loggers[r].log_metrics(metrics, step)

    def _close(self, r: int, task: StackedTask, status: str, last_good_epoch: int, updates: int) -> None:
        folder = self.folders[r]
        export(task, r, folder)
        folder.finish(
            status,
            engine="stacked",
            stack={"id": self.stack.id, "size": len(self.folders), "member": r, "threads": self.stack.threads},
            last_good_epoch=last_good_epoch,
            updates=updates,
            seconds=round(self.seconds / len(self.folders), 3),
        )
        if self.loggers:
            self.loggers[r].finalize("success" if status == FINISHED else "failed")
        self.progress(folder.run, 1.0)


def split_name(name: str) -> tuple[str, str]:
    """``val/loss`` → split and metric."""
    split, _, metric = name.partition("/")
    return split, metric


def export(task: StackedTask, r: int, folder: RunFolder) -> None:
    """Write member ``r`` as an ordinary checkpoint that ``actlab test`` and Trainer load."""
    state = {f"network.{name}": value for name, value in task.network.member_state(r).items()}
    checkpoint = {
        "state_dict": state,
        "epoch": task.current_epoch,
        "global_step": task.global_step,
        "pytorch-lightning_version": version("pytorch-lightning"),
    }
    AtomicCheckpointIO().save_checkpoint(checkpoint, folder.checkpoint)


def execute(
    runs: Sequence[Run],
    stacks: Sequence[Stack],
    root: Path,
    progress: Progress,
    logger: LoggerFactory | None = None,
) -> None:
    """Train each stack, resuming from its last checkpoint.

    Args:
        runs: of one study, among them all members.
        stacks: from `plan_stacks`.
        root: the study's folder.
        progress: called for each member after each epoch.
        logger: makes a logger for a run; none by default.

    Raises:
        ActlabError: when a member of a stack is no longer a run of the study.
    """
    keep_freed()
    by_id = {run.id: run for run in runs}
    for stack in stacks:
        if missing := [member for member in stack.members if member not in by_id]:
            raise ActlabError(f"stack {stack.id} in {root / FILE} holds {missing[0]}, which this study no "
                              "longer has; run it as it was started, or in another --runs-dir")  # fmt: skip
        train(stack, [by_id[member] for member in stack.members], root, progress, logger)


def train(
    stack: Stack, runs: Sequence[Run], root: Path, progress: Progress, logger: LoggerFactory | None = None
) -> None:
    """Train one stack to its end."""
    folders = [RunFolder(root, run) for run in runs]
    for folder in folders:
        if not folder.finished:
            folder.open()
    path = root / "stacks" / stack.id
    recorder = StackRecorder(stack, folders, path, progress, [logger(run) for run in runs] if logger else ())
    trainer, task, data = assemble(runs, recorder, path)
    resume = recorder.checkpoint if recorder.checkpoint.exists() else None
    with threads(stack.threads):
        trainer.fit(task, datamodule=data, ckpt_path=resume)
    recorder.checkpoint.unlink(missing_ok=True)  # every member has its own by now


def assemble(runs: Sequence[Run], recorder: Checkpoint, path: Path) -> cli.Experiment:
    """Trainer, stacked task and datamodule of some runs."""
    members = [cli.build(run.config).task for run in runs]
    longest = copy.deepcopy(max(runs, key=lambda run: int(get_dotted(run.config, EPOCHS))).config)
    trainer, _, data = cli.build(longest, callbacks=[recorder], default_root_dir=str(path))
    assert isinstance(data, TensorDataModule)
    data.seed = [run.seed for run in runs]
    return cli.Experiment(trainer, StackedTask([m for m in members if isinstance(m, Task)]), data)
