"""The batches that steps receive: a sequence of tensors, a bare tensor, or a mapping of names to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from actlab.errors import RunError

# Names in a batch that is a mapping
INPUTS = (
    "image",
    "img",
    "pixel_values",
    "inputs",
    "input",
    "x",
)
TARGETS = ("label", "labels", "fine_label", "targets", "target", "y")


def as_batch(batch: Any) -> Any:
    """Return inputs and targets, if any, of a sequence, of a mapping, or of a bare tensor of B inputs."""
    if isinstance(batch, Tensor):
        return (batch,)
    if not isinstance(batch, Mapping):
        return batch
    inputs, targets = ([name for name in names if name in batch] for names in (INPUTS, TARGETS))
    if len(inputs) != 1 or len(targets) > 1:
        raise RunError(
            f"a batch has the keys {', '.join(map(str, batch))}: rename its columns so that one is of "
            f"{', '.join(INPUTS)} and at most one of {', '.join(TARGETS)}, or give tuples (inputs, targets)"
        )
    return tuple(batch[name] for name in (*inputs, *targets))


def targets_of(batch: Any) -> Tensor:
    """Return the second tensor of a batch."""
    if len(batch) < 2:
        raise RunError("a batch has inputs alone: give tuples (inputs, targets)")
    targets: Tensor = batch[1]
    return targets


def matching(output: Tensor, targets: Tensor) -> Tensor:
    """Return a network's output; targets of another shape, which torch would broadcast, raise a RunError."""
    if output.shape != targets.shape:
        raise RunError(
            f"the targets of a batch have shape {tuple(targets.shape)}, but the network's output has "
            f"{tuple(output.shape)}: give targets of shape (B, num_outputs), such as y.unsqueeze(1)"
        )
    return output


def class_numbers(output: Tensor, batch: Any) -> Tensor:
    """Return the labels of a batch as int64, of the shape of logits ``(…, B, K)`` without their last axis."""
    labels = targets_of(batch)
    if labels.is_floating_point() or labels.shape != output.shape[:-1]:
        raise RunError(
            f"the labels of a batch are {labels.dtype} of shape {tuple(labels.shape)}, but logits have shape "
            f"{tuple(output.shape)}: give class numbers, of shape (B,)"
        )
    return labels.long()


def check_classes(labels: Tensor, classes: int, padding: int) -> None:
    """Raise a RunError for a label that is neither one of K classes nor ``padding``."""
    labels = labels.long()
    wrong = labels[((labels < 0) | (labels >= classes)) & (labels != padding)]
    if len(wrong):
        raise RunError(
            f"a batch has the label {int(wrong[0])}, but the classes are 0 to {classes - 1}: to leave samples "
            "out, give them the label -100 in an actlab.tasks.FrameTask, or weights of 0 in the `quantities` "
            "of a task of your own"
        )
