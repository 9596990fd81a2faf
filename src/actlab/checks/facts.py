"""What checks and packing need to know of a grid point, from one build of one of its runs."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch.nn.modules.conv import _ConvNd

from actlab import experiments
from actlab.config.keys import get_dotted, set_dotted
from actlab.datamodules.base import TensorDataModule
from actlab.experiments import Experiment
from actlab.runtime.accidents import has_float64
from actlab.stacking import task as stacking
from actlab.studies.plan import SEED, Run
from actlab.tasks import Task


class Facts(NamedTuple):
    """What a build shows of a run, and of all runs that differ from it only in seed and `stackable` keys."""

    stackable: tuple[str, ...]  # config keys in which the members of a stack may differ
    layers: str  # types and parameter shapes of the layers, as text
    on_cpu: bool
    has_forms: bool  # whether all layers have a stacked form
    reason: str | None  # why the run cannot be a member of a stack


class Known:
    """The facts of the runs that were built, and of runs that differ from them only in `stackable` keys."""

    def __init__(self) -> None:
        self._stackable: dict[str, tuple[str, ...]] = {}  # by the classes of a model, as text
        self._facts: dict[str, Facts] = {}  # by the settings that may change them, as text

    def of(self, run: Run, experiment: Experiment | None = None) -> Facts:
        """Return the facts of a run, from its ``experiment`` if it was built."""
        classes = as_text(_classes(run.config["model"]))
        if experiment is None and classes in self._stackable:
            facts = self._facts.get(_settings(run, self._stackable[classes]))
            if facts is not None:
                return facts

        facts = _shown_by(experiment or experiments.build(run.config))
        self._stackable[classes] = facts.stackable
        self._facts[_settings(run, facts.stackable)] = facts
        return facts


def _shown_by(experiment: Experiment) -> Facts:
    task = experiment.task
    names = task.stackable if isinstance(task, Task) else ()
    return Facts(
        stackable=(SEED, *(f"model.{name}" for name in names)),
        layers=layers_of(task),
        on_cpu=experiment.trainer.strategy.root_device.type == "cpu",
        has_forms=isinstance(task, Task) and stacking.has_forms(task),
        reason=reason_against(experiment),
    )


def _settings(run: Run, stackable: Sequence[str]) -> str:
    """Return the settings that may change the facts of a run."""
    # Arguments of the network may add layers.
    keys = [key for key in stackable if not key.startswith("model.network.")]
    return as_text([without(run.config, keys), run.sources])


def layers_of(task: pl.LightningModule) -> str:
    """Return the layers of a task with their types and parameter shapes, as text."""
    layers = []
    for path, module in task.named_modules():
        shapes = [list(parameter.shape) for parameter in module.parameters(recurse=False)]
        layers.append((path, type(module).__qualname__, shapes))
    return as_text(layers)


def _classes(value: Any) -> Any:
    """Return the class paths among nested values, in their places."""
    if isinstance(value, dict):
        classes = {key: inner if key == "class_path" else _classes(inner) for key, inner in value.items()}
        return {key: inner for key, inner in classes.items() if inner} or None
    return None


def without(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return a config with the values of some keys replaced by 0, but objects by their class paths."""
    # Members of a stack may differ in the settings of their optimiser, but not in its class.
    copied = copy.deepcopy(dict(config))
    for key in keys:
        value = get_dotted(copied, key)
        if value is not None:
            kind = value.get("class_path", 0) if isinstance(value, dict) else value
            set_dotted(copied, key, kind if isinstance(kind, str) else 0)
    return copied


def as_text(value: Any) -> str:
    """Return nested values as text; equal values give equal text."""
    return json.dumps(value, sort_keys=True, default=str)


def reason_against(experiment: Experiment) -> str | None:
    """Return why a run cannot be a member of a stack, or None if it can."""
    trainer, task, data = experiment
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        return "several devices, or a custom strategy"
    if not has_float64(device := trainer.strategy.root_device):
        return f"the device {device.type} has no float64, in which stacks are compared with runs alone"
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return "a loss scaler shared by all members would couple them (precision 16)"
    if getattr(trainer, "overfit_batches", 0):
        return "overfit_batches replaces the order of batches"
    if device.type == "cpu" and getattr(task, "ragged", False):
        return "its batches differ in size from run to run, and padding them would change sums"
    if device.type == "cpu" and isinstance(task, Task) and any(isinstance(p, _ConvNd) for p in task.modules()):
        return "a CPU computes convolutions of several runs in another way, whatever their stacked form"
    if reason := stacking.reason_against(task):  # which no declaration below would change
        return reason
    if not isinstance(data, TensorDataModule):
        return f"{type(data).__name__} makes batches for one seed, as every datamodule but a TensorDataModule"
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if type(callback) is not ModelCheckpoint and not getattr(callback, "stackable", False):
            return (
                f"{type(callback).__name__} does not declare 'stackable = True', so it may not support stacks"
            )
    if not getattr(data, "stackable", False):
        return (
            f"{type(data).__name__} makes batches for one seed, not for several (or does not declare "
            "'stackable = True')"
        )
    return None
