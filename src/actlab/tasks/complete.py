"""Reject checkpoints that Lightning and torch would resume from although a part is missing.

Lightning takes loops without progress for a new training, and pairs states with optimisers and
schedulers as far as both lists go. torch starts a parameter without state from scratch, and accepts
settings of any type. So a restored state must have the form of the state that was built: its keys,
shapes and kinds of values.
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

# Lightning's keys of a checkpoint
OPTIMIZERS = "optimizer_states"
SCHEDULERS = "lr_schedulers"
# The form of a value that a later step may set
NOT_YET = "NoneType"


class CompleteCheckpoint(Callback):
    """Raises `DamagedError` before training resumes without its progress or its optimiser state.

    It does not check weights, whose names and shapes torch compares, nor the states of callbacks.
    """

    stackable = True

    def __init__(self) -> None:
        # The checkpoint, until training starts
        self._checkpoint: Mapping[str, Any] | None = None
        # Forms of the optimisers and schedulers before they are restored
        self._built: dict[str, str] = {}

    def on_save_checkpoint(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        checkpoint: dict[str, Any],
    ) -> None:
        """Name the parameters without a state, such as parameters that have had no gradient."""
        checkpoint[STATELESS] = [
            _stateless(state) for state in checkpoint.get(OPTIMIZERS, ())
        ]

    def on_load_checkpoint(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        checkpoint: Mapping[str, Any],
    ) -> None:
        """Check that the loops have their progress, unless the Trainer only evaluates."""
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

    def on_train_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Compare the restored optimisers and schedulers with the ones that were built."""
        # Training from scratch has nothing to compare
        checkpoint = self._checkpoint
        self._checkpoint = None
        if checkpoint is None or not trainer.global_step:
            return

        # Compare how many there are.
        states = _states(trainer)
        for key, restored in states.items():
            number = len(checkpoint.get(key, restored))
            if number != len(restored):
                raise _damaged(
                    trainer, f"has {number} {key}, but the training has {len(restored)}"
                )

        # Compare which parameters have a state.
        stateless_keys: list[str] = []
        for number, state in enumerate(states[OPTIMIZERS]):
            prefix = f"{OPTIMIZERS}.{number}.state."
            missing = self._missing(checkpoint, number, state)
            if missing:
                raise _damaged(trainer, f"has no {prefix}{missing[0]}")
            stateless_keys += [
                f"{prefix}{parameter}." for parameter in _stateless(state)
            ]

        # Compare the forms of their values.
        restored_forms = _forms(states)
        for key, form in self._built.items():
            restored_form = restored_forms.get(key, "nothing")
            if form in (restored_form, NOT_YET) or key.startswith(
                tuple(stateless_keys)
            ):
                continue
            raise _damaged(
                trainer, f"has {restored_form} at {key}, but the training has {form}"
            )

    def _missing(
        self, checkpoint: Mapping[str, Any], number: int, state: Mapping[str, Any]
    ) -> list[int]:
        """Return the parameters of a restored optimiser that had a state when it was saved."""
        stateless = _stateless(state)
        if STATELESS in checkpoint:
            saved_stateless = checkpoint[STATELESS][number]
            return [
                parameter for parameter in stateless if parameter not in saved_stateless
            ]

        # Another program wrote the checkpoint: only an optimiser without any state is
        # rejected.
        prefix = f"{OPTIMIZERS}.{number}.state."
        has_states = any(key.startswith(prefix) for key in self._built)
        return stateless if has_states and not state["state"] else []


def _states(trainer: pl.Trainer) -> dict[str, list[dict[str, Any]]]:
    """Return the state dicts that Lightning restores, by key of a checkpoint.

    Schedulers are left out if weights are averaged, which replaces the scheduler.
    """
    states = {OPTIMIZERS: [optimizer.state_dict() for optimizer in trainer.optimizers]}

    # Lightning sets the callbacks where mypy does not see it.
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    if not any(
        isinstance(callback, StochasticWeightAveraging) for callback in callbacks
    ):
        configs = trainer.lr_scheduler_configs
        states[SCHEDULERS] = [config.scheduler.state_dict() for config in configs]
    return states


def _stateless(state: Mapping[str, Any]) -> list[int]:
    """Return the numbers of an optimiser's parameters without a state."""
    numbers: list[int] = []
    for group in state.get("param_groups", ()):
        numbers += [
            number for number in group["params"] if number not in state["state"]
        ]
    return numbers


def _after_a_step(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state dict of a fresh optimiser after a step with zero gradients."""
    try:
        trial = copy.deepcopy(optimizer)
        for group in trial.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
        trial.step(lambda: 0.0)
        return trial.state_dict()
    except Exception:  # some optimisers of other libraries cannot be copied
        return optimizer.state_dict()


def _forms(value: Any, key: str = "") -> dict[str, str]:
    """Return the shape or kind of each value in nested dictionaries and lists, by dotted key."""
    # A value that is not a container has a form itself.
    parts: list[tuple[Any, Any]]
    if type(value) is dict:
        parts = list(value.items())
    elif isinstance(value, list | tuple):
        parts = list(enumerate(value))
    elif isinstance(value, Tensor) and value.dim():
        return {key: f"shape {tuple(value.shape)}"}
    elif isinstance(value, int | float | Tensor) and not isinstance(value, bool):
        return {key: "a number"}
    else:
        return {key: type(value).__name__}

    # Describe the parts of a container.
    forms: dict[str, str] = {}
    for name, part in parts:
        forms |= _forms(part, f"{key}.{name}" if key else str(name))
    return forms


def _damaged(trainer: pl.Trainer, problem: str) -> DamagedError:
    remedy = getattr(
        trainer.strategy.checkpoint_io, "remedy", AtomicCheckpointIO.remedy
    )
    return DamagedError(f"the checkpoint {problem}. {remedy}")
