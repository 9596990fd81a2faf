"""Conditions of measured values: ``noise=0.5,layer=3`` is under noise of 0.5, in layer 3."""

from __future__ import annotations

import math
from collections.abc import Iterable

from actlab.errors import ActlabError, unknown


def parse(condition: str) -> dict[str, str]:
    """The parts of a condition by their keys, as text.

    Raises:
        ActlabError: for a part that is not ``key=value``.

    >>> parse("noise=0.5,layer=3")
    {'noise': '0.5', 'layer': '3'}
    >>> parse("")
    {}
    """
    parts = [part.partition("=") for part in condition.split(",") if condition]
    for key, equals, value in parts:
        if not (key.strip() and equals and value.strip()):
            raise ActlabError(
                f"condition {condition!r}: write key=value, such as noise=0.5; several are joined by a comma"
            )
    return {key.strip(): value.strip() for key, _, value in parts}


def along(conditions: Iterable[str], key: str, others: str = "") -> dict[float, str]:
    """The conditions that lie along an axis, by their numbers on it, ascending.

    Args:
        conditions: under which a metric was measured.
        key: what the axis shows, such as ``noise``.
        others: the further parts that a condition must have, and no more, such as ``layer=3``.

    Raises:
        ActlabError: when no condition has the key or those other parts, when a value of the key is no number,
            or when two conditions have the same number.

    >>> along(["noise=1,layer=2", "noise=0.5,layer=2", "noise=0.5,layer=3"], "noise", "layer=2")
    {0.5: 'noise=0.5,layer=2', 1.0: 'noise=1,layer=2'}
    """
    parsed = {condition: parse(condition) for condition in conditions}
    with_key = {condition: parts for condition, parts in parsed.items() if key in parts}
    if not with_key:
        keys = {key for parts in parsed.values() for key in parts}
        raise unknown("key of conditions", key, {"epoch", *keys}, "An axis shows epochs, or one of these keys.")
    wanted = parse(others)
    fitting = {c: parts for c, parts in with_key.items() if _without(key, parts) == wanted}
    if not fitting:
        rests = {",".join(f"{k}={v}" for k, v in _without(key, parts).items()) for parts in with_key.values()}
        raise _unfit(key, others, rests)
    places: dict[float, str] = {}
    for condition, parts in fitting.items():
        place = _number(key, parts[key], condition)
        if place in places:
            raise ActlabError(f"conditions {places[place]!r} and {condition!r} are the same place of an axis")
        places[place] = condition
    return dict(sorted(places.items()))


def _without(key: str, parts: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in parts.items() if k != key}


def _unfit(key: str, others: str, rests: Iterable[str]) -> ActlabError:
    """The error when no condition with the key has just the ``others``; ``rests`` are what there is."""
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
            f"condition {condition!r}: {text!r} is no number, and an axis shows numbers only; "
            f"make a table column of it, or give {key} numbers"
        )
    return number
