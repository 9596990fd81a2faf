"""Rebuild a trained task from its checkpoint, from recorded arguments and trained weights."""

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
    # Read the checkpoint. A URL is never unpickled, even if the caller asks for it.
    source: Any = path
    if "://" in str(path):
        weights_only = True
        with fsspec.open(str(path), "rb") as file:
            source = io.BytesIO(file.read())
    device = "cpu" if map_location is None else map_location
    checkpoint = checkpoints.read(
        source, device, weights_only=weights_only is not False
    )

    # Build the task from its record.
    config = _record(kind, checkpoint, hparams_file, arguments)
    task = _rebuilt(kind, config, trust or hparams_file is not None, arguments)
    task.config = with_arguments(config, split(arguments), task.seed)
    for text in changed_code(task.config):
        warnings.warn(
            f"{text} has changed since {path} was trained: the task uses the current version",
            stacklevel=3,
        )

    # Load the weights.
    task.on_load_checkpoint(checkpoint)
    weights = checkpoint["state_dict"]
    if strict is None:
        strict = task.strict_loading
    try:
        task.load_state_dict(weights, strict=strict)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ActlabError(
            f"the checkpoint's weights do not fit the network: {one_line(error)}"
        ) from error

    # The task follows its weights, which `map_location` has moved
    for tensor in weights.values():
        if isinstance(tensor, Tensor):
            return task.to(tensor.device)
    return task.to("cpu")


def _record(
    kind: type[pl.LightningModule],
    checkpoint: Mapping[str, Any],
    hparams_file: str | Path | None,
    arguments: Mapping[str, Any],
) -> Any:
    """Return the config of a task from a file, the checkpoint or the arguments, or None."""
    config: Any = checkpoint.get(checkpoints.CONFIG)
    hyperparameters = checkpoint.get(kind.CHECKPOINT_HYPER_PARAMS_KEY)
    if hparams_file is not None:
        init_args: Any = read_mapping(Path(hparams_file))
    elif config is not None:
        return config
    elif hyperparameters is not None:  # of Lightning, whose own keys begin with _
        items = hyperparameters.items()
        init_args = {key: value for key, value in items if not key.startswith("_")}
    elif arguments:
        init_args = {}
    else:
        return None
    return {"model": {"class_path": _path(kind), "init_args": init_args}}


def _rebuilt(
    kind: type[pl.LightningModule],
    config: Any,
    trust: bool,
    arguments: Mapping[str, Any],
) -> Any:
    """Return a task with new weights, built from a record.

    The user's code contains ``kind`` and ``arguments``, so they need no ``trust``.
    """
    # Without a record, only the caller knows the arguments
    if config is None:
        raise ActlabError(
            "the checkpoint has no config of the trained task (an older version of actlab, or "
            f"another program, wrote it). Pass the arguments of {kind.__name__}."
        )

    # Find the recorded class. A class without an import path is the user's.
    model = config.get("model") if isinstance(config, Mapping) else None
    path = ""
    if isinstance(model, Mapping):
        path = model.get("class_path", "")
        if path is None:
            path = _path(kind)
            config = {**config, "model": {**model, "class_path": path}}
    is_kind = isinstance(path, str) and (path == _path(kind) or imported(path) is kind)

    # Check that the record is complete, that it may be used, and that it fits the
    # class.
    missing = [f"{name}=…" for name in missing_in(config) if name not in arguments]
    if missing:
        raise ActlabError(
            "the checkpoint does not record arguments that a script passed as objects. Pass them: "
            f"{kind.__name__}.load_from_checkpoint(…, {', '.join(missing)})"
        )
    remedy = f"{kind.__name__}.load_from_checkpoint(…, trust=True)"
    allowed_classes = [path] if is_kind else []
    config = admitted(config, remedy, trust, allowed_classes, only=("model",))
    task_class: Any = kind if is_kind else locate(config["model"]["class_path"])
    if not issubclass(task_class, kind):
        raise ActlabError(
            f"checkpoint: expected the class {kind.__qualname__}, got {path}. Load it with that "
            "class."
        )

    # Build the task. The user's arguments replace recorded ones.
    recorded = config["model"]["init_args"].items()
    init_args = {name: value for name, value in recorded if name not in arguments}
    if "seed" in (parameters(task_class) or ()) and "seed" not in arguments:
        init_args.setdefault("seed", config[SEED])
    try:
        with default_seed(config.get(SEED)):  # of a class without the argument
            return task_class(
                **_instantiated(task_class, init_args, arguments), **arguments
            )
    except ActlabError:
        raise
    except ArgumentError as error:
        raise ActlabError(
            f"the checkpoint's config cannot be built: {one_line(error)}"
        ) from error
    except Exception as error:  # a third-party class may raise anything
        raise messages.bad_input(error) or messages.unbuilt(error) from error


def _instantiated(
    task_class: Any, init_args: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return recorded arguments with objects in place of their class paths."""
    # The user's arguments are objects already.
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(
        task_class, "task", skip={*arguments}, instantiate=False, fail_untyped=False
    )
    parsed = parser.parse_object({"task": init_args})
    instantiated = parser.instantiate(parsed).get("task")
    return instantiated.as_dict() if instantiated else {}


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def as_precise_as(module: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Convert a module to double before double weights are loaded.

    Lightning converts it only afterwards.
    """
    # Lightning's WeightAveraging saves a single average as state_dict, and the double
    # weights as a state of its own.
    values = list(checkpoint["state_dict"].values())
    values += checkpoint.get("current_model_state", {}).values()

    # An extra state may be of any type.
    if any(
        isinstance(value, Tensor) and value.dtype == torch.float64 for value in values
    ):
        module.double()
