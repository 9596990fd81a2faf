"""Is a checkpoint complete? Checks of what a resume restores, before Lightning and torch use it.

Lightning resumes silently from a checkpoint whose optimiser state is empty or whose loops are missing. Fused
optimisers of torch read beyond the end of a state of another shape.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torch import Tensor
from torch.optim import Optimizer

from actlab.storage.checkpoints import AtomicCheckpointIO, check_parts
from actlab.storage.files import DamagedError

_WITHOUT_STATE = "without_state"  # checkpoint key: of each optimiser, the parameters that have no state


class CompleteCheckpoint(Callback):
    """Raises `DamagedError` before training resumes from a checkpoint of wrong content."""

    stackable = True

    def __init__(self) -> None:
        self.checkpoint: Mapping[str, Any] | None = None  # until its optimisers are restored

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: Mapping[str, Any]
    ) -> None:
        """Check loops and callbacks; nothing where the Trainer only evaluates."""
        if trainer.state.fn != "fit":
            return
        check_parts(checkpoint, _remedy(trainer))
        progress = {**trainer.fit_loop.state_dict(), "state_dict": {}}  # data loaders check theirs themselves
        wanted: dict[str, Any] = {"loops": {"fit_loop": progress}, "callbacks": {}}
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.state_key in checkpoint["callbacks"]:
                wanted["callbacks"][callback.state_key] = callback.state_dict()
        if difference := _difference(checkpoint, wanted):
            raise _damaged(trainer, difference)
        self.checkpoint = checkpoint

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the states of optimisers and schedulers, which now exist, before they are restored."""
        if self.checkpoint is not None and self.checkpoint["global_step"]:
            _check_optimizers(trainer, self.checkpoint)
        self.checkpoint = None


def check_weights(trainer: pl.Trainer | None, weights: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Reject weights of another kind of number, which torch would convert; it checks names and shapes."""
    for name in expected.keys() & weights.keys():
        if isinstance(expected[name], Tensor) and isinstance(weights[name], Tensor):
            wanted, given = expected[name].dtype, weights[name].dtype
            if (wanted.is_complex, wanted.is_floating_point) != (given.is_complex, given.is_floating_point):
                raise _damaged(trainer, f"the checkpoint's weight {name} is of {given}, not {wanted}")


def _check_optimizers(trainer: pl.Trainer, checkpoint: Mapping[str, Any]) -> None:
    without = checkpoint.get(_WITHOUT_STATE, [])
    states = [_after_a_step(optimizer) for optimizer in trainer.optimizers]
    for number, (state, stateless) in enumerate(zip(states, without, strict=False)):
        states[number] = {**state, "state": {k: v for k, v in state["state"].items() if k not in stateless}}
    schedulers = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
    if difference := _difference(checkpoint, {"optimizer_states": states, "lr_schedulers": schedulers}):
        raise _damaged(trainer, difference)
    for state in checkpoint["optimizer_states"]:
        if extra := state["state"].keys() - _numbers(state):
            raise _damaged(
                trainer, f"the checkpoint has a state of parameter {min(extra)}, which does not exist"
            )


def record_stateless(checkpoint: dict[str, Any]) -> None:
    """Record which parameters have no state, because they had no gradient."""
    checkpoint[_WITHOUT_STATE] = [
        [number for number in _numbers(state) if state["state"] and number not in state["state"]]
        for state in checkpoint.get("optimizer_states", ())
    ]


def _numbers(state: Mapping[str, Any]) -> list[int]:
    return [number for group in state["param_groups"] for number in group["params"]]


def _after_a_step(optimizer: Optimizer) -> dict[str, Any]:
    """Return the numbers of an optimiser's groups, and the state that a step with zero gradients creates."""
    groups = [
        {name: value for name, value in group.items() if value is not None and not isinstance(value, bool)}
        for group in optimizer.state_dict()["param_groups"]  # versions of torch differ in the others
    ]
    try:
        trial = copy.deepcopy(optimizer)
        for parameter in (parameter for group in trial.param_groups for parameter in group["params"]):
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        trial.step()
        return {"param_groups": groups, "state": trial.state_dict()["state"]}
    except Exception:  # some optimisers cannot be copied, or take no step without a closure
        return {"param_groups": groups, "state": {0: {}}}  # some state, at least


def _difference(given: Any, wanted: Any, key: str = "") -> str | None:
    """Return where a value, which may have more keys, lacks a part or has one of another type or shape."""
    if isinstance(wanted, Mapping) and isinstance(given, Mapping):
        dotted = {name: f"{key}.{name}".lstrip(".") for name in wanted}
        if missing := [dotted[name] for name in wanted if name not in given]:
            return f"the checkpoint has no {missing[0]}"
        parts = ((given[name], value, dotted[name]) for name, value in wanted.items())
    elif isinstance(wanted, list | tuple) and isinstance(given, list | tuple) and len(wanted) == len(given):
        parts = ((a, b, f"{key}.{i}") for i, (a, b) in enumerate(zip(given, wanted, strict=True)))
    elif wanted is None or _kind(wanted) == _kind(given):  # None: any value fits
        return None
    else:
        return f"the checkpoint's {key} is {_kind(given)}, not {_kind(wanted)}"
    return next(filter(None, (_difference(*part) for part in parts)), None)


def _kind(value: Any) -> str:
    """Return what a value is; numbers and tensors of one number are of one kind."""
    if isinstance(value, Tensor) and value.dim():
        number = "complex " if value.is_complex() else "" if value.is_floating_point() else "whole-number "
        return f"a {number}tensor of shape {tuple(value.shape)}"
    if isinstance(value, int | float | Tensor) and not isinstance(value, bool):
        return "a number"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return "a mapping" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def _remedy(trainer: pl.Trainer | None) -> str:
    writer = trainer.strategy.checkpoint_io if trainer is not None else None
    return getattr(writer, "remedy", AtomicCheckpointIO.remedy)


def _damaged(trainer: pl.Trainer | None, problem: str) -> DamagedError:
    return DamagedError(f"{problem}: {_remedy(trainer)}")
