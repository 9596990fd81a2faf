"""Write the weights of runs that a study stores: after some epochs, at the best one, at the end."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from pathlib import Path

from pytorch_lightning import Trainer

from actlab.engines.run_records import RunRecord
from actlab.stacking import StackedTask
from actlab.stacking.network import task_state
from actlab.storage.checkpoints import epochs_of, read, write_weights
from actlab.studies.plan import Keep
from actlab.studies.rows import Row


def write_epoch(trainer: Trainer, run: RunRecord, epoch: int) -> None:
    """Write the checkpoints that the study stores after ``epoch`` epochs."""
    keep = run.folder.run.keep
    if epoch in keep.epochs:
        write(trainer, run, epoch, epoch)

    is_best = keep.best and best_epoch(keep, run.rows) == epoch
    if is_best:
        write(trainer, run, epoch, "best")


def write(trainer: Trainer, run: RunRecord, epoch: int, at: str | int) -> None:
    """Write the weights of a run, under the names in its own task, with its trained config."""
    # Take the weights of the run
    task = trainer.lightning_module
    if isinstance(task, StackedTask):
        state = task_state(task.network, run.index)
        config = task.members[run.index].config
    else:
        state = task.state_dict()
        config = getattr(trainer.strategy.checkpoint_io, "config", None)

    # All devices take part in collecting the weights; one writes
    if trainer.is_global_zero:
        path = run.folder.checkpoint_at(at)
        write_weights(state, epoch, trainer.global_step, path, config)


def write_before_divergence(
    task: StackedTask, run: RunRecord, checkpoint: Path
) -> None:
    """Write the last good weights of a diverged member of a stack, if there are any.

    ``checkpoint`` is the stack's, of the epoch before the diverged one. Without it the run diverged
    in its first epoch. A run alone keeps its own such checkpoint.
    """
    if run.divergence is None or not checkpoint.exists():
        return
    last_good_epoch, _ = run.divergence  # its updates include the diverged epoch's

    # Read the weights of all members, stacked
    content = read(checkpoint)
    weights = {}
    for name, value in content["state_dict"].items():
        if name.startswith("network."):
            weights[name.removeprefix("network.")] = value

    # Take the member's weights from a copy, because the other members go on
    network = copy.deepcopy(task.network).to("cpu")
    network.load_state_dict(weights)
    state = task_state(network, run.index)
    config = task.members[run.index].config
    updates = content["global_step"]
    write_weights(state, last_good_epoch, updates, run.folder.checkpoint, config)


def delete_outdated_best(run: RunRecord) -> None:
    """Delete ``best.ckpt`` of an epoch that is trained again, or selected by another rule."""
    keep = run.folder.run.keep
    path = run.folder.checkpoint_at("best")
    if not keep.best or not path.exists():
        return
    stored_epoch = epochs_of(read(path))
    if stored_epoch != best_epoch(keep, run.rows):
        path.unlink()


def best_epoch(keep: Keep, rows: Iterable[Row]) -> int | None:
    """Return after how many epochs the last value of the metric ``keep.best`` was best.

    None without a value but NaN.
    """
    # Find the last value of each epoch
    last_values: dict[int, float] = {}
    for row in rows:
        if _is_selected(row, keep):
            # A value within an epoch counts for it; unrounded, 3.0000000000000004 would
            # be in 4.
            epoch = math.ceil(round(row.epoch, 6))
            last_values[epoch] = row.value

    # Rank them; the earliest of equal values wins
    sign = 1 if keep.mode == "min" else -1
    ranked = [
        (sign * value, epoch)
        for epoch, value in last_values.items()
        if not math.isnan(value)
    ]
    if not ranked:
        return None
    _, epoch = min(ranked)
    return epoch


def _is_selected(row: Row, keep: Keep) -> bool:
    """Return whether a row is of the metric that selects an epoch: ``val/loss``, or ``loss``."""
    if row.loop == "val":
        return keep.best in (row.name, f"val/{row.name}")
    return not row.loop and keep.best == row.name
