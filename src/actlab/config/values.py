"""How one value of a config is compared, and how it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from actlab.storage.mappings import read_word
from actlab.storage.paths import at_home, resolved
from actlab.storage.spec import Spec

# file.py:Name, package.module:Name
_IMPORTABLE = re.compile(r"(?:.*\.py|[^\W\d][\w.]*):([^\W\d][\w.]*)")


def label(value: Any, full: bool = False) -> str:
    """Format a grid value for display: ``elu(alpha=0.5)``, ``MyActivation``, ``0.001``; see also `in_full`.

    >>> label({"name": "elu", "alpha": 0.5}), label("./a/b.py:Name"), label({"class_path": "a.B"}), label(0.001)
    ('elu(alpha=0.5)', 'Name', 'B', '0.001')
    """
    if isinstance(value, Spec):
        value = value.plain
    if isinstance(value, Mapping) and "class_path" in value:
        path = value["class_path"] if full else str(value["class_path"]).rpartition(".")[2]
        arguments = value.get("init_args")  # values may be unchecked
        return label({"name": path, **(arguments if isinstance(arguments, Mapping) else {})}, full)
    if isinstance(value, Mapping) and "name" in value:
        name = label(value["name"], full)
        parameters = ", ".join(
            f"{key}={label(inner, full)}" for key, inner in value.items() if key != "name"
        )
        return f"{name}({parameters})" if parameters else name
    if isinstance(value, str) and not full and (importable := _IMPORTABLE.fullmatch(value)):
        return importable[1]
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1e6:
        return str(value)
    return (
        f"{value:g}"
        if not full or (type(value) is float and float(f"{value:g}") == value)
        else str(value)
    )


def in_full(value: Any) -> str:
    """Format a grid value unambiguously: unlike `label`, with an activation's path and every digit.

    >>> in_full("./mine.py:relu"), in_full({"name": "elu", "alpha": 2.0}), in_full(1 / 3)
    ('./mine.py:relu', 'elu(alpha=2)', '0.3333333333333333')
    """
    return label(value, full=True)


def printer(values: Iterable[Any]) -> Callable[[Any], str]:
    """Return a function that formats grid values: by label, or in full if two values have the same label."""
    by_label: dict[str, set[str]] = {}
    for value in values:
        by_label.setdefault(label(value), set()).add(in_full(value))
    return lambda value: in_full(value) if len(by_label.get(label(value), ())) > 1 else label(value)


def printers(points: Iterable[Mapping[str, Any]]) -> Callable[[str, Any], str]:
    """Return a function that formats the value of a key, as `printer` does over the values of that key."""
    values: dict[str, list[Any]] = {}
    for point in points:
        for key, value in point.items():
            values.setdefault(key, []).append(value)
    by_key = {key: printer(several) for key, several in values.items()}
    return lambda key, value: by_key[key](value) if key in by_key else label(value)


def same(first: Any, second: Any) -> bool:
    """Return whether two grid values are equal by type and value; see `value_key`.

    >>> same(1, 1.0), same("0.50", 0.5), same("1.10", "1.1"), same("relu", "./mine.py:relu")
    (True, False, False, False)
    """
    return value_key(first) == value_key(second)


def value_key(value: Any) -> str:
    """Return a text that is the same for equal grid values: an integer equals its float, text only itself.

    Activations are equal if name and arguments are, however they and the path of their file are
    written.
    """
    if isinstance(value, str):
        return json.dumps(_absolute(value))
    return canonical(plain_activation(value), _comparable)


def canonical(values: Any, change: Callable[[Any], Any] | None = None) -> str:
    """Return a text that is the same for equal grid values, including nested ones, in any order of keys.

    ``change`` is applied to every other value than mappings and lists; by default `as_number`.

    >>> canonical({"b": 0, "a": {"name": "elu"}}) == canonical({"a": {"name": "elu"}, "b": 0.0})
    True
    """
    return json.dumps(mapped(values, change or as_number), sort_keys=True, default=str)


def _comparable(value: Any) -> Any:
    return _absolute(value) if isinstance(value, str) else as_number(value)


def named(text: Any, values: Iterable[Any]) -> Any:
    """Return the grid value that a text in a study file or a command names.

    A text names the value that is equal, else the first one with this text as its `in_full` text,
    else the first one that YAML reads in it. Any other value, and a text that names none, is
    returned unchanged.

    >>> named("elu(alpha=2)", ["relu", {"name": "elu", "alpha": 2}]), named("0.50", [0.0, 0.5]), named("a", [1])
    ({'name': 'elu', 'alpha': 2}, 0.5, 'a')
    """
    listed = [*values]
    if not isinstance(text, str) or any(same(text, value) for value in listed):
        return text
    full, read = located(text), read_word(text, lambda: False)
    alike = [value for value in listed if in_full(located(value)) == full]
    return next(iter([*alike, *(value for value in listed if same(value, read))]), text)


def plain_activation(value: Any) -> Any:
    """Return the name of an activation if the value is ``{name: …}`` without parameters, else the value.

    >>> plain_activation({"name": "elu"}), plain_activation({"name": "elu", "alpha": 2})
    ('elu', {'name': 'elu', 'alpha': 2})
    """
    alone = isinstance(value, Mapping) and [*value] == ["name"] and isinstance(value["name"], str)
    return value["name"] if alone else value


def is_user_defined(value: Any) -> bool:
    """Return whether an activation is one of a file, or of a package that is neither torch nor actlab.

    >>> [is_user_defined(value) for value in ("gelu", "./mine.py:Mine", {"name": "torch.nn:ELU", "alpha": 2.0})]
    [False, True, False]
    """
    name = value.get("class_path", value.get("name")) if isinstance(value, Mapping) else value
    source = Spec.of(name).source if isinstance(name, str) else ""
    return source.endswith(".py") or source.partition(".")[0] not in ("", "torch", "actlab")


def located(value: Any) -> Any:
    """Make the paths of ``file.py:Name`` absolute, also in nested values."""
    return mapped(value, _absolute)


def _absolute(value: Any) -> Any:
    file, colon, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return f"{resolved(file)}{colon}{name}" if file.endswith(".py") else value


def mapped(values: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested mappings and lists with ``change`` applied to every other value in them.

    An activation becomes its spelling in files.
    """
    if isinstance(values, Spec):
        values = values.plain
    if isinstance(values, Mapping):
        return {str(key): mapped(inner, change) for key, inner in values.items()}
    return (
        [mapped(inner, change) for inner in values]
        if isinstance(values, list | tuple)
        else change(values)
    )


def shareable(values: Any) -> Any:
    """Return nested values as plain ones for other people: of a path that is absolute only the last part."""

    def shown(value: Any) -> Any:
        if isinstance(value, int | float | None):
            return value
        if hasattr(value, "__dict__") and not callable(value):
            return shareable(vars(value))
        return Path(str(value)).name if at_home(str(value)).is_absolute() else str(value)

    return mapped(values, shown)


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value as a list with one element."""
    return list(value) if isinstance(value, list | tuple) else [value]


def as_number(value: Any) -> Any:
    """Return the float that equals an integer or a float; any other value, text too, unchanged.

    An integer that no float equals stays an integer.

    >>> as_number(3), as_number(-0.0), as_number("1e-3"), as_number(True), as_number(2**53 + 1)
    (3.0, 0.0, '1e-3', True, 9007199254740993)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        number = float(value)
    except OverflowError:
        return value
    return number + 0.0 if number == value or number != number else value
