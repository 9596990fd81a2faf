"""Conditions of measured values: ``noise=0.5,layer=3`` means under noise of 0.5, in layer 3."""

from __future__ import annotations

import math
from collections.abc import Iterable

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

    >>> along(["noise=1,layer=2", "noise=0.5,layer=2", "noise=0.5,layer=3"], "noise", "layer=2")
    {0.5: 'noise=0.5,layer=2', 1.0: 'noise=1,layer=2'}
    """
    parsed = {condition: parse(condition) for condition in conditions}
    with_key = {condition: parts for condition, parts in parsed.items() if key in parts}
    if not with_key:
        keys = {key for parts in parsed.values() for key in parts}
        raise unknown(
            "key of conditions",
            key,
            {"epoch", "seconds", *keys},
            "An axis shows epochs, seconds, or one of these keys.",
        )
    wanted = parse(others)
    fitting = {c: parts for c, parts in with_key.items() if _without(key, parts) == wanted}
    if not fitting:
        rests = {",".join(f"{k}={v}" for k, v in _without(key, parts).items()) for parts in with_key.values()}
        raise _no_match(key, others, rests)
    places: dict[float, str] = {}
    for condition, parts in fitting.items():
        place = _number(key, parts[key], condition)
        if place in places:
            raise ActlabError(f"conditions {places[place]!r} and {condition!r} have the same number on an axis")
        places[place] = condition
    return dict(sorted(places.items()))


def _without(key: str, parts: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in parts.items() if k != key}


def _no_match(key: str, others: str, rests: Iterable[str]) -> ActlabError:
    """Return the error for ``others`` that no condition with the key has; ``rests`` are the existing ones."""
    allowed = [rest for rest in rests if rest]
    if others and allowed:
        return unknown(f"condition beside {key}", others, allowed)
    if others:
        return ActlabError(f"condition {others!r}: {key} was measured without further conditions; leave it out")
    return ActlabError(
        f"{key} was measured under further conditions; choose one by 'condition': {', '.join(sorted(allowed))}"
    )


def _number(key: str, text: str, condition: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ActlabError(
            f"condition {condition!r}: {text!r} is not a number, and an axis shows only numbers; "
            f"show it in a table column, or use numbers for {key}"
        )
    return number
