"""What a run is: a digest of everything that changes its numbers, and of nothing else.

Settings count, whatever they are written like, and so do the contents of files from outside: data, vectors, the
source of a user's units, networks and tasks. Paths, logging, the study's name and the devices do not. actlab's
own code counts by `NUMERICS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from actlab import contents
from actlab.batches import BATCHES
from actlab.studies.keys import as_number

NUMERICS = 3  # raised when runs of equal settings give other numbers than before
# Keys below ``trainer`` and ``data`` that leave the numbers alone, up to the order of floating-point sums.
_TRAINER = {
    *("accelerator", "benchmark", "barebones", "default_root_dir", "devices", "enable_checkpointing"),
    *("enable_model_summary", "enable_progress_bar", "inference_mode", "log_every_n_steps", "logger"),
    *("num_nodes", "num_sanity_val_steps", "profiler", "strategy", "use_distributed_sampler"),
}
_NULLS = {"check_val_every_n_epoch"}  # where null is another setting than the default
_DATA = {"cache_dir", "workers"}  # of actlab's own datamodules; what another's make of them nobody knows


def digest(counts: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Eight hexadecimal digits for a complete config and the files from outside that it names.

    Args:
        counts: what counts of the config, as `counted` gives it.
        sources: as `sources_of` gives them.
    """
    told = [NUMERICS, counts, sorted(set(sources.values()))]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:8]


def counted(config: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """What counts of a complete config, its values as they count."""
    return {str(key): _plain(value, sources) for key, value in _counting(config).items()}


def _counting(config: Mapping[str, Any], read: bool = False) -> dict[str, Any]:
    """The part of a config that changes numbers, or that is ``read``: a cache is filled by the runs."""
    data, trainer = config.get("data") or {}, config.get("trainer") or {}
    if isinstance(data, Mapping) and isinstance(arguments := data.get("init_args") or {}, Mapping):
        name = str(data.get("class_path") or "")
        left_out = _DATA if read or "." not in name or name.startswith("actlab.") else ()
        data = {**data, "init_args": {k: v for k, v in arguments.items() if k not in left_out}}
    if isinstance(trainer, Mapping):
        counting = ((k, v) for k, v in trainer.items() if k not in _TRAINER and (v is not None or k in _NULLS))
        trainer = {k: "one batch" if k in BATCHES and type(v) is int and v == 1 else v for k, v in counting}
    return {**config, "data": data, "trainer": trainer}


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
    counting = _counting(config, read=True)
    named = set(contents.texts(counting.get("data")))
    for text in contents.texts(counting):
        key = f"data {text}" if text in named else text
        if key not in known:
            known[key] = contents.content_of(text, text in named)
        if content := known[key]:
            found[text] = content
    return found
