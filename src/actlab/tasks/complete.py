"""What Lightning and torch would resume from without an error, though a part of the checkpoint is missing.

Lightning takes loops without progress as those of a new training, and pairs states with optimisers and
schedulers as far as both lists go. torch starts a parameter without state anew, and takes settings of any type.
So what was restored must have the form of what was built: its keys, shapes and kinds of values.
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


class CompleteCheckpoint(Callback):
    """Raises `DamagedError` before training resumes without its progress or its optimiser state.

    It does not check weights, whose names and shapes torch compares, nor the states of callbacks.
    """

    stackable = True

    def __init__(self) -> None:
        self._checkpoint: Mapping[str, Any] | None = None  # until training starts
        self._built: dict[str, list[Any]] = {}  # the forms of what the Trainer has built

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Name the parameters that have no state, such as those without a gradient so far."""
        states = checkpoint.get("optimizer_states", ())
        checkpoint[STATELESS] = [sorted(_numbers(state) - {*state.get("state", ())}) for state in states]

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Mapping[str, Any]
    ) -> None:
        """Check that the loops have their progress; nothing where the Trainer only evaluates."""
        self._checkpoint = checkpoint if trainer.state.fn == "fit" else None
        progress = checkpoint.get("loops", {}).get("fit_loop", {})
        missing = [name for name in trainer.fit_loop.state_dict() if name not in progress]
        if self._checkpoint is not None and missing:
            raise _damaged(trainer, f"the checkpoint has no loops.fit_loop.{missing[0]}")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the forms of optimisers and schedulers, before they are restored, and compare their numbers."""
        self._built = {}
        if self._checkpoint is None:
            return

        schedulers = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
        self._built = {"optimizer_states": [*map(_form_of, trainer.optimizers)], "lr_schedulers": schedulers}
        averages = any(isinstance(c, StochasticWeightAveraging) for c in _callbacks(trainer))
        for key, built in self._built.items():
            number = len(self._checkpoint.get(key, built))
            if number != len(built) and not (key == "lr_schedulers" and averages):  # which adds its own
                raise _damaged(trainer, f"the checkpoint's {key}: expected {len(built)}, got {number}")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the restored optimisers and schedulers with those that were built."""
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None or not self._built or not trainer.global_step:
            return

        restored = {
            "optimizer_states": [optimizer.state_dict() for optimizer in trainer.optimizers],
            "lr_schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
        }
        for number, state in enumerate(restored["optimizer_states"]):
            expected = self._built["optimizer_states"][number]["state"]
            for parameter in _stateless(checkpoint, number, state["state"], expected):
                expected.pop(parameter, None)
        for key, states in restored.items():
            for number, (built, state) in enumerate(zip(self._built[key], states, strict=False)):
                if problem := _difference(built, state, f"{key}.{number}"):
                    raise _damaged(trainer, f"the checkpoint's {problem}")


def _callbacks(trainer: pl.Trainer) -> list[Callback]:
    return trainer.callbacks  # type: ignore[attr-defined, no-any-return]  # Lightning sets it elsewhere


def _numbers(state: Mapping[str, Any]) -> set[int]:
    """Return the numbers of an optimiser's parameters."""
    return {number for group in state.get("param_groups", ()) for number in group["params"]}


def _stateless(checkpoint: Mapping[str, Any], number: int, state: Any, expected: Any) -> set[int]:
    """Return the parameters of an optimiser that may lack a state: if none has one, none may."""
    if STATELESS in checkpoint:
        return {*checkpoint[STATELESS][number]}
    return expected.keys() - state.keys() if state else set()


def _form_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimiser's state dict with the states that a first step with zero gradients creates."""
    form = copy.deepcopy(optimizer.state_dict())
    try:
        trial = copy.deepcopy(optimizer)
        for parameter in (parameter for group in trial.param_groups for parameter in group["params"]):
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        trial.step()
        form["state"] = trial.state_dict()["state"]
    except Exception:  # some optimisers cannot be copied, or take no step without a closure
        form["state"] = {0: {}}  # some state, at least
    return form


def _difference(built: Any, restored: Any, key: str) -> str | None:
    """Return the first key whose value has not the form of what was built, in words; None if all have."""
    if type(built) is dict:
        parts = {f"{key}.{name}": (value, name) for name, value in built.items()}
        for inner, (value, name) in parts.items():
            if not isinstance(restored, Mapping) or name not in restored:
                return f"{inner} is missing"
            if problem := _difference(value, restored[name], inner):
                return problem
    elif isinstance(built, list | tuple):
        if not isinstance(restored, list | tuple) or len(restored) < len(built):
            return f"{key}: expected {len(built)} values, got {restored!r}"
        for number, (value, found) in enumerate(zip(built, restored, strict=False)):
            if problem := _difference(value, found, f"{key}.{number}"):
                return problem
    elif built is not None and _kind(built) != _kind(restored):  # None is what no step has set yet
        return f"{key}: expected {_kind(built)}, got {_kind(restored)}"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, Tensor) and value.dim():
        return f"shape {tuple(value.shape)}"
    if isinstance(value, int | float | Tensor) and not isinstance(value, bool):
        return "a number"
    return type(value).__name__


def _damaged(trainer: pl.Trainer, problem: str) -> DamagedError:
    remedy = getattr(trainer.strategy.checkpoint_io, "remedy", AtomicCheckpointIO.remedy)
    return DamagedError(f"{problem}: {remedy}")
