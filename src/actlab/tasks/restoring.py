"""Rebuild a trained task from its checkpoint: from the recorded arguments, with the trained weights."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import fsspec
import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentError, ArgumentParser
from torch import Tensor, nn

from actlab.config import messages
from actlab.config.admission import admitted
from actlab.config.plain_values import split
from actlab.config.record import changed_code, missing_in, with_arguments
from actlab.config.sections import SEED
from actlab.config.signatures import imported, locate, parameters
from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.random.defaults import default_seed
from actlab.storage import checkpoints
from actlab.storage.mappings import read_mapping


def restored(
    kind: type[pl.LightningModule],
    path: str | Path | IO[Any],
    map_location: Any,
    hparams_file: str | Path | None,
    strict: bool | None,
    weights_only: bool | None,
    trust: bool,
    arguments: Mapping[str, Any],
) -> Any:
    """Return the trained task of a checkpoint; see `actlab.tasks.Task.load_from_checkpoint`."""
    source: Any = path
    if "://" in str(path):  # never unpickled, whatever is asked for
        with fsspec.open(str(path), "rb") as file:
            source, weights_only = io.BytesIO(file.read()), True
    checkpoint = checkpoints.read(
        source,
        "cpu" if map_location is None else map_location,
        weights_only=weights_only is not False,
    )
    config: Any = checkpoint.get(checkpoints.CONFIG)
    given: Any = None  # instead of a record
    if hparams_file is not None:
        given = read_mapping(Path(hparams_file))
    elif config is None and (held := checkpoint.get(kind.CHECKPOINT_HYPER_PARAMS_KEY)) is not None:
        given = {key: value for key, value in held.items() if not key.startswith("_")}
    elif config is None and arguments:
        given = {}
    if given is not None:
        config = {"model": {"class_path": _path(kind), "init_args": given}}
    task = _rebuilt(kind, config, trust or hparams_file is not None, arguments)
    task.config = with_arguments(config, split(arguments), task.seed)
    for text in changed_code(task.config):
        warnings.warn(
            f"{text} has changed since {path} was trained: the task uses the current version",
            stacklevel=3,
        )
    task.on_load_checkpoint(checkpoint)
    state = checkpoint["state_dict"]
    try:
        task.load_state_dict(state, strict=task.strict_loading if strict is None else strict)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ActlabError(
            f"the checkpoint's weights do not fit the network: {one_line(error)}"
        ) from error
    return task.to(
        next((value.device for value in state.values() if isinstance(value, Tensor)), "cpu")
    )


def _rebuilt(
    kind: type[pl.LightningModule], config: Any, trust: bool, arguments: Mapping[str, Any]
) -> Any:
    """Return a task with new weights, built from a record; ``kind`` and ``arguments`` are the user's words."""
    if config is None:
        raise ActlabError(
            "the checkpoint holds no config of the trained task (an older version of actlab, or another "
            f"program, wrote it): give the arguments of {kind.__name__}"
        )
    recorded = config.get("model") if isinstance(config, Mapping) else None
    path = recorded.get("class_path", "") if isinstance(recorded, Mapping) else ""
    if path is None and isinstance(recorded, Mapping):  # no import path: the user's class
        path, config = _path(kind), {**config, "model": {**recorded, "class_path": _path(kind)}}
    is_named = isinstance(path, str) and (path == _path(kind) or imported(path) is kind)
    if unset := [f"{name}=…" for name in missing_in(config) if name not in arguments]:
        raise ActlabError(
            "the checkpoint does not record arguments that a script gave as objects: pass them, "
            f"{kind.__name__}.load_from_checkpoint(…, {', '.join(unset)})"
        )
    remedy = f"{kind.__name__}.load_from_checkpoint(…, trust=True)"
    config = admitted(config, remedy, trust, [path] if is_named else [], only=("model",))
    built: Any = kind if is_named else locate(config["model"]["class_path"])
    if not issubclass(built, kind):
        raise ActlabError(
            f"the checkpoint is of {path}, not of {kind.__qualname__}: load it with that class"
        )
    given = {key: v for key, v in config["model"]["init_args"].items() if key not in arguments}
    if "seed" in (parameters(built) or ()) and "seed" not in arguments:
        given.setdefault("seed", config[SEED])
    try:
        with default_seed(config.get(SEED)):  # of a class without the argument
            parser = ArgumentParser(exit_on_error=False)
            parser.add_class_arguments(
                built, "task", skip={*arguments}, instantiate=False, fail_untyped=False
            )
            parsed = parser.instantiate(parser.parse_object({"task": given})).get("task")
            return built(**(parsed.as_dict() if parsed else {}), **arguments)
    except ActlabError:
        raise
    except ArgumentError as error:
        raise ActlabError(f"the checkpoint's config cannot be built: {one_line(error)}") from error
    except Exception as error:  # a third-party class may raise anything
        raise messages.bad_input(error) or messages.unbuilt(error) from error


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def as_precise_as(module: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Convert a module to double before double weights are loaded: Lightning converts it only afterwards."""
    # Lightning's WeightAveraging saves a single average as state_dict, and the double weights
    # beside it.
    states = checkpoint["state_dict"], checkpoint.get("current_model_state", {})
    # An extra state may be of any type
    values = (value for state in states for value in state.values())
    if any(isinstance(value, Tensor) and value.dtype == torch.float64 for value in values):
        module.double()
