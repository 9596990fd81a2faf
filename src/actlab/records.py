"""What was trained, as its checkpoint keeps it: the resolved config's seed, model, data and precision.

The digests of the user's code that the model names and of the files that the data are read from are kept, too:
the config only names them, and they can be edited.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonargparse import Namespace

from actlab import contents
from actlab.configs import READING, SECTIONS, SEED, SHAPES

CODE, FILES = "code", "files"  # the keys under which the digests of what model and data name stand
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


def record(config: Namespace, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a resolved config.

    Args:
        config: as LightningCLI has parsed it.
        shapes: arguments that the model takes from the data.
    """
    found = {key: plain(config[key]) for key in (SEED, *SECTIONS)}
    for section in SECTIONS:
        found[section].setdefault("init_args", {}).pop("seed", None)  # it follows the config's seed
    found["model"]["init_args"].update(plain(shapes))
    if config.trainer.precision is not None:
        found["trainer"] = {"precision": plain(config.trainer.precision)}
    return found


def with_digests(found: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the digests of what its model and its data name, as checkpoints keep it."""
    return {**found, CODE: code_of(found), FILES: contents.named_in(_read(found), of_data=True)}


def code_of(found: Mapping[str, Any]) -> dict[str, str]:
    """The code of users that a record's model and the class of its data name, each with its digest."""
    return contents.named_in([found["model"], found["data"].get("class_path")], of_data=False)


def _read(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of the data, without what leaves them as they are."""
    return {k: v for k, v in found["data"]["init_args"].items() if k not in READING}


def changed_code(found: Mapping[str, Any]) -> list[str]:
    """The code that a record's model and data name which is not what was trained: edited since, or gone."""
    return contents.changed(found.get(CODE) or {}, of_data=False)


def changed_files(found: Mapping[str, Any], used: Mapping[str, Any]) -> list[str]:
    """The files and folders of a record's data that another names, too, and that are not as they were."""
    named = set(contents.texts(_read(used)))
    known = {text: content for text, content in (found.get(FILES) or {}).items() if text in named}
    return contents.changed(known, of_data=True)


def as_config(found: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a config that can be run."""
    return copy.deepcopy({key: value for key, value in found.items() if key not in (CODE, FILES)})


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
