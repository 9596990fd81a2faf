"""Conditions of measured values: ``noise=0.5,layer=3`` means under noise of 0.5, in layer 3."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

from actlab.errors import ActlabError, unknown


def parse(condition: str) -> dict[str, str]:
    """Return the parts of a condition as text, by key."""
    parts = [part.partition("=") for part in condition.split(",") if condition]
    for key, equals, value in parts:
        if not (key.strip() and equals and value.strip()):
            raise ActlabError(
                f"condition {condition!r}: write key=value, such as noise=0.5; several are joined by a comma"
            )
    return {key.strip(): value.strip() for key, _, value in parts}


def along(conditions: Iterable[str], key: str, others: str = "") -> dict[float, str]:
    """Return the conditions that have a number under ``key``, by this number in ascending order.

    ``others`` are exactly the other parts that a condition must have, such as ``layer=3``.
    """
    parsed = {condition: parse(condition) for condition in conditions}
    with_key = {condition: parts for condition, parts in parsed.items() if key in parts}
    if not with_key:
        known = {"epoch", "seconds", *(key for parts in parsed.values() for key in parts)}
        remedy = "An axis shows epochs, seconds, or one of these keys."
        raise unknown("key of conditions", key, known, remedy)
    wanted, rests = parse(others), set()
    places: dict[float, str] = {}
    for condition, parts in with_key.items():
        number = parts.pop(key)
        rests.add(",".join(f"{k}={v}" for k, v in parts.items()))
        if parts == wanted:
            place = _number(key, number, condition)
            if place in places:
                both = f"{places[place]!r} and {condition!r}"
                raise ActlabError(f"conditions {both} have the same number on an axis")
            places[place] = condition
    if places:
        return dict(sorted(places.items()))
    allowed = sorted(filter(None, rests))
    remedy = "Choose one by 'condition'." if allowed else "Leave 'condition' out."
    raise unknown(f"condition beside {key}", others, allowed, remedy)


def _number(key: str, text: str, condition: str) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise ActlabError(
        f"condition {condition!r}: {text!r} is not a number, and an axis shows only numbers; "
        f"show it in a table column, or use numbers for {key}"
    )
