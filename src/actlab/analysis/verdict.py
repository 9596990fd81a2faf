"""The verdict of a study: one sentence for each activation and test quantity, compared with the reference.

A verdict of better or worse needs p < 0.05 after Holm's correction over all comparisons that the table plans. A
verdict of equivalent needs a margin, which the study file fixes before the runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from actlab.analysis import comparison
from actlab.analysis.columns import Column, place
from actlab.analysis.comparison import Cell, TableRow
from actlab.analysis.points import short_names
from actlab.analysis.power import LEVEL, MOST_PAIRS, detectable, pairs_to_detect
from actlab.analysis.results import Results
from actlab.analysis.statistics import pairs_needed

Outcome = Literal["better", "worse", "equivalent", "undecided", "diverged", "too few pairs"]
_LISTED = 8  # most differences listed before there is a verdict
SMOKE = "Smoke runs decide nothing: they make a few updates on samples."


@dataclass(frozen=True)
class Verdict:
    """How one activation differs from the reference in one test quantity.

    Args:
        name: the activation, with whatever else the table distinguishes.
        column: the quantity.
        outcome: ``too few pairs`` where no p-value below 0.05 is possible yet, ``diverged`` where the mean
            difference does not exist.
        text: one sentence for people; with too few pairs only the mean difference so far.
        pairs: number of paired runs.
    """

    name: str
    column: Column
    outcome: Outcome
    text: str
    pairs: int


def verdicts(results: Results) -> list[Verdict]:
    """Return the verdicts of a study in the order of its table; none for smoke runs or without a reference.

    Raises:
        ActlabError: as `comparison.rows`.
    """
    if results.study.smoke:
        return []
    rows = comparison.rows(results)
    count, reference = comparison.hypotheses(rows), comparison.reference_text(results)
    found = []
    for row in rows:
        tested = [
            c for c in row.cells if c.planned and c.column.ranked and "test" in c.column.metric.split("/")
        ]
        found += [_verdict(_name(results, row), cell, reference, count) for cell in tested]
        ratio = (row.cost or {}).get("relative_to_reference")
        if tested and ratio and found[-1].outcome not in ("diverged", "too few pairs"):
            cost = f" An update takes {ratio:.2f} times the time of {reference}."
            found[-1] = replace(found[-1], text=found[-1].text + cost)
    return found


def needs(results: Results, size: float) -> list[str]:
    """Return how many pairs show a difference four times in five, for each quantity with two pairs or more.

    Args:
        results: finished runs, whose paired differences give the spread.
        size: of the difference, above 0; in points where the column is in percent, else in its unit.
    """
    rows = comparison.rows(results)
    count, reference = comparison.hypotheses(rows), comparison.reference_text(results)
    found = []
    for row in rows:
        for cell in (c for c in row.cells if c.planned and _is_ranked_test(c.column)):
            differences = [d for d in cell.differences if math.isfinite(d)]
            if len(differences) < 2 or not (spread := float(np.std(differences, ddof=1))):
                continue
            wanted = size / 100 if cell.column.in_percent else size
            pairs = pairs_to_detect(wanted / spread, count)
            number = f"about {pairs} seeds" if pairs else f"more than {MOST_PAIRS} seeds"
            so_far = f"{_plural(len(differences), 'pair')} so far, {_plural(count, 'comparison')}"
            spread_text, wanted_text = _size(spread, cell.column), _size(wanted, cell.column)
            found.append(
                f"{_name(results, row)}, {_quantity(cell.column)}: a difference of {wanted_text} to "
                f"{reference} takes {number} (standard deviation {spread_text}, {so_far})"
            )
    return found


def _is_ranked_test(column: Column) -> bool:
    return column.ranked and "test" in column.metric.split("/")


def lines(results: Results) -> list[str]:
    """Return the sentences below a table: the verdicts, with those that lack pairs in one sentence."""
    if results.study.smoke:
        return [SMOKE]
    found = verdicts(results)
    lacking = [one for one in found if one.outcome == "too few pairs"]
    said = [one.text for one in found if one.outcome != "too few pairs"]
    if not lacking:
        return said
    count = comparison.hypotheses(comparison.rows(results))
    needed = pairs_needed(count, LEVEL)
    pairs = sorted({one.pairs for one in lacking})
    number = _plural(pairs[0], "pair") if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]} pairs"
    begun = [one for one in lacking if one.pairs]
    so_far = "; ".join(f"{one.name}: {one.text}" for one in begun) if 0 < len(begun) <= _LISTED else ""
    return [
        *said,
        f"No verdict against {comparison.reference_text(results)} from {number} of runs. With "
        f"{_plural(count, 'comparison')} in this table, fewer than {needed} pairs cannot reach p < 0.05; "
        f"--seeds {needed} trains the missing runs." + (f" So far {so_far}." if so_far else ""),
    ]


def _name(results: Results, row: TableRow) -> str:
    """Return the compared value, and beside it the other keys of the grid point."""
    names = short_names(list(row.point))
    compare = results.study.compare
    others = [f"{names[k]} {results.text(k, v)}" for k, v in row.point.items() if k != compare]
    name = results.text(compare, row.point[compare]) if compare in row.point else "the group"
    return f"{name} ({', '.join(others)})" if others else name


def _verdict(name: str, cell: Cell, reference: str, count: int) -> Verdict:
    outcome, text = _judge(cell, reference, count)
    if outcome != "too few pairs":
        text = f"{name}: {text}"
    return Verdict(name, cell.column, outcome, text, cell.paired.pairs)


def _judge(cell: Cell, reference: str, count: int) -> tuple[Outcome, str]:
    column, paired = cell.column, cell.paired
    what, pairs = _quantity(column), _plural(paired.pairs, "pair")
    if paired.pairs < pairs_needed(count, LEVEL):
        return "too few pairs", f"{_signed(paired.mean, column)} {what}" if paired.mean is not None else what
    if paired.mean is None or paired.low is None or paired.high is None or cell.p_holm is None:
        infinite = [d for d in cell.differences if math.isinf(d)]
        worse = sum((d > 0) == (column.mode == "min") for d in infinite)
        return "diverged", (
            f"no verdict on {what} against {reference}: of {pairs}, {worse} diverged on this side only and "
            f"{len(infinite) - worse} on the reference's side only, so there is no mean difference."
        )
    tested = f"{pairs}; p = {_p(cell.p_holm)} after Holm's correction"
    if cell.p_holm < LEVEL:
        better = (paired.mean < 0) == (column.mode == "min")
        low, high = sorted(map(abs, (paired.low, paired.high)))
        span = f"{_size(low, column, False)} to {_size(high, column, False)}"
        return "better" if better else "worse", (
            f"{'better' if better else 'worse'}, {_size(paired.mean, column)} "
            f"{'lower' if paired.mean < 0 else 'higher'} {what} than {reference} "
            f"(uncorrected 95 % interval {span}; {tested})."
        )
    span = f"uncorrected 95 % interval {_signed(paired.low, column, False)} to {_signed(paired.high, column)}"
    if cell.margin is not None and cell.p_equivalent is not None and cell.p_equivalent < LEVEL:
        return "equivalent", (
            f"equivalent to {reference} within {_size(cell.margin, column)} in {what} ({span}; {pairs}; two "
            f"one-sided tests, p = {_p(cell.p_equivalent)} after Holm's correction)."
        )
    outlook = _outlook(cell, count)
    return "undecided", f"no significant difference to {reference} in {what} ({span}; {tested}).{outlook}"


def _outlook(cell: Cell, count: int) -> str:
    """Return which difference these pairs would show, and how many pairs a smaller one needs."""
    number, spread = len(cell.differences), float(np.std(cell.differences, ddof=1))
    effect = detectable(number, count)
    if not spread or effect is None:
        return ""
    shown = effect * spread
    wanted = cell.margin if cell.margin is not None and cell.margin < shown else shown / 2
    pairs = pairs_to_detect(wanted / spread, count)
    more = f"; {_size(wanted, cell.column)} would take about {pairs} pairs" if pairs else ""
    return f" {number} pairs show a difference of {_size(shown, cell.column)} four times in five{more}."


def _quantity(column: Column) -> str:
    """Return the quantity in words: ``test error``, ``noise test error (noise=1)``."""
    name = column.metric.replace("/", " ").replace("_", " ")
    where = ", ".join(filter(None, (column.condition, "" if column.at == "last" else place(column.at))))
    return f"{name} ({where})" if where else name


def _size(value: float, column: Column, unit: bool = True) -> str:
    """Return the size of a difference: ``0.31 points``, ``2.0 epochs``, ``0.00104``."""
    size = abs(value)
    if column.in_percent:
        return f"{100 * size:.2f}{' points' if unit else ''}"
    return f"{size:.1f}{' epochs' if unit else ''}" if column.is_epoch else f"{size:#.3g}".rstrip(".")


def _signed(value: float, column: Column, unit: bool = True) -> str:
    return f"{'−' if value < 0 else '+'}{_size(value, column, unit)}"


def _p(p: float) -> str:
    return f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def _plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> _plural(1, "pair"), _plural(3, "pair")
    ('1 pair', '3 pairs')
    """
    return f"{number} {noun}{'s' * (number != 1)}"
