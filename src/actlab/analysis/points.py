"""Compare grid points, which map grid keys to values, and format them as text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from actlab.config.keys import in_full, label, same

Text = Callable[[str, Any], str]
"""Formats a value of a grid key for people."""


def matches(where: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Return whether a point has all values of ``where``, compared by `same`."""
    return all(key in point and same(point[key], value) for key, value in where.items())


def printer(values: Iterable[Any]) -> Callable[[Any], str]:
    """Return a function that formats grid values: by label, or in full if two values have the same label."""
    by_label: dict[str, set[str]] = {}
    for value in values:
        by_label.setdefault(label(value), set()).add(in_full(value))
    return lambda value: in_full(value) if len(by_label.get(label(value), ())) > 1 else label(value)


def short_names(keys: Collection[str]) -> dict[str, str]:
    """Return for each dotted key its shortest ending that no other key has."""
    listed, found = set(keys), dict[str, str]()
    for key in keys:
        parts = key.split(".")
        endings = (".".join(parts[-n:]) for n in range(1, len(parts)))
        others = [f".{other}" for other in listed if other != key]
        unique = (end for end in endings if not any(other.endswith(f".{end}") for other in others))
        found[key] = next(unique, key)
    return found


def in_words(point: Mapping[str, Any], compare: str = "", text: Text | None = None) -> str:
    """Return a grid point as text, with the compared value written without its key.

    ``text`` formats the value of a key so that values with equal labels can be distinguished.
    """
    names = short_names(point)
    texts = {key: text(key, value) if text else label(value) for key, value in point.items()}
    return ", ".join(texts[key] if key == compare else f"{names[key]} {texts[key]}" for key in point)


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
