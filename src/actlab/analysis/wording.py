"""Counts, lists and durations in words."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 pair``, ``3 pairs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def digits(value: float, sign: str = "") -> str:
    """Return a finite number with three significant digits, with ``sign`` "+" signed: ``0.0150``, ``123``."""
    return f"{value:{sign}#.3g}".rstrip(".")


def joined(*words: str) -> str:
    """Return the words that are not empty, with commas."""
    return ", ".join(filter(None, words))


def few(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others: ``a, b, c and 2 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def duration(seconds: float) -> str:
    """Return seconds in words: ``42 s``, ``5 min``, ``1 h 20 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
