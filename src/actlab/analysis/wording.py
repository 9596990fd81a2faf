"""Counts, lists and durations in words."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 pair``, ``3 pairs``."""
    if number != 1:
        noun += "s"
    return f"{number} {noun}"


def digits(value: float, sign: str = "") -> str:
    """Return a finite number with three significant digits: ``0.0150``, ``123``.

    Args:
        value: the number.
        sign: "+" writes the sign of a positive number, too.
    """
    return f"{value:{sign}#.3g}".rstrip(".")


def joined(*words: str) -> str:
    """Return the words that are not empty, with commas."""
    return ", ".join(filter(None, words))


def few(names: Sequence[str], most: int = 3) -> str:
    """Return some names and the number of all others: ``a, b, c and 2 more``."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text


def duration(seconds: float) -> str:
    """Return seconds in words: ``42 s``, ``5 min``, ``1 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"

    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
