"""Rebuild a trained task from its checkpoint: from the recorded config, with the trained weights."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentError, ArgumentParser
from torch import Tensor, nn

from actlab.config import records
from actlab.config.signatures import locate, parameters
from actlab.errors import ActlabError
from actlab.storage import checkpoints


def restored(kind: type[pl.LightningModule], path: str | Path | IO[Any]) -> Any:
    """Return the trained task of a checkpoint.

    Raises:
        ActlabError: as in `rebuilt`, and for a damaged file.
    """
    checkpoint = checkpoints.read(path)
    config = checkpoint.get(checkpoints.CONFIG)
    task = rebuilt(kind, config)
    for text in records.changed_code(config or {}):
        warnings.warn(
            f"{text} has changed since {path} was trained: the task uses the current version", stacklevel=3
        )
    task.on_load_checkpoint(checkpoint)
    task.load_state_dict(checkpoint["state_dict"])
    return task


def rebuilt(kind: type[pl.LightningModule], config: Mapping[str, Any] | None) -> Any:
    """Return a task with newly initialised weights, built from the config in a checkpoint.

    Args:
        kind: the class that the task must be an instance of.
        config: the record in the checkpoint, with ``model`` and ``seed_everything``; None if it has none.

    Raises:
        ActlabError: for a missing config, a config of another class, or one that this version cannot build.
    """
    if config is None:
        raise ActlabError(
            "the checkpoint holds no config of the trained task (an older version of actlab, or another "
            f"program, wrote it): give the arguments of {kind.__name__}"
        )
    model = config["model"]
    found = locate(model["class_path"])
    if not issubclass(found, kind):
        raise ActlabError(
            f"the checkpoint is of {model['class_path']}, not of {kind.__qualname__}: load it with that class"
        )
    arguments = copy.deepcopy(dict(model["init_args"]))  # the parser replaces values of a dict in place
    if "seed" in (parameters(found) or ()):
        arguments["seed"] = config["seed_everything"]
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(kind, "task")
    try:
        parsed = parser.parse_object({"task": {**model, "init_args": arguments}})
    except ArgumentError as error:
        raise ActlabError(f"the checkpoint's config cannot be built: {' '.join(str(error).split())}") from error
    task = parser.instantiate_classes(parsed).task
    task.config = config
    return task


def as_precise_as(module: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Convert a module to double before double weights are loaded: Lightning converts it only afterwards."""
    state = checkpoint["state_dict"].values()  # an extra state may be of any type
    if any(isinstance(value, Tensor) and value.dtype == torch.float64 for value in state):
        module.double()
