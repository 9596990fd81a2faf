"""What a checkpoint within an epoch keeps beside weights: the epoch's metrics so far, accumulated gradients.

Each device has its own part of both, and one of them writes the file: it gets what all have together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from actlab.checkpoints import accumulates
from actlab.tasks.quantities import LEAST

Seen = Mapping[str, tuple[Tensor, Tensor]]


def kept(module: pl.LightningModule, seen: Seen) -> dict[str, Any]:
    """What a checkpoint holds: ``seen``, nothing of it at an epoch's end, and ``gradients`` amid an update.

    To be called on every device.

    Args:
        module: that is trained.
        seen: this device's part of the epoch: means and weights of its N batches, ``(N,)`` both, by name.
    """
    trainer = module.trainer
    together = {} if trainer.is_last_batch else {name: _together(module, *both) for name, both in seen.items()}
    return {"seen": together, "gradients": _gradients(module) if accumulates(trainer) else {}}


def seen_by(module: pl.LightningModule, checkpoint: Mapping[str, Any]) -> Seen:
    """The part of an epoch that a device takes up: the first one all of it, the others nothing."""
    found: Seen = checkpoint.get("seen", {})
    return found if module.global_rank == 0 else {}


def take_up(module: pl.LightningModule, gradients: Mapping[str, Tensor]) -> None:
    """Go on with accumulated gradients."""
    for name, parameter in module.named_parameters():
        if name in gradients:
            parameter.grad = gradients[name].to(parameter)


def _together(module: pl.LightningModule, means: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The means of batches over all devices, and the weights of all of them together."""
    if module.trainer.world_size == 1:
        return means, weights
    sums = module.trainer.strategy.reduce(torch.stack([means * weights, weights]), reduce_op="sum")
    total, weight = torch.as_tensor(sums)
    return total / weight.clamp_min(LEAST), weight


def _gradients(module: pl.LightningModule) -> dict[str, Tensor]:
    """The gradients so far, their mean over devices: each goes on with it, and their mean is the same."""
    found = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach().clone()
            found[name] = module.trainer.strategy.reduce(own, reduce_op="mean")
    return found
