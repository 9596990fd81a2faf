"""Tests of paired differences by their definitions, in a few lines: oracles for the program."""

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

TIE = 1e-9  # of sums, relative to the largest difference
HALF = 20  # differences whose sign patterns are all listed


@cache
def signs(n: int) -> Any:
    """All patterns of n signs."""
    return np.array(list(itertools.product((1.0, -1.0), repeat=n)))


def two_sided(differences: Any) -> float:
    """The share of sign patterns whose sum is as far from 0 as the observed one."""
    d = np.asarray(differences, float)
    least = abs(d.sum()) - TIE * abs(d).max()
    if d.size > HALF:  # the sums of each half, all pairs of which are counted by their order
        first, second = signs(HALF) @ d[:HALF], np.sort(signs(d.size - HALF) @ d[HALF:])
        above = second.size - np.searchsorted(second, least - first)
        return float(2 * above.sum() / 2.0**d.size)  # as many lie below
    return float((abs(signs(d.size) @ d) >= least).mean())


def below(differences: Any) -> float:
    """The share of sign patterns whose sum is at most the observed one: is the mean below 0?"""
    d = np.asarray(differences, float)
    return float((signs(d.size) @ d <= d.sum() + TIE * abs(d).max()).mean())


def within(differences: Any, margin: float) -> float:
    """The larger of two one-sided p-values: does the mean lie within the margin?"""
    d = np.asarray(differences, float)
    return max(below(d - margin), below(-d - margin))


def column_of(cell: dict[str, Any]) -> str:
    """The name in ``values.csv`` of the column of a cell of ``table.json``."""
    condition = f"[{cell['condition']}]" if cell["condition"] else ""
    return f"{cell['metric']}{condition}@{cell['at']}"


def holm(ps: Sequence[float | None], number: int | None = None) -> list[float | None]:
    """Holm's correction over a number of hypotheses: the k-th smallest p times number − k + 1."""
    number = len(ps) if number is None else number
    found: list[float | None] = [None] * len(ps)
    largest = 0.0
    for k, (p, i) in enumerate(sorted((p, i) for i, p in enumerate(ps) if p is not None)):
        largest = max(largest, min(1.0, p * (number - k)))
        found[i] = largest
    return found
