"""The verdict of a study: one sentence for each activation and test quantity, compared with the reference.

A verdict of better or worse needs p < 0.05 after Holm's correction over all comparisons that the table plans,
and after the correction for earlier looks at an extended study (`actlab.analysis.looks`). A verdict of
equivalent needs a margin, which the study file fixes before the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from actlab.analysis import comparison
from actlab.analysis.columns import Column, place
from actlab.analysis.comparison import Cell, TableRow
from actlab.analysis.looks import factor
from actlab.analysis.points import plural, short_names
from actlab.analysis.power import MOST_PAIRS, detectable, pairs_to_detect
from actlab.analysis.results import Results
from actlab.analysis.statistics import LEVEL, p_text, pairs_needed

Outcome = Literal["better", "worse", "equivalent", "undecided", "diverged", "too few pairs"]
_LISTED = 8  # most differences listed before there is a verdict
SMOKE = "Smoke runs decide nothing: they make a few updates on samples."


@dataclass(frozen=True)
class Verdict:
    """How one activation differs from the reference in one test quantity."""

    name: str  # the activation, with whatever else the table distinguishes
    column: Column
    outcome: Outcome  # ``too few pairs`` for any p below 0.05, ``diverged`` without a mean difference
    text: str  # one sentence; with too few pairs only the mean difference so far
    pairs: int  # number of paired runs


def verdicts(results: Results) -> list[Verdict]:
    """Return the verdicts of a study in the order of its table; none for smoke runs or without a reference."""
    if results.study.smoke:
        return []
    found, strict = [], comparison.strictness(results)
    for row, cell in _tested(results):
        what = outcome(cell, strict)
        text = _sentence(results, cell, what, strict)
        if what != "too few pairs":
            text = f"{_name(results, row)}: {text}"
        last = [cell for cell in row.cells if cell.planned and cell.column.tests][-1]
        if what not in ("too few pairs", "diverged") and cell is last:
            text += _cost(results, row)
        found.append(Verdict(_name(results, row), cell.column, what, text, cell.paired.pairs))
    return found


def outcome(cell: Cell, strictness: int) -> Outcome:
    """Return the verdict on a planned comparison; ``strictness`` is `comparison.strictness` of the table."""
    if cell.paired.pairs < pairs_needed(strictness):
        return "too few pairs"
    if cell.paired.mean is None or cell.p_holm is None:
        return "diverged"
    if cell.p_holm < LEVEL:
        return "better" if (cell.paired.mean < 0) == (cell.column.mode == "min") else "worse"
    return "equivalent" if cell.p_equivalent is not None and cell.p_equivalent < LEVEL else "undecided"


def needs(results: Results, size: float) -> list[str]:
    """Return how many pairs show a difference four times in five, for each quantity with two pairs or more.

    ``size`` of the difference is in points where the column is in percent, else in its unit.
    """
    strict, reference = comparison.strictness(results), comparison.reference_text(results)
    found = []
    for row, cell in _tested(results):
        column, differences = cell.column, [d for d in cell.differences if math.isfinite(d)]
        if len(differences) < 2 or not (spread := float(np.std(differences, ddof=1))):
            continue
        wanted = size / 100 if column.in_percent else size
        pairs = pairs_to_detect(wanted / spread, strict)
        number = f"about {pairs} seeds" if pairs else f"more than {MOST_PAIRS} seeds"
        found.append(
            f"{_name(results, row)}, {_quantity(column)}: a difference of {_size(wanted, column)} to "
            f"{reference} takes {number} (standard deviation {_size(spread, column)}, "
            f"{plural(len(differences), 'pair')} so far, {corrections(results)})"
        )
    return found


def lines(results: Results) -> list[str]:
    """Return the sentences below a table: the verdicts, with those that lack pairs in one sentence."""
    if results.study.smoke:
        return [SMOKE]
    found = verdicts(results)
    said = [one.text for one in found if one.outcome != "too few pairs"]
    if said and results.looks:
        said.append(
            f"The study was extended after {plural(results.looks, 'verdict')}, by seeds or by trials of a "
            "search. Extending it until a difference is significant finds one too often, so p-values are "
            f"multiplied by {factor(results.looks)}."
        )
    if lacking := [one for one in found if one.outcome == "too few pairs"]:
        said.append(_lacking(results, lacking))
    return said


def _lacking(results: Results, verdicts: list[Verdict]) -> str:
    needed = pairs_needed(comparison.strictness(results))
    pairs = sorted({one.pairs for one in verdicts})
    number = plural(pairs[0], "pair") if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]} pairs"
    begun = [one for one in verdicts if one.pairs]
    so_far = "; ".join(f"{one.name}: {one.text}" for one in begun) if 0 < len(begun) <= _LISTED else ""
    remedy = results.study.more_seeds.format(needed)
    return (
        f"No verdict against {comparison.reference_text(results)} from {number} of runs. With "
        f"{corrections(results)} in this table, fewer than {needed} pairs cannot reach p < 0.05"
        + (f"; {remedy} trains the missing runs." if remedy else ".")
        + (f" So far {so_far}." if so_far else "")
    )


def _tested(results: Results) -> Iterator[tuple[TableRow, Cell]]:
    for row in comparison.rows(results):
        for cell in row.cells:
            if cell.planned and cell.column.tests:
                yield row, cell


def corrections(results: Results) -> str:
    """Return what p-values are corrected for: ``3 comparisons``, ``3 comparisons and 2 looks``."""
    count = plural(comparison.hypotheses(results), "comparison")
    return f"{count} and {results.looks + 1} looks" if results.looks else count


def _name(results: Results, row: TableRow) -> str:
    """Return the compared value, and beside it the other keys of the grid point."""
    names = short_names(list(row.point))
    compare = results.study.compare
    others = [f"{names[k]} {results.text(k, v)}" for k, v in row.point.items() if k != compare]
    name = results.text(compare, row.point[compare]) if compare in row.point else "the group"
    return f"{name} ({', '.join(others)})" if others else name


def _cost(results: Results, row: TableRow) -> str:
    """Return the relative time with its spread; empty if there is no spread, as in costs of a single round."""
    cost = row.cost or {}
    if len(parts := cost.get("relative_in_parts", ())) < 2:
        return ""
    ratio = f"{cost['relative_to_reference']:.2f} ({min(parts):.2f} to {max(parts):.2f})"
    return f" An update takes {ratio} times the time of {comparison.reference_text(results)}."


def _sentence(results: Results, cell: Cell, verdict: Outcome, strictness: int) -> str:
    column, paired, reference = cell.column, cell.paired, comparison.reference_text(results)
    what, pairs = _quantity(column), plural(paired.pairs, "pair")
    if verdict == "too few pairs":
        return what if paired.mean is None else f"{_signed(paired.mean, column)} {what}"
    if paired.mean is None or paired.low is None or paired.high is None or cell.p_holm is None:
        infinite = [d for d in cell.differences if math.isinf(d)]
        worse = sum((d > 0) == (column.mode == "min") for d in infinite)
        return (
            f"no verdict on {what} against {reference}: of {pairs}, {worse} diverged on this side only and "
            f"{len(infinite) - worse} on the reference's side only, so there is no mean difference."
        )
    corrected = "Holm's correction" + (f" and for {results.looks + 1} looks" if results.looks else "")
    tested = f"{pairs}; p = {p_text(cell.p_holm)} after {corrected}"
    if verdict in ("better", "worse"):
        low, high = sorted(map(abs, (paired.low, paired.high)))
        return (
            f"{verdict}, {_size(paired.mean, column)} {'lower' if paired.mean < 0 else 'higher'} {what} than "
            f"{reference} (uncorrected 95 % interval {column.text(low)} to {column.text(high)}; {tested})."
        )
    span = f"uncorrected 95 % interval {_signed(paired.low, column, False)} to {_signed(paired.high, column)}"
    if verdict == "equivalent" and cell.margin is not None and cell.p_equivalent is not None:
        return (
            f"equivalent to {reference} within {_size(cell.margin, column)} in {what} ({span}; {pairs}; two "
            f"one-sided tests, p = {p_text(cell.p_equivalent)} after {corrected})."
        )
    return f"no significant difference to {reference} in {what} ({span}; {tested}).{_outlook(cell, strictness)}"


def _outlook(cell: Cell, strictness: int) -> str:
    """Return which difference these pairs would show, and how many pairs a smaller one needs."""
    number, spread = len(cell.differences), float(np.std(cell.differences, ddof=1))
    effect = detectable(number, strictness)
    if not spread or effect is None:
        return ""
    shown = effect * spread
    wanted = cell.margin if cell.margin is not None and cell.margin < shown else shown / 2
    pairs = pairs_to_detect(wanted / spread, strictness)
    more = f"; {_size(wanted, cell.column)} would take about {pairs} pairs" if pairs else ""
    return f" {number} pairs show a difference of {_size(shown, cell.column)} four times in five{more}."


def _quantity(column: Column) -> str:
    """Return the quantity in words: ``test error``, ``noise test error (noise=1)``."""
    name = column.metric.replace("/", " ").replace("_", " ")
    where = ", ".join(filter(None, (column.condition, "" if column.at == "last" else place(column.at))))
    return f"{name} ({where})" if where else name


def _size(value: float, column: Column) -> str:
    """Return the size of a difference with its unit: ``0.31 points``, ``2.0 epochs``, ``0.00104``."""
    unit = " points" if column.in_percent else " epochs" if column.is_epoch else ""
    return column.text(abs(value)) + unit


def _signed(value: float, column: Column, unit: bool = True) -> str:
    return f"{'−' if value < 0 else '+'}{_size(value, column) if unit else column.text(abs(value))}"
