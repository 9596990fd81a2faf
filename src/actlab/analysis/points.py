"""Grid values as text, distinguished where their labels are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from actlab.config.values import in_full, label

Text = Callable[[str, Any], str]
"""Formats a value of a grid key for people."""


def printer(values: Iterable[Any]) -> Callable[[Any], str]:
    """Return a function that formats grid values: by label, or in full if two values have the same label."""
    by_label: dict[str, set[str]] = {}
    for value in values:
        by_label.setdefault(label(value), set()).add(in_full(value))
    return lambda value: in_full(value) if len(by_label.get(label(value), ())) > 1 else label(value)


def printers(points: Iterable[Mapping[str, Any]]) -> Text:
    """Return a function that formats the values of each key as `printer` does."""
    values: dict[str, list[Any]] = {}
    for point in points:
        for key, value in point.items():
            values.setdefault(key, []).append(value)
    by_key = {key: printer(found) for key, found in values.items()}
    return lambda key, value: by_key[key](value) if key in by_key else label(value)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 pair``, ``3 pairs``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def few(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others: ``a, b, c and 2 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
