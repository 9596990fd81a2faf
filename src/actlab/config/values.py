"""How values of a config are compared and changed, single and nested ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from actlab.config.labels import in_full
from actlab.storage.mappings import read_word
from actlab.storage.paths import at_home, resolved
from actlab.storage.spec import Spec


def same(first: Any, second: Any) -> bool:
    """Return whether two grid values are equal by type and value; see `value_key`.

    >>> same(1, 1.0), same("0.50", 0.5), same("1.10", "1.1"), same("relu", "./mine.py:relu")
    (True, False, False, False)
    """
    return value_key(first) == value_key(second)


def value_key(value: Any) -> str:
    """Return a text that is the same for equal grid values.

    An integer equals its float, and text only itself. Activations are equal if name and arguments
    are, however they and the path of their file are written.
    """
    # Text is compared as text: "0.50" is not 0.5
    if isinstance(value, str):
        return json.dumps(_absolute(value))
    return canonical(plain_activation(value), _comparable)


def canonical(values: Any, change: Callable[[Any], Any] | None = None) -> str:
    """Return a text that is the same for equal grid values, also nested ones, in any order of keys.

    ``change`` is applied to every other value than mappings and lists; by default `as_number`.

    >>> canonical({"b": 0, "a": {"name": "elu"}}) == canonical({"a": {"name": "elu"}, "b": 0.0})
    True
    """
    return json.dumps(mapped(values, change or as_number), sort_keys=True, default=str)


def _comparable(value: Any) -> Any:
    if isinstance(value, str):
        return _absolute(value)
    return as_number(value)


def named(text: Any, values: Iterable[Any]) -> Any:
    """Return the grid value that a text in a study file or a command names.

    A text names the value that is equal, else the first one with this text as its `in_full` text,
    else the first one that YAML reads in it. Any other value, and a text that names none, is
    returned unchanged.

    >>> named("elu(alpha=2)", ["relu", {"name": "elu", "alpha": 2}])
    {'name': 'elu', 'alpha': 2}
    >>> named("0.50", [0.0, 0.5]), named("a", [1])
    (0.5, 'a')
    """
    listed = [*values]
    if not isinstance(text, str) or any(same(text, value) for value in listed):
        return text

    # First the values with this text, then the value that YAML reads in it
    full, word = located(text), read_word(text, lambda: False)
    for value in listed:
        if in_full(located(value)) == full:
            return value
    for value in listed:
        if same(value, word):
            return value
    return text


def plain_activation(value: Any) -> Any:
    """Return the name of an activation if the value is ``{name: …}`` without parameters.

    Any other value is returned unchanged.

    >>> plain_activation({"name": "elu"}), plain_activation({"name": "elu", "alpha": 2})
    ('elu', {'name': 'elu', 'alpha': 2})
    """
    if (
        isinstance(value, Mapping)
        and [*value] == ["name"]
        and isinstance(value["name"], str)
    ):
        return value["name"]
    return value


def is_user_defined(value: Any) -> bool:
    """Return whether an activation comes from a file, or from a third-party package.

    Packages other than torch and actlab are third-party.

    >>> is_user_defined("gelu"), is_user_defined("./mine.py:Mine")
    (False, True)
    >>> is_user_defined({"name": "torch.nn:ELU", "alpha": 2.0})
    False
    """
    if isinstance(value, Mapping):
        # An object or an activation with arguments
        value = value.get("class_path", value.get("name"))
    if not isinstance(value, str):
        return False

    source = Spec.of(value).source
    package = source.partition(".")[0]
    return source.endswith(".py") or package not in ("", "torch", "actlab")


def located(value: Any) -> Any:
    """Make the paths of ``file.py:Name`` absolute, also in nested values."""
    return mapped(value, _absolute)


def _absolute(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    file, colon, name = value.rpartition(":")
    if not file.endswith(".py"):
        return value
    return f"{resolved(file)}{colon}{name}"


def mapped(values: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested mappings and lists with ``change`` applied to every other value in them.

    An activation becomes its spelling in files.
    """
    if isinstance(values, Spec):
        values = values.plain
    if isinstance(values, Mapping):
        return {str(key): mapped(value, change) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [mapped(value, change) for value in values]
    return change(values)


def shareable(values: Any) -> Any:
    """Return nested values as plain ones for others: absolute paths become their last part."""
    return mapped(values, _without_folders)


def _without_folders(value: Any) -> Any:
    if isinstance(value, int | float | None):
        return value
    # An object, such as a schedule, by its attributes
    if hasattr(value, "__dict__") and not callable(value):
        return shareable(vars(value))
    text = str(value)
    # Folders are private to a machine
    if at_home(text).is_absolute():
        return Path(text).name
    return text


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value as a list with one element."""
    if isinstance(value, list | tuple):
        return list(value)
    return [value]


def as_number(value: Any) -> Any:
    """Return the float that equals an integer or a float; any other value unchanged.

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
    if number == value or math.isnan(number):
        return number + 0.0  # which turns -0.0 into 0.0
    return value
