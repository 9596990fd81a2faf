"""The training record stored in each checkpoint: seed, model, data and numbers of the Trainer.

The record includes digests of the user's code that the model names, and of the files that the data are read
from, because the config only names them and they can be edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jsonargparse import Namespace

from actlab.config import elsewhere, identity
from actlab.config.admission import TRAINER
from actlab.config.sections import SECTIONS, SEED
from actlab.storage import contents

SOURCES = "sources"  # key of the digests of the files and code that model and data name
_NOTHING = "nothing"  # shown in place of a missing key


def plain(value: Any) -> Any:
    """Convert nested values to types that YAML and ``torch.load(weights_only=True)`` read; classes to paths."""
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
    """Return a resolved config in the form of an input, without seeds and shapes that follow from the rest.

    Args:
        config: the result of `actlab.experiments.resolved`.
        linked: arguments that the model gets from the data.
    """
    found: dict[str, Any] = plain(config)
    for section in SECTIONS:
        for name in ("seed", *(linked if section == "model" else ())):
            found[section].get("init_args", {}).pop(name, None)
    return found


def record(config: Namespace, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a resolved config.

    Args:
        config: the config parsed by LightningCLI.
        shapes: arguments that the model gets from the data, with their values.
    """
    given = as_given(config, ())
    found = {key: given[key] for key in (SEED, *SECTIONS)}
    for section in SECTIONS:
        found[section].setdefault("init_args", {})
    found["model"]["init_args"].update(plain(shapes))
    kept = {key: plain(config.trainer.get(key)) for key in TRAINER}
    found["trainer"] = {key: value for key, value in kept.items() if value is not None}
    return found


def with_digests(found: Mapping[str, Any], known: dict[str, str | None] | None = None) -> dict[str, Any]:
    """Return a record with the digests of the files and code that its model and data name.

    Args:
        found: the record.
        known: see `identity.sources_of`.
    """
    found = elsewhere.original(found)
    return {**found, SOURCES: identity.sources_of({key: found[key] for key in SECTIONS}, known)}


def changed_code(found: Mapping[str, Any]) -> list[str]:
    """Return the names of code in a record's model and data that was edited or removed after training."""
    return _changed(found, [found["model"], found["data"].get("class_path")], of_data=False)


def changed_files(found: Mapping[str, Any], used: Mapping[str, Any]) -> list[str]:
    """Return the files and folders of a record's data that have changed and that ``used`` names too."""
    return _changed(found, used["data"]["init_args"], of_data=True)


def _changed(found: Mapping[str, Any], named: Any, of_data: bool) -> list[str]:
    """Return the texts whose content no longer matches the recorded digest."""
    kept = found.get(SOURCES) or {}
    texts = dict.fromkeys(text for text in contents.texts(named) if text in kept)
    return [text for text in texts if contents.content_of(text, of_data) != kept[text]]


def difference(one: Any, other: Any, key: str) -> tuple[str, Any, Any] | None:
    """Return where two nested values first differ: the dotted key without ``init_args``, and both values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):  # a class before its arguments
            below = key if name in ("class_path", "init_args") else f"{key}.{name}"
            if found := difference(one.get(name, _NOTHING), other.get(name, _NOTHING), below):
                return found
        return None
    return None if one == other else (key, one, other)
