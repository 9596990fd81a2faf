"""Checkpoints within an epoch: what a task adds to Lightning's record so that training resumes at that batch.

Lightning 2.6 saves such a checkpoint in ``on_train_batch_end``, before the validation that may be
due at this batch, or at the end of a validation. A resume would skip this validation and, after the
last batch, the end of the epoch. `record` changes the saved progress so that both happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_info

from actlab.errors import ActlabError
from actlab.tasks.quantities import Means

WITHIN = "within_epoch"  # checkpoint key of the state that only checkpoints within an epoch have


def record(trainer: pl.Trainer, means: Means, checkpoint: dict[str, Any]) -> None:
    """Add the state of an unfinished epoch to a checkpoint; do nothing at the end of an epoch."""
    if not _is_within(checkpoint):
        return
    loops = checkpoint["loops"]["fit_loop"]
    batches, validated = (
        loops["epoch_loop.batch_progress"],
        loops["epoch_loop.val_loop.batch_progress"],
    )
    now, checked = batches["current"], validated["current"]
    position, loader = _position(loops), trainer.train_dataloader
    every_device: list[Any] = [means.sums] * trainer.world_size
    if trainer.world_size > 1:
        torch.distributed.all_gather_object(every_device, means.sums)
    checkpoint[WITHIN] = {
        "means": every_device,
        "metrics": dict(trainer.callback_metrics),
        "whole": not trainer.interrupted
        and now["processed"] == now["ready"]
        and checked["completed"] == checked["ready"],
        "accumulated": bool(now["ready"] % trainer.accumulate_grad_batches)
        and not batches["is_last_batch"],
    }
    if now["completed"] < now["processed"]:  # else the validation has ended
        for progress in (now, batches["total"]):
            progress["completed"] = progress["processed"]
        if _validation_due(trainer):  # as if it had begun: Lightning then repeats it
            checked.update(ready=1, started=1, processed=0, completed=0)
            validated["is_last_batch"] = False
        else:
            loops["epoch_loop.state_dict"]["_batches_that_stepped"] += 1
            if batches["is_last_batch"] and position is not None and isinstance(loader, Sized):
                position["batches"] = len(loader)  # an empty rest of the epoch ends it
    validated["total"] = dict(checked)


def restore(
    trainer: pl.Trainer, means: Means, checkpoint: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Restore the partial means of the epoch, and return the metrics logged so far, by name.

    None for a checkpoint of a whole epoch. Raises `ActlabError` if training cannot resume within
    the epoch.
    """
    if not _is_within(checkpoint):
        for epochs in (
            checkpoint.get("loops", {}).get("fit_loop", {}).get("epoch_progress", {}).values()
        ):
            # With max_steps, Lightning would end the epoch again
            epochs["completed"] = epochs["processed"]
        return None
    state, loops = checkpoint.get(WITHIN), checkpoint["loops"]["fit_loop"]
    done = loops["epoch_loop.batch_progress"]["current"]["processed"]
    if (reason := _reason_against(state, checkpoint, trainer)) is not None or state is None:
        raise ActlabError(
            f"the checkpoint was saved within an epoch, after {done} batches, {reason}: give a checkpoint of "
            "ModelCheckpoint with save_on_train_epoch_end: true"
        )
    means.sums = dict(state["means"][trainer.global_rank])
    rank_zero_info(
        f"training resumes within an epoch, after {done} batches: own metrics logged with on_epoch=True are "
        "means of the batches from here"
    )
    return dict(state["metrics"])


def _reason_against(
    state: Mapping[str, Any] | None, checkpoint: Mapping[str, Any], trainer: pl.Trainer
) -> str | None:
    if state is None or _position(checkpoint["loops"]["fit_loop"]) is None:
        return "without the position of the data loader"
    if not state["whole"]:
        return "by an exception or in the middle of a batch or validation"
    if state["accumulated"]:
        return "between two optimizer steps, whose gradients Lightning does not save"
    if 0 < trainer.max_steps <= checkpoint["global_step"]:
        return "at the last of max_steps updates, after which nothing is left to train"
    if (devices := len(state["means"])) != trainer.world_size:
        return f"on {devices} devices, not {trainer.world_size}"
    return None


def _is_within(checkpoint: Mapping[str, Any]) -> bool:
    """Whether an epoch has begun and not ended."""
    loops = checkpoint.get("loops", {}).get("fit_loop", {})
    epochs = loops.get("epoch_progress", {}).get("current", {})
    return bool(epochs) and epochs["processed"] < epochs["started"] == epochs["ready"]


def _position(loops: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state of the data loader, if it is the only one and one of our datamodules'."""
    states = loops["state_dict"].get("combined_loader", [])
    return states[0] if [set(state) for state in states] == [{"epoch", "batches"}] else None


def _validation_due(trainer: pl.Trainer) -> bool:
    every, loop = trainer.check_val_every_n_epoch, trainer.fit_loop
    if not trainer.enable_validation or (every is not None and (trainer.current_epoch + 1) % every):
        return False
    number = loop.total_batch_idx if every is None else loop.batch_idx
    interval = trainer.val_check_batch
    return interval is not None and (number + 1) % interval == 0
