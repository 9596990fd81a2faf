"""A task as its checkpoint holds it: built anew from the config that was trained, with the weights."""

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
    """The task of a checkpoint, as it was trained; errors are those of `rebuilt`, and of a damaged file."""
    checkpoint = checkpoints.read(path)
    config = checkpoint.get(checkpoints.CONFIG)
    task = rebuilt(kind, config)
    for text in records.changed_code(config or {}):
        warnings.warn(f"{text} has changed since {path} was trained: the task is of today's", stacklevel=3)
    task.on_load_checkpoint(checkpoint)
    task.load_state_dict(checkpoint["state_dict"])
    return task


def rebuilt(kind: type[pl.LightningModule], config: Mapping[str, Any] | None) -> Any:
    """A task with fresh weights.

    Args:
        kind: what it must be an instance of.
        config: as checkpoints keep it, with ``model`` and ``seed_everything``; None where they have none.

    Raises:
        ActlabError: for no config, one of another class, or one that this version cannot build.
    """
    if config is None:
        raise ActlabError(
            "the checkpoint holds no config of what was trained (it is older, or not of actlab): "
            f"give {kind.__name__}'s arguments"
        )
    model = config["model"]
    found = locate(model["class_path"])
    if not issubclass(found, kind):
        raise ActlabError(
            f"the checkpoint is of {model['class_path']}, not of {kind.__qualname__}: load it with that class"
        )
    arguments = copy.deepcopy(dict(model["init_args"]))  # the parser puts its own objects into a dict
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
    """Make a module double before it takes double weights: Lightning converts it only after loading."""
    state = checkpoint["state_dict"].values()  # an extra state may be anything
    if any(isinstance(value, Tensor) and value.dtype == torch.float64 for value in state):
        module.double()
