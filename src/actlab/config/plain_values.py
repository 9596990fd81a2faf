"""Plain values, as files and checkpoints hold them, and the arguments of a call as such values."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from jsonargparse import Namespace

from actlab.storage.spec import Spec

# Types of values that `plain` returns unchanged.
_LEAVES = {
    bool,
    int,
    float,
    str,
    type(None),
}


def plain(value: Any) -> Any:
    """Convert nested values to types that YAML and ``torch.load(weights_only=True)`` read.

    Classes and functions become their import paths, other objects text.
    """
    # Objects that hold values
    if isinstance(value, Spec):
        value = value.plain
    if isinstance(value, Namespace):
        value = value.as_dict()
    if type(value) in _LEAVES:
        return value

    # Containers; most values in them are plain already, and a call for each takes time
    if isinstance(value, Mapping):
        converted = {}
        for key, item in value.items():
            if type(item) not in _LEAVES:
                item = plain(item)
            converted[str(key)] = item
        return converted
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = []
        for item in value:
            if type(item) not in _LEAVES:
                item = plain(item)
            items.append(item)
        return items
    return _plain_leaf(value)


def _plain_leaf(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name  # as the parser reads it
    if isinstance(value, float):
        return float(value)  # NumPy's, too
    if isinstance(value, int | str | None):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, text, truth value or None, or nested values of these."""
    if isinstance(value, Mapping):
        return all(
            isinstance(key, str) and is_plain(inner) for key, inner in value.items()
        )
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return isinstance(value, int | float | str | Spec | None) and not isinstance(
        value, Enum
    )


class Arguments(NamedTuple):
    """Arguments of a class.

    Attributes:
        plain: the arguments that are plain values, by name.
        objects: the names of all other arguments.
        complete: all arguments with defaults, by name; objects as text.
    """

    plain: dict[str, Any]
    objects: list[str]
    complete: dict[str, Any]


def of_call(kind: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call of a class; none for a call that its signature rejects."""
    # ``__new__`` of tasks passes everything on
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]
    try:
        call = signature.bind(None, *args, **kwargs)
    except TypeError:
        return Arguments({}, [], {})

    # Separate what was passed from the defaults
    stated = _by_name(call)
    call.apply_defaults()
    return split(stated, plain(_by_name(call)))


def _by_name(call: inspect.BoundArguments) -> dict[str, Any]:
    arguments = dict(call.arguments)
    for name, parameter in call.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(name, {}))

    del arguments[next(iter(arguments))]  # self
    return arguments


def split(
    arguments: Mapping[str, Any], complete: dict[str, Any] | None = None
) -> Arguments:
    """Separate arguments by name into plain values and objects.

    ``complete`` are the `plain` values of these arguments and of the defaults; by default there
    are no other arguments.
    """
    if complete is None:
        complete = plain(arguments)

    values, objects = {}, []
    for name, value in arguments.items():
        if type(value) in _LEAVES or is_plain(value):
            values[name] = complete[name]
        else:
            objects.append(name)
    return Arguments(values, objects, complete)
