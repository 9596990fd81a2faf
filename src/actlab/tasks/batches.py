"""The batches that steps receive: a sequence of tensors, a bare tensor, or a mapping of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from actlab.errors import RunError

# Names in a batch that is a mapping
INPUTS = ("image", "img", "pixel_values", "inputs", "input", "x")
TARGETS = ("label", "labels", "fine_label", "targets", "target", "y")


def as_batch(batch: Any) -> Any:
    """Return inputs and targets, if any, of a sequence, a mapping, or a bare tensor of B inputs."""
    if isinstance(batch, Tensor):
        # A bare tensor has inputs only
        return (batch,)
    if not isinstance(batch, Mapping):
        return batch

    # Find the inputs and the targets of a mapping by their names.
    inputs = [name for name in INPUTS if name in batch]
    targets = [name for name in TARGETS if name in batch]
    if len(inputs) != 1 or len(targets) > 1:
        keys = ", ".join(map(str, batch))
        raise RunError(
            f"keys of a batch: expected one of {', '.join(INPUTS)} and at most one of "
            f"{', '.join(TARGETS)}, got {keys}. Rename the columns, or return tuples (inputs, "
            "targets) from the dataset."
        )
    return tuple(batch[name] for name in inputs + targets)


def targets_of(batch: Any) -> Tensor:
    """Return the second tensor of a batch."""
    if len(batch) < 2:
        raise RunError(
            "the batch has no targets. Return (inputs, targets) from the dataset."
        )
    targets: Tensor = batch[1]
    return targets


def matching(output: Tensor, targets: Tensor) -> Tensor:
    """Return a network's output.

    Raises:
        RunError: for targets of another shape, which torch would broadcast.
    """
    # (B,) − (B, 1) would be (B, B), without an error of torch
    if output.shape != targets.shape:
        raise RunError(
            f"the targets of a batch have shape {tuple(targets.shape)}, but the network's output "
            f"has {tuple(output.shape)}. Use targets of shape (B, num_outputs), such as "
            "y.unsqueeze(1)."
        )
    return output


def class_numbers(output: Tensor, batch: Any) -> Tensor:
    """Return the labels of a batch as int64, ``(…, B)`` for logits ``(…, B, K)``."""
    labels = targets_of(batch)
    if labels.is_floating_point() or labels.shape != output.shape[:-1]:
        raise RunError(
            f"labels of a batch: expected class numbers of shape {tuple(output.shape[:-1])}, got "
            f"{labels.dtype} of shape {tuple(labels.shape)}. Return one whole number per sample."
        )
    return labels.long()


def check_classes(labels: Tensor, classes: int, padding: int) -> None:
    """Raise a RunError for a label that is neither one of K classes nor ``padding``."""
    labels = labels.long()
    is_class = (labels >= 0) & (labels < classes)
    invalid = labels[~is_class & (labels != padding)]
    if len(invalid):
        raise RunError(
            f"labels of a batch: expected classes from 0 to {classes - 1}, got {int(invalid[0])}. "
            "To leave samples out, use the label -100 in an actlab.tasks.FrameTask, or weights of "
            "0 in the `quantities` of your task."
        )
