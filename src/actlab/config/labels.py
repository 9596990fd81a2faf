"""How a value of a config reads: the labels of grid values in tables, names and messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from actlab.storage.spec import Spec

# file.py:Name, package.module:Name
_IMPORTABLE = re.compile(r"(?:.*\.py|[^\W\d][\w.]*):([^\W\d][\w.]*)")


def label(value: Any, full: bool = False) -> str:
    """Format a grid value for display; see also `in_full`.

    >>> label({"name": "elu", "alpha": 0.5}), label("./a/b.py:Name"), label({"class_path": "a.B"})
    ('elu(alpha=0.5)', 'Name', 'B')
    >>> label(0.001)
    '0.001'
    """
    if isinstance(value, Spec):
        value = value.plain
    # Objects are labelled as activations are
    if isinstance(value, Mapping) and "class_path" in value:
        value = _named_object(value, full)
    if isinstance(value, Mapping) and "name" in value:
        return _label_with_arguments(value, full)

    # Text
    if isinstance(value, str):
        importable = _IMPORTABLE.fullmatch(value)
        if full or not importable:
            return value
        return importable[1]
    # Six digits would round large numbers
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or abs(value) >= 1e6
    ):
        return str(value)

    # Numbers, in full only if no digit is lost
    short = f"{value:g}"
    is_exact = type(value) is float and float(short) == value
    if full and not is_exact:
        return str(value)
    return short


def _named_object(value: Mapping[str, Any], full: bool) -> dict[str, Any]:
    """Return an object of a config as a name with arguments."""
    path = value["class_path"]
    if not full:
        path = str(path).rpartition(".")[2]
    arguments = value.get("init_args")
    if not isinstance(arguments, Mapping):  # values may be unchecked
        arguments = {}
    return {"name": path, **arguments}


def _label_with_arguments(value: Mapping[str, Any], full: bool) -> str:
    name = label(value["name"], full)
    arguments = []
    for key, argument in value.items():
        if key != "name":
            arguments.append(f"{key}={label(argument, full)}")
    if not arguments:
        return name
    return f"{name}({', '.join(arguments)})"


def in_full(value: Any) -> str:
    """Format a grid value unambiguously: unlike `label`, with an activation's path and every digit.

    >>> in_full("./mine.py:relu"), in_full({"name": "elu", "alpha": 2.0}), in_full(1 / 3)
    ('./mine.py:relu', 'elu(alpha=2)', '0.3333333333333333')
    """
    return label(value, full=True)


def printer(values: Iterable[Any]) -> Callable[[Any], str]:
    """Return a function that formats grid values.

    It writes labels, and in full the values whose label another value has, too.
    """
    texts_by_label: dict[str, set[str]] = {}
    for value in values:
        # Values that differ only in spelling have one full text
        texts = texts_by_label.setdefault(label(value), set())
        texts.add(in_full(value))

    def write(value: Any) -> str:
        short = label(value)
        if len(texts_by_label.get(short, ())) > 1:
            return in_full(value)
        return short

    return write


def printers(points: Iterable[Mapping[str, Any]]) -> Callable[[str, Any], str]:
    """Return a function that formats the value of a key, as `printer` does over its values."""
    values: dict[str, list[Any]] = {}
    for point in points:
        for key, value in point.items():
            values.setdefault(key, []).append(value)
    printer_by_key = {key: printer(listed) for key, listed in values.items()}

    def write(key: str, value: Any) -> str:
        write_value = printer_by_key.get(key, label)
        return write_value(value)

    return write
