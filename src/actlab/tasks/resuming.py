"""Checkpoints within an epoch: what a task adds so that training resumes at that batch.

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

    # Lightning's counts of trained and validated batches
    loops = checkpoint["loops"]["fit_loop"]
    batches = loops["epoch_loop.batch_progress"]
    validation = loops["epoch_loop.val_loop.batch_progress"]

    # Gather the partial means of all devices.
    sums: list[Any] = [means.sums] * trainer.world_size
    if trainer.world_size > 1:
        torch.distributed.all_gather_object(sums, means.sums)

    # Describe the moment, which decides whether training can resume from it.
    trained, validated = batches["current"], validation["current"]
    is_whole = trained["processed"] == trained["ready"]
    is_validated = validated["completed"] == validated["ready"]
    accumulates = bool(trained["ready"] % trainer.accumulate_grad_batches)
    checkpoint[WITHIN] = {
        "means": sums,
        "metrics": dict(trainer.callback_metrics),
        "whole": not trainer.interrupted and is_whole and is_validated,
        "accumulated": accumulates and not batches["is_last_batch"],
    }

    # The batch is not yet completed in `on_train_batch_end`, but at the end of a
    # validation.
    if trained["completed"] < trained["processed"]:
        for progress in (trained, batches["total"]):
            progress["completed"] = progress["processed"]
        if _is_validation_due(trainer):
            # As if it had begun: Lightning then repeats it.
            validated.update(ready=1, started=1, processed=0, completed=0)
            validation["is_last_batch"] = False
        else:
            _finish_batch(loops, trainer.train_dataloader)
    validation["total"] = dict(validated)


def _finish_batch(loops: Mapping[str, Any], loader: Any) -> None:
    """Change the saved progress as Lightning does after a batch, also at the end of an epoch."""
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] += 1
    position = _position(loops)
    is_last = loops["epoch_loop.batch_progress"]["is_last_batch"]
    if is_last and position is not None and isinstance(loader, Sized):
        position["batches"] = len(loader)  # an epoch without further batches ends


def restore(
    trainer: pl.Trainer, means: Means, checkpoint: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Restore the partial means of the epoch, and return the metrics logged so far, by name.

    None for a checkpoint of a whole epoch. Raises `ActlabError` if training cannot resume within
    the epoch.
    """
    # Of a whole epoch. If max_steps is set, Lightning would end the epoch again.
    if not _is_within(checkpoint):
        for epochs in _epoch_progress(checkpoint).values():
            epochs["completed"] = epochs["processed"]
        return None

    # Reject a moment from which training cannot resume.
    state = checkpoint.get(WITHIN)
    batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"][
        "processed"
    ]
    reason = _reason_against(state, checkpoint, trainer)
    if reason is not None or state is None:
        raise ActlabError(
            f"the checkpoint was saved within an epoch, after {batches} batches, {reason}. Use a "
            "checkpoint of ModelCheckpoint with save_on_train_epoch_end: true."
        )

    # Each device continues its own means
    means.sums = dict(state["means"][trainer.global_rank])
    rank_zero_info(
        f"training resumes within an epoch, after {batches} batches: own metrics logged with "
        "on_epoch=True are means of the batches from here"
    )
    return dict(state["metrics"])


def _reason_against(
    state: Mapping[str, Any] | None, checkpoint: Mapping[str, Any], trainer: pl.Trainer
) -> str | None:
    """Return why training cannot resume within the epoch, for a message; None if it can."""
    if state is None or _position(checkpoint["loops"]["fit_loop"]) is None:
        return "without the position of the data loader"
    if not state["whole"]:
        return "by an exception or in the middle of a batch or validation"
    if state["accumulated"]:
        return "between two optimizer steps, whose gradients Lightning does not save"
    if 0 < trainer.max_steps <= checkpoint["global_step"]:
        return "at the last of max_steps updates, after which nothing is left to train"
    devices = len(state["means"])
    if devices != trainer.world_size:
        return f"on {devices} devices, not {trainer.world_size}"
    return None


def _is_within(checkpoint: Mapping[str, Any]) -> bool:
    """Whether an epoch has begun and not ended."""
    epochs = _epoch_progress(checkpoint).get("current", {})
    return bool(epochs) and epochs["processed"] < epochs["started"] == epochs["ready"]


def _epoch_progress(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the counts of epochs in a checkpoint; empty if it has none."""
    loops = checkpoint.get("loops", {}).get("fit_loop", {})
    progress: Mapping[str, Any] = loops.get("epoch_progress", {})
    return progress


def _position(loops: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the state of the data loader, if it is the only loader and actlab's."""
    states = loops["state_dict"].get("combined_loader", [])
    if len(states) != 1 or set(states[0]) != {"epoch", "batches"}:
        return None
    return states[0]  # type: ignore[no-any-return]


def _is_validation_due(trainer: pl.Trainer) -> bool:
    """Whether Lightning will validate after the present batch."""
    interval = trainer.val_check_batch
    if not trainer.enable_validation or interval is None:
        return False

    # Without an interval in epochs Lightning counts on over epochs.
    epochs = trainer.check_val_every_n_epoch
    if epochs is None:
        return (trainer.fit_loop.total_batch_idx + 1) % interval == 0
    if (trainer.current_epoch + 1) % epochs:
        return False
    return (trainer.fit_loop.batch_idx + 1) % interval == 0
