"""The training record stored in each checkpoint: seed, model, data and numbers of the Trainer.

It is made of plain values: of a resolved config, or of the arguments with which a program built a task. It
includes digests of the user's code and of files of data, which the config only names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from jsonargparse import Namespace

from actlab.config import identity
from actlab.config.admission import TRAINER
from actlab.config.keys import class_of
from actlab.config.sections import SECTIONS, SEED
from actlab.errors import ActlabError
from actlab.storage import contents
from actlab.storage.spec import Spec

MISSING = "missing"  # key of the names of the model's arguments that are objects
SOURCES = "sources"  # key of the digests of the files and code that model and data name
_LEAVES = {bool, int, float, str, type(None)}  # types of values that `plain` returns unchanged


def plain(value: Any) -> Any:
    """Convert nested values to types that YAML and ``torch.load(weights_only=True)`` read; classes to paths."""
    if isinstance(value, Spec):
        value = value.plain
    if isinstance(value, Namespace):
        value = value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): item if type(item) in _LEAVES else plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [item if type(item) in _LEAVES else plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name  # as the parser reads it
    if isinstance(value, float):
        return float(value)  # NumPy's, too
    if isinstance(value, bool | int | str | None):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def as_given(config: Namespace, linked: Sequence[str]) -> dict[str, Any]:
    """Return a resolved config as an input, without seeds and the shapes that are ``linked`` to the data."""
    given: dict[str, Any] = plain(config)
    for section in SECTIONS:
        for name in ("seed", *(linked if section == "model" else ())):
            given[section].get("init_args", {}).pop(name, None)
    return given


def record(resolved: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a resolved config, as `plain` values, and of shapes that come from the data."""
    recorded = {SEED: resolved[SEED]}
    for section in SECTIONS:
        arguments = dict(resolved[section].get("init_args", {}))
        arguments.pop("seed", None)
        recorded[section] = {**resolved[section], "init_args": arguments}
    recorded["model"]["init_args"].update(plain(shapes))
    trainer = resolved["trainer"]
    recorded["trainer"] = {key: trainer[key] for key in TRAINER if trainer.get(key) is not None}
    return recorded


class Arguments(NamedTuple):
    """Arguments of a class."""

    plain: dict[str, Any]  # those that are plain values
    objects: list[str]  # names of the others
    shown: dict[str, Any]  # all, with defaults; objects as text


def of_call(kind: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call of a class; none for a call that its signature rejects."""
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]  # ``__new__`` passes everything on
    try:
        call = signature.bind(None, *args, **kwargs)
    except TypeError:
        return Arguments({}, [], {})
    given = _named(call)
    call.apply_defaults()
    return _split(given, plain(_named(call)))


def _named(call: inspect.BoundArguments) -> dict[str, Any]:
    (_, *arguments), named = call.arguments.items(), call.signature.parameters  # without self
    given = dict(arguments)
    for name in [name for name in given if named[name].kind is inspect.Parameter.VAR_KEYWORD]:
        given.update(given.pop(name))
    return given


def split(given: Mapping[str, Any]) -> Arguments:
    """Separate arguments by name into plain values and objects."""
    return _split(given, plain(given))


def _split(given: Mapping[str, Any], shown: dict[str, Any]) -> Arguments:
    values = {name: shown[name] for name, value in given.items() if is_plain(value)}
    return Arguments(values, [name for name in given if name not in values], shown)


def is_plain(value: Any) -> bool:
    """Return whether a value consists of numbers, text, truth values and None, in sequences and mappings."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return isinstance(value, bool | int | float | str | Spec | None) and not isinstance(value, Enum)


def of_task(kind: type, given: Arguments, seed: int) -> dict[str, Any]:
    """Return the record of a task that a program built; ``class_path`` is None without an import path."""
    name, modules = kind.__qualname__, (kind.__module__.rpartition(".")[0], kind.__module__)
    exporting = [m for m in modules if m != "__main__" and getattr(sys.modules.get(m), name, None) is kind]
    model = {"class_path": f"{exporting[0]}.{name}" if exporting else None}
    return with_digests(with_arguments({"model": model}, given, seed))


def with_arguments(recorded: Mapping[str, Any], given: Arguments, seed: int) -> dict[str, Any]:
    """Return a record with some of the model's arguments replaced."""
    absent = (name for name in missing_in(recorded) if name not in given.plain)
    missing = dict.fromkeys([*absent, *given.objects])
    values = {**(recorded["model"].get("init_args") or {}), **given.plain}
    kept = {name: value for name, value in values.items() if name != "seed" and name not in missing}
    others = {key: value for key, value in recorded.items() if key != MISSING}
    model = {**recorded["model"], "init_args": kept}
    return {**others, SEED: seed, "model": model, **({MISSING: [*missing]} if missing else {})}


def missing_in(recorded: Any) -> list[str]:
    """Return the names of the model's arguments that a record does not hold."""
    names = recorded.get(MISSING, []) if isinstance(recorded, Mapping) else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ActlabError(f"the checkpoint's record of {MISSING} arguments is malformed: give another file")
    return names


def completed(trained: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return a record with the values of a config's model for the arguments that were objects."""
    names, recorded = missing_in(trained), trained.get("model")
    given = model.get("init_args") or {} if isinstance(model, Mapping) else {}  # a class path has none
    if not isinstance(recorded, Mapping) or not (names or recorded.get("class_path", "") is None):
        return dict(trained)
    if unset := [f"--model.{name}" for name in names if name not in given]:
        raise ActlabError(
            f"the checkpoint does not record arguments that a script gave as objects: give {', '.join(unset)}"
        )
    values = {**(recorded.get("init_args") or {}), **{name: given[name] for name in names}}
    path = recorded.get("class_path") or class_of(model)
    return {**trained, "model": {"class_path": path, "init_args": values}}


def with_digests(recorded: Mapping[str, Any], known: dict[str, str | None] | None = None) -> dict[str, Any]:
    """Return a record with the digests of the files and code that its model and data name."""
    named = {key: recorded[key] for key in SECTIONS if key in recorded}
    return {**recorded, SOURCES: identity.sources_of(named, known)}


def changed_code(recorded: Mapping[str, Any]) -> list[str]:
    """Return the names of code in a record's model and data that was edited or removed after training."""
    return _changed(recorded, [recorded["model"], recorded.get("data", {}).get("class_path")], of_data=False)


def changed_files(recorded: Mapping[str, Any], used: Mapping[str, Any]) -> list[str]:
    """Return the files and folders of a record's data that have changed and that ``used`` names too."""
    return _changed(recorded, used["data"]["init_args"], of_data=True)


def _changed(recorded: Mapping[str, Any], named: Any, of_data: bool) -> list[str]:
    kept = recorded.get(SOURCES) or {}
    texts = dict.fromkeys(text for text in contents.texts(named) if text in kept)
    return [text for text in texts if contents.content_of(text, of_data) != kept[text]]
