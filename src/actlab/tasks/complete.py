"""What Lightning and torch would resume from without an error, though a part of the checkpoint is missing.

Lightning takes loops without progress as those of a new training, and an empty optimiser state as that before
the first step. Fused optimisers of torch read beyond the end of a state of another shape.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor
from torch.optim import Optimizer

from actlab.storage.checkpoints import AtomicCheckpointIO
from actlab.storage.files import DamagedError


class CompleteCheckpoint(Callback):
    """Raises `DamagedError` before training resumes without its progress or its optimiser state."""

    stackable = True

    def __init__(self) -> None:
        self.resumes = False

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Mapping[str, Any]
    ) -> None:
        """Check that the loops have their progress; nothing where the Trainer only evaluates."""
        self.resumes = trainer.state.fn == "fit"
        progress = checkpoint.get("loops", {}).get("fit_loop", {})
        missing = [name for name in trainer.fit_loop.state_dict() if name not in progress]
        if self.resumes and missing:
            raise _damaged(trainer, f"the checkpoint has no loops.fit_loop.{missing[0]}")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the restored states of the optimisers."""
        for optimizer in trainer.optimizers if self.resumes and trainer.global_step else ():
            _check(trainer, optimizer)
        self.resumes = False


def _check(trainer: pl.Trainer, optimizer: Optimizer) -> None:
    restored, expected = optimizer.state_dict()["state"], _after_a_step(optimizer)
    if expected and not restored:
        raise _damaged(trainer, "the checkpoint's optimiser state is empty")

    for number, state in restored.items():
        for name, value in expected.get(number, {}).items():
            shape = getattr(state.get(name), "shape", None)
            if isinstance(value, Tensor) and value.dim() and shape != value.shape:
                key = f"optimiser state {name} of parameter {number}"
                raise _damaged(trainer, f"the checkpoint's {key} does not have shape {tuple(value.shape)}")


def _after_a_step(optimizer: Optimizer) -> dict[int, dict[str, Any]]:
    """Return the state that a first step with zero gradients creates."""
    try:
        trial = copy.deepcopy(optimizer)
        trial.state.clear()
        for parameter in (parameter for group in trial.param_groups for parameter in group["params"]):
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        trial.step()
        state: dict[int, dict[str, Any]] = trial.state_dict()["state"]
        return state
    except Exception:  # some optimisers cannot be copied, or take no step without a closure
        return {0: {}}  # some state, at least


def _damaged(trainer: pl.Trainer, problem: str) -> DamagedError:
    remedy = getattr(trainer.strategy.checkpoint_io, "remedy", AtomicCheckpointIO.remedy)
    return DamagedError(f"{problem}: {remedy}")
