"""Whether the runs of a grid point have stacked forms, and what stands against a stack."""

from __future__ import annotations

import pytorch_lightning as pl
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
        shapes = [list(parameter.shape) for parameter in module.parameters(recurse=False)]
        layers.append((path, type(module).__qualname__, shapes))
    return as_text(layers)


def reason_against(experiment: Experiment) -> str | None:
    """Return why a run cannot be a member of a stack, or None if it can."""
    trainer, task, data = experiment
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        return "several devices, or a custom strategy"
    if not has_float64(device := trainer.strategy.root_device):
        return (
            f"the device {device.type} has no float64, in which stacks are compared with runs alone"
        )
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return "a loss scaler shared by all members would couple them (precision 16)"
    if getattr(trainer, "overfit_batches", 0):
        return "overfit_batches replaces the order of batches"
    if device.type == "cpu" and getattr(task, "ragged", False):
        return "its batches differ in size from run to run, and padding them would change sums"
    if (
        device.type == "cpu"
        and isinstance(task, Task)
        and any(isinstance(p, _ConvNd) for p in task.modules())
    ):
        return "a CPU computes convolutions of several runs in another way, whatever their stacked form"
    if reason := stacking.reason_against(task):  # which no declaration below would change
        return reason
    if not isinstance(data, TensorDataModule):
        return f"{type(data).__name__} makes batches for one seed, as every datamodule but a TensorDataModule"
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if type(callback) is not ModelCheckpoint and not getattr(callback, "stackable", False):
            return f"{type(callback).__name__} does not declare 'stackable = True', so it may not support stacks"
    if not getattr(data, "stackable", False):
        return (
            f"{type(data).__name__} makes batches for one seed, not for several (or does not declare "
            "'stackable = True')"
        )
    return None
