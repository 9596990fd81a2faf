"""Group runs that can be stacked: runs with the same layers and the same data."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pytorch_lightning as pl

from actlab import experiments
from actlab.config.keys import get_dotted, set_dotted
from actlab.studies.groups import by_point
from actlab.studies.plan import SEED, Run
from actlab.tasks import Task

Free = dict[str, tuple[str, ...]]  # config keys that may differ in a stack, by the class paths of a model


def similar(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs that differ only in config keys in which the members of a stack may differ, by a digest.

    A run that no other is similar to is a group of its own.
    """
    free: Free = {}
    structures: dict[str, str] = {}  # layers, by the settings of a model that may change them
    groups: dict[str, list[Run]] = {}
    for alike in by_point(runs):
        groups.setdefault(_key(alike[0], free, structures), []).extend(alike)
    return {
        key: sorted(group, key=lambda run: [str(value) for value in run.point.values()])
        for key, group in groups.items()
    }


def _key(run: Run, free: Free, structures: dict[str, str]) -> str:
    """Return the key of a run's group, which no seed changes; add to what is known of models."""
    task = cache(lambda: experiments.build(run.config).task)
    classes = as_text(_classes(run.config["model"]))
    if classes not in free:
        model = task()
        free[classes] = SEED, *(f"model.{key}" for key in (model.stackable if isinstance(model, Task) else ()))
    keys = free[classes]
    fixed = [key for key in keys if not key.startswith("model.network.")]
    layers = as_text(_without({"model": run.config["model"]}, fixed)["model"])
    if layers not in structures:
        structures[layers] = structure(task())
    common = as_text([_without(run.config, keys), structures[layers], run.sources])
    return hashlib.sha256(common.encode()).hexdigest()[:16]


def structure(task: pl.LightningModule) -> str:
    """Return the layers of a task with their types and parameter shapes, as text."""
    return as_text(
        [
            (path, type(module).__qualname__, [list(p.shape) for p in module.parameters(recurse=False)])
            for path, module in task.named_modules()
        ]
    )


def _classes(value: Any) -> Any:
    """Return the class paths among nested values, in their places."""
    if isinstance(value, dict):
        classes = {key: inner if key == "class_path" else _classes(inner) for key, inner in value.items()}
        return {key: inner for key, inner in classes.items() if inner} or None
    return None


def _without(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
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
