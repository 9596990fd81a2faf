"""What a run is: a digest of everything that changes its numbers, and of nothing else.

Settings count, whatever they are written like, and so do the contents of files from outside: data, vectors, the
source of a user's units, networks and tasks. Paths, logging, the study's name and the devices do not. actlab's
own code counts by `NUMERICS`. Of a class that is not in `OWN` nobody here knows what it makes of its arguments
and of several devices, so everything counts. Nothing that a config names is imported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from actlab.config.batches import BATCHES
from actlab.config.keys import as_number, class_of
from actlab.storage import contents

NUMERICS = 3  # raised when runs of equal settings give other numbers than before
DIGITS = 16  # of an identity, in names
# Arguments of the Trainer that leave the numbers alone, up to the order of floating-point sums.
NOT_COUNTED = {
    *("accelerator", "benchmark", "barebones", "default_root_dir", "enable_checkpointing"),
    *("enable_model_summary", "enable_progress_bar", "inference_mode", "log_every_n_steps", "logger"),
    *("num_sanity_val_steps", "profiler", "strategy"),
}
# Classes whose runs are the same on several devices, and arguments that leave what the data are read as alone.
OWN = {
    "model": {f"actlab.tasks.{name}" for name in ("AutoencoderTask", "ClassificationTask", "FrameTask")},
    "data": {
        f"actlab.datamodules.{name}DataModule" for name in ("CIFAR", "ImageNet", "MNIST", "TIMIT", "TwitterPOS")
    },
}
NOT_COUNTED_OF_OWN = {
    "trainer": {"devices", "num_nodes", "use_distributed_sampler"},
    "data": {"cache_dir", "workers"},
}
_NULLS = {"check_val_every_n_epoch"}  # where null is another setting than the default


def identity_of(counts: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """SHA-256 of a complete config and of the files from outside that it names.

    Args:
        counts: what counts of the config, as `counted` gives it.
        sources: as `sources_of` gives them.
    """
    told = [NUMERICS, counts, sorted(set(sources.values()))]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def counted(config: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """What counts of a complete config, its values as they count."""
    own = {section for section, classes in OWN.items() if str(class_of(config.get(section))) in classes}
    data = _without_reading(config) if "data" in own else config.get("data") or {}
    trainer = config.get("trainer") or {}
    if isinstance(trainer, Mapping):
        left_out = NOT_COUNTED | (NOT_COUNTED_OF_OWN["trainer"] if own == OWN.keys() else set())
        counting = ((k, v) for k, v in trainer.items() if k not in left_out and (v is not None or k in _NULLS))
        trainer = {k: "one batch" if k in BATCHES and type(v) is int and v == 1 else v for k, v in counting}
    whole = {**config, "data": data, "trainer": trainer}
    return {str(key): _plain(value, sources) for key, value in whole.items()}


def _without_reading(config: Mapping[str, Any]) -> Any:
    """The data of a config without the arguments that say how they are read: a run fills its own cache."""
    data = config.get("data") or {}
    if not isinstance(data, Mapping) or not isinstance(arguments := data.get("init_args") or {}, Mapping):
        return data
    left_out = NOT_COUNTED_OF_OWN["data"]
    return {**data, "init_args": {key: value for key, value in arguments.items() if key not in left_out}}


def _plain(value: Any, sources: Mapping[str, str]) -> Any:
    """Values as they count: ``1e-3``, ``0.001`` and ``1.0e-3`` are one, a path is what lies there."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, sources) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, sources) for inner in value]
    if isinstance(value, str) and value in sources:
        file, _, name = value.rpartition(":")
        return [sources[value], value if contents.module_of(value) else name if file else ""]
    return as_number(value)


def sources_of(config: Mapping[str, Any], known: dict[str, str | None] | None = None) -> dict[str, str]:
    """Digests of what a config names outside actlab: paths of files and folders, and modules.

    Args:
        config: nested values.
        known: what was looked up before, by value; filled here.

    Returns:
        The value as the config has it → digest of its content.
    """
    known = {} if known is None else known
    found: dict[str, str] = {}
    data = _without_reading(config)
    named = set(contents.texts(data.get("init_args") if isinstance(data, Mapping) else data))
    trainer = config.get("trainer") or {}
    if isinstance(trainer, Mapping):
        trainer = {key: value for key, value in trainer.items() if key not in NOT_COUNTED}
    for text in contents.texts({**config, "data": data, "trainer": trainer}):
        key = f"data {text}" if text in named else text
        if key not in known:
            known[key] = contents.content_of(text, text in named)
        if content := known[key]:
            found[text] = content
    return found
