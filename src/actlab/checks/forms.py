"""Whether the runs of a grid point have stacked forms, and the reasons against a stack."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch.nn.modules.conv import _ConvNd

from actlab.checks.facts import Facts, as_text
from actlab.datamodules.base import TensorDataModule
from actlab.experiments import Experiment
from actlab.runtime.accidents import has_float64
from actlab.stacking import task as stacking
from actlab.studies.plan import SEED
from actlab.tasks import Task


def facts_of(experiment: Experiment) -> Facts:
    """Return the facts that a build shows."""
    task = experiment.task
    # Members of other modules may differ in the seed only, and are not stacked
    names = task.stackable if isinstance(task, Task) else ()
    return Facts(
        stackable=(SEED, *(f"model.{name}" for name in names)),
        layers=layers_of(task),
        on_cpu=experiment.trainer.strategy.root_device.type == "cpu",
        single_device=experiment.trainer.world_size == 1,
        has_forms=isinstance(task, Task) and stacking.has_forms(task),
        reason=reason_against(experiment),
    )


def layers_of(task: pl.LightningModule) -> str:
    """Return the layers of a task with their types and parameter shapes, as text."""
    layers = []
    for path, module in task.named_modules():
        shapes = [
            list(parameter.shape) for parameter in module.parameters(recurse=False)
        ]
        layers.append((path, type(module).__qualname__, shapes))
    return as_text(layers)


def reason_against(experiment: Experiment) -> str | None:
    """Return why a run cannot be a member of a stack, or None if it can."""
    trainer, task, data = experiment
    return (
        _reason_of_trainer(trainer)
        or _reason_of_task(task, trainer.strategy.root_device)
        or _reason_of_declarations(trainer, data)
    )


def _reason_of_trainer(trainer: pl.Trainer) -> str | None:
    """Return a reason in the devices, the precision or the limits of a Trainer."""
    # A stack trains on a single device, with float64 for its trial.
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        return "several devices, or a custom strategy"
    device = trainer.strategy.root_device
    if not has_float64(device):
        return (
            f"the device {device.type} has no float64, "
            "in which stacks are compared with runs alone"
        )

    # Members share neither the scale of a loss nor the order of batches.
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return "a loss scaler shared by all members would couple them (precision 16)"
    if getattr(trainer, "overfit_batches", 0):
        return "overfit_batches replaces the order of batches"
    return None


def _reason_of_task(task: pl.LightningModule, device: torch.device) -> str | None:
    """Return a reason in the computations of a task, which no declaration would change."""
    if device.type == "cpu":
        # Another order of summation gives other digits.
        if getattr(task, "ragged", False):
            return "its batches differ in size from run to run, and padding them would change sums"
        if isinstance(task, Task) and any(
            isinstance(m, _ConvNd) for m in task.modules()
        ):
            return (
                "a CPU computes convolutions of several runs in another way, whatever their "
                "stacked form"
            )
    return stacking.reason_against(task)


def _reason_of_declarations(
    trainer: pl.Trainer, data: pl.LightningDataModule
) -> str | None:
    """Return a reason in what datamodule and callbacks do not declare."""
    # Only a TensorDataModule can serve several seeds
    if not isinstance(data, TensorDataModule):
        return (
            f"{type(data).__name__} makes batches for one seed, as every datamodule except a "
            "TensorDataModule"
        )

    # Callbacks declare that they support stacks. Lightning itself adds a
    # ModelCheckpoint, exactly of this class; a subclass comes from the user.
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if type(callback) is not ModelCheckpoint and not getattr(
            callback, "stackable", False
        ):
            return (
                f"{type(callback).__name__} does not declare 'stackable = True', so it may not "
                "support stacks"
            )

    # Data declare that they make batches for several seeds.
    if not getattr(data, "stackable", False):
        return (
            f"{type(data).__name__} makes batches for one seed, not for several (or does not "
            "declare 'stackable = True')"
        )
    return None
