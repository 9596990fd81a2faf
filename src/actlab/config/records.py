"""What was trained, as its checkpoint keeps it: the resolved config's seed, model, data and precision.

The digests of the user's code that the model names and of the files that the data are read from are kept, too:
the config only names them, and they can be edited.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonargparse import Namespace

from actlab.config import identity
from actlab.config.sections import SECTIONS, SEED, SHAPES
from actlab.storage import contents

SOURCES = "sources"  # the key under which the digests of what model and data name stand
_NOTHING = "nothing"  # how a key that one side lacks is shown


def plain(value: Any) -> Any:
    """Nested values as YAML and ``torch.load(weights_only=True)`` read them; a class becomes its path."""
    if isinstance(value, Namespace):
        value = value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | float | str | None):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def as_given(config: Namespace, linked: Sequence[str]) -> dict[str, Any]:
    """A resolved config as it can be given again: without the seeds and shapes that follow from the rest.

    Args:
        config: as `actlab.experiments.resolved` makes it.
        linked: the arguments that the model takes from the data.
    """
    found: dict[str, Any] = plain(config)
    for section in SECTIONS:
        for name in ("seed", *(linked if section == "model" else ())):
            found[section].get("init_args", {}).pop(name, None)
    return found


def record(config: Namespace, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a resolved config.

    Args:
        config: as LightningCLI has parsed it.
        shapes: arguments that the model takes from the data.
    """
    given = as_given(config, ())
    found = {key: given[key] for key in (SEED, *SECTIONS)}
    for section in SECTIONS:
        found[section].setdefault("init_args", {})
    found["model"]["init_args"].update(plain(shapes))
    if config.trainer.precision is not None:
        found["trainer"] = {"precision": plain(config.trainer.precision)}
    return found


def with_digests(found: Mapping[str, Any], known: dict[str, str | None] | None = None) -> dict[str, Any]:
    """A record with the digests of what its model and its data name, as checkpoints keep it.

    Args:
        found: the record.
        known: as of `identity.sources_of`.
    """
    return {**found, SOURCES: identity.sources_of({key: found[key] for key in SECTIONS}, known)}


def changed_code(found: Mapping[str, Any]) -> list[str]:
    """The code that a record's model and data name which is not what was trained: edited since, or gone."""
    return _changed(found, [found["model"], found["data"].get("class_path")], of_data=False)


def changed_files(found: Mapping[str, Any], used: Mapping[str, Any]) -> list[str]:
    """The files and folders of a record's data that another names, too, and that are not as they were."""
    return _changed(found, used["data"]["init_args"], of_data=True)


def _changed(found: Mapping[str, Any], named: Any, of_data: bool) -> list[str]:
    kept = found.get(SOURCES) or {}
    return contents.changed({text: kept[text] for text in contents.texts(named) if text in kept}, of_data)


def as_config(found: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a config that can be run."""
    return copy.deepcopy({key: value for key, value in found.items() if key != SOURCES})


def without_shapes(found: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """A record as a config that leaves shapes to the data, apart from some that are given."""
    config = as_config(found)
    for name in SHAPES:
        if name not in given:
            config["model"]["init_args"].pop(name, None)
    return config


def difference(one: Any, other: Any, key: str) -> tuple[str, Any, Any] | None:
    """The first place where two nested values differ: its dotted key, as a config is given, and both values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in _names(one, other):
            below = key if name in ("class_path", "init_args") else f"{key}.{name}"
            if found := difference(one.get(name, _NOTHING), other.get(name, _NOTHING), below):
                return found
        return None
    return None if one == other else (key, one, other)


def _names(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """The keys of two mappings, each once, those of the first one first: a class before its arguments."""
    yield from one
    yield from (name for name in other if name not in one)
