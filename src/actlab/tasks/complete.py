"""What Lightning and torch would resume from without an error, though a part of the checkpoint is missing.

Lightning takes loops without progress for a new training, and pairs states with optimisers and
schedulers as far as both lists go. torch starts a parameter without state anew, and takes settings
of any type. So what was restored must have the form of what was built: its keys, shapes and kinds
of values.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, StochasticWeightAveraging
from torch import Tensor
from torch.optim import Optimizer

from actlab.storage.checkpoints import STATELESS, AtomicCheckpointIO
from actlab.storage.files import DamagedError

OPTIMIZERS, SCHEDULERS = "optimizer_states", "lr_schedulers"  # Lightning's keys of a checkpoint
NOT_YET = "NoneType"  # form of a value that a later step may set


class CompleteCheckpoint(Callback):
    """Raises `DamagedError` before training resumes without its progress or its optimiser state.

    It does not check weights, whose names and shapes torch compares, nor the states of callbacks.
    """

    stackable = True

    def __init__(self) -> None:
        self._checkpoint: Mapping[str, Any] | None = None  # until training starts
        self._built: dict[
            str, str
        ] = {}  # forms of the optimisers and schedulers before they are restored

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Name the parameters without a state, such as those that have had no gradient."""
        checkpoint[STATELESS] = [_stateless(state) for state in checkpoint.get(OPTIMIZERS, ())]

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Mapping[str, Any]
    ) -> None:
        """Check that the loops have their progress; nothing where the Trainer only evaluates."""
        if trainer.state.fn != "fit":
            return
        self._checkpoint = checkpoint
        progress = checkpoint.get("loops", {}).get("fit_loop", {})
        for name in trainer.fit_loop.state_dict():
            if name not in progress:
                raise _damaged(trainer, f"has no loops.fit_loop.{name}")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the forms of optimisers and schedulers before they are restored."""
        if self._checkpoint is not None:
            states = [_after_a_step(optimizer) for optimizer in trainer.optimizers]
            self._built = _forms(_states(trainer) | {OPTIMIZERS: states})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the restored optimisers and schedulers with those that were built."""
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None or not trainer.global_step:
            return

        # How many there are
        states = _states(trainer)
        for key, restored in states.items():
            number = len(checkpoint.get(key, restored))
            if number != len(restored):
                raise _damaged(trainer, f"has {number} {key}, where {len(restored)} were built")

        # Which parameters have a state
        left_out: list[str] = []
        for number, state in enumerate(states[OPTIMIZERS]):
            prefix = f"{OPTIMIZERS}.{number}.state."
            stateless = _stateless(state)
            named = checkpoint.get(STATELESS)
            if named is not None:
                missing = [parameter for parameter in stateless if parameter not in named[number]]
            else:  # of another program, which names none
                needed = any(key.startswith(prefix) for key in self._built)
                missing = stateless if needed and not state["state"] else []
            if missing:
                raise _damaged(trainer, f"has no {prefix}{missing[0]}")
            left_out += [f"{prefix}{parameter}." for parameter in stateless]

        # What they hold
        found = _forms(states)
        for key, form in self._built.items():
            if found.get(key) != form != NOT_YET and not key.startswith(tuple(left_out)):
                problem = f"has {found.get(key, 'nothing')} at {key}, where {form} was built"
                raise _damaged(trainer, problem)


def _states(trainer: pl.Trainer) -> dict[str, list[dict[str, Any]]]:
    """Return the state dicts that Lightning restores, by key; averaging of weights has its own scheduler."""
    states = {OPTIMIZERS: [optimizer.state_dict() for optimizer in trainer.optimizers]}
    callbacks = trainer.callbacks  # type: ignore[attr-defined]  # Lightning sets it elsewhere
    if not any(isinstance(callback, StochasticWeightAveraging) for callback in callbacks):
        states[SCHEDULERS] = [
            config.scheduler.state_dict() for config in trainer.lr_scheduler_configs
        ]
    return states


def _stateless(state: Mapping[str, Any]) -> list[int]:
    """Return the numbers of an optimiser's parameters without a state."""
    numbers = [number for group in state.get("param_groups", ()) for number in group["params"]]
    return [number for number in numbers if number not in state["state"]]


def _after_a_step(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state dict of a fresh optimiser after a step with zero gradients."""
    try:
        trial = copy.deepcopy(optimizer)
        for parameter in (
            parameter for group in trial.param_groups for parameter in group["params"]
        ):
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        trial.step(lambda: 0.0)
        return trial.state_dict()
    except Exception:  # some optimisers of other libraries cannot be copied
        return optimizer.state_dict()


def _forms(value: Any, key: str = "") -> dict[str, str]:
    """Return the shape or kind of each value in nested dictionaries and lists, by its dotted key."""
    if type(value) is dict:
        parts = [*value.items()]
    elif isinstance(value, list | tuple):
        parts = [*enumerate(value)]
    elif isinstance(value, Tensor) and value.dim():
        return {key: f"shape {tuple(value.shape)}"}
    elif isinstance(value, int | float | Tensor) and not isinstance(value, bool):
        return {key: "a number"}
    else:
        return {key: type(value).__name__}

    forms: dict[str, str] = {}
    for name, part in parts:
        forms |= _forms(part, f"{key}.{name}" if key else str(name))
    return forms


def _damaged(trainer: pl.Trainer, problem: str) -> DamagedError:
    remedy = getattr(trainer.strategy.checkpoint_io, "remedy", AtomicCheckpointIO.remedy)
    return DamagedError(f"the checkpoint {problem}: {remedy}")
