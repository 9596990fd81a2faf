"""The verdict of a study: one sentence for each activation and test quantity, compared with the reference.

A verdict of better or worse needs p < 0.05 after Holm's correction over the comparisons of its family, the
primary ones or the secondary ones, and after the correction for earlier looks at an extended study
(`actlab.analysis.looks`). The p-value is that of the mean difference; where a run of either side diverged there
is no mean, and it is that of the probability of being better, in which a diverged run loses against all others.
A verdict of equivalent needs a margin, which the study file states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from actlab.analysis import comparison
from actlab.analysis.columns import Column, place
from actlab.analysis.comparison import Cell, Family, TableRow
from actlab.analysis.looks import DECIDED, factor
from actlab.analysis.points import few, plural
from actlab.analysis.power import MOST_PAIRS, detectable, pairs_to_detect
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, LEVEL, p_text, pairs_needed
from actlab.config.keys import short_names

Outcome = Literal["better", "worse", "equivalent", "undecided", "too few pairs", "unfinished"]
_LISTED = 8  # most differences listed before there is a verdict
SMOKE = "Smoke runs decide nothing: they make a few updates on samples."


@dataclass(frozen=True)
class Verdict:
    """How one activation differs from the reference in one test quantity; printed, it is its sentence."""

    name: str  # the activation, with whatever else the table distinguishes
    outcome: Outcome  # ``too few pairs`` for any p below 0.05, ``unfinished`` while planned runs are missing
    text: str  # one sentence
    cell: Cell  # with interval, probability, raw and corrected p
    so_far: str = ""  # the mean difference so far where there is no verdict

    @property
    def column(self) -> Column:
        """The compared quantity."""
        return self.cell.column

    @property
    def pairs(self) -> int:
        """The number of paired runs."""
        return self.cell.difference.pairs

    @property
    def family(self) -> Family:
        """The comparisons with which it was corrected."""
        return self.cell.family

    def __str__(self) -> str:
        return self.text


def verdicts(results: Results) -> list[Verdict]:
    """Return the verdicts of a study, primary ones first; none for smoke runs or without a reference."""
    if results.study.smoke:
        return []
    found = []
    for row, cell in _tested(results):
        what, name, so_far = _outcome(results, cell), _name(results, row), ""
        if what in DECIDED:
            text = f"{name}: {_sentence(results, cell, what)}"
            last = [other for other in row.cells if other.family and other.column.tests][-1]
            text += _outlook(results, cell) * (what == "undecided") + _cost(results, row) * (cell is last)
        else:
            mean, quantity = cell.difference.mean, _quantity(cell.column)
            so_far = quantity if mean is None else f"{_signed(mean, cell.column)} {quantity}"
            why = "planned runs are missing" if what == "unfinished" else "too few pairs"
            done = f", so far {so_far} in {plural(cell.difference.pairs, 'pair')}" if mean is not None else ""
            reference = comparison.reference_text(results)
            text = f"{name}: no verdict against {reference} in {quantity}, {why}{done}."
        found.append(Verdict(name, what, text, cell, so_far))
    return sorted(found, key=lambda one: one.family != "primary")


def outcome(cell: Cell, strictness: int) -> Outcome:
    """Return the verdict on a comparison; ``strictness`` is `comparison.strictness` of its family."""
    if cell.missing:
        return "unfinished"
    pairs = cell.difference.pairs
    enough = FEWEST if cell.by_probability else pairs_needed(strictness)
    if pairs < enough or cell.p_holm is None:
        return "too few pairs"
    if cell.p_holm < LEVEL:
        return "better" if _is_better(cell) else "worse"
    matches = cell.p_equivalent_holm is not None and cell.p_equivalent_holm < LEVEL
    return "equivalent" if matches else "undecided"


def _outcome(results: Results, cell: Cell) -> Outcome:
    return outcome(cell, comparison.strictness(results, cell.family))


def _is_better(cell: Cell) -> bool:
    """Return the direction of the quantity that decides."""
    if cell.by_probability or cell.difference.mean is None:
        return cell.better is not None and cell.better.probability > 0.5
    return (cell.difference.mean < 0) == (cell.column.mode == "min")


def needs(results: Results, size: float) -> list[str]:
    """Return how many pairs show a difference four times in five, for each quantity with two pairs or more.

    ``size`` of the difference is in points where the column is in percent, else in its unit.
    """
    found = []
    for row, cell in _tested(results):
        if not cell.difference.sd:
            continue
        wanted = size / 100 if cell.column.in_percent else size
        number = _pairs_for(results, cell, wanted / cell.difference.sd)
        seeds = f"about {number} seeds" if number <= MOST_PAIRS else f"more than {MOST_PAIRS} seeds"
        found.append(
            f"{_name(results, row)}, {_quantity(cell.column)}: a difference of {_size(wanted, cell.column)} to "
            f"{comparison.reference_text(results)} takes {seeds} (standard deviation "
            f"{_size(cell.difference.sd, cell.column)}, {plural(cell.difference.pairs, 'pair')} so far, "
            f"{corrections(results, cell.family, _more_looks(results))})"
        )
    return found


def advised(results: Results) -> int | None:
    """Return how many seeds show each primary margin four times in five; None without margin or spread."""
    primary = (cell for _, cell in _tested(results) if cell.family == "primary")
    effects = [cell.margin / cell.difference.sd for cell in primary if cell.margin and cell.difference.sd]
    strict = comparison.strictness(results, "primary", _more_looks(results))
    return pairs_to_detect(min(effects), strict) if effects else None


def _pairs_for(results: Results, cell: Cell, effect: float) -> int:
    """Return how many pairs show an effect four times in five; above `MOST_PAIRS` for any larger number."""
    strict = comparison.strictness(results, cell.family, _more_looks(results))  # more seeds cost a look
    return pairs_to_detect(effect, strict) or MOST_PAIRS + 1


@lru_cache(maxsize=4)  # every piece of advice asks
def _more_looks(results: Results) -> int:
    """Return 1 if a verdict has been shown, which makes more seeds another look, else 0."""
    return int(any(_outcome(results, cell) in DECIDED for _, cell in _tested(results)))


def lines(results: Results) -> list[str]:
    """Return the sentences below a table: the verdicts, with those that lack runs in one sentence."""
    if results.study.smoke:
        return [SMOKE]
    found = verdicts(results)
    mark = {"secondary": "Secondary: "} if any(one.family == "primary" for one in found) else {}
    said = [mark.get(one.family, "") + one.text for one in found if one.outcome in DECIDED]
    if said and results.looks:
        said.append(
            f"The study was extended after {plural(results.looks, 'verdict')}, by seeds or by trials of a "
            "search, or cut short. Extending it until a difference is significant finds one too often, so "
            f"p-values are multiplied by {factor(results.looks)}."
        )
    if unfinished := [one for one in found if one.outcome == "unfinished"]:
        said.append(_unfinished(results, unfinished))
    if lacking := [one for one in found if one.outcome == "too few pairs"]:
        said.append(_lacking(results, lacking))
    return said


def _unfinished(results: Results, found: list[Verdict]) -> str:
    text = (
        f"No verdict yet against {comparison.reference_text(results)} on {plural(len(found), 'comparison')}: a "
        "comparison is judged when all planned runs of both sides have ended"
    )
    if not results.failures:
        return f"{text}."
    own = any(run.id in results.failures for run in results.runs)  # not of earlier stages
    text += f", and {few(list(results.failures))} failed. Repair what failed and repeat the command"
    return f"{text}; or give --seeds without these, which counts as a look." if own else f"{text}."


def _lacking(results: Results, verdicts: list[Verdict]) -> str:
    pairs = sorted({one.pairs for one in verdicts})
    number = plural(pairs[0], "pair") if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]} pairs"
    begun = [one for one in verdicts if one.pairs]
    so_far = "; ".join(f"{one.name}: {one.so_far}" for one in begun) if 0 < len(begun) <= _LISTED else ""
    family: Family = "primary" if any(one.family == "primary" for one in verdicts) else "secondary"
    text = (
        f"No verdict against {comparison.reference_text(results)} from {number} of runs: with "
        f"{corrections(results, family)}, so few cannot reach p < 0.05."
    )
    if seeds := advised(results):
        margins = {_size(one.cell.margin, one.column) for one in verdicts if one.cell.margin}
        what = f"the margin of {margins.pop()}" if len(margins) == 1 else "the margins"
        remedy = results.study.more_seeds.format(seeds)
        text += f" {plural(seeds, 'seed')} show {what} four times in five" + (f": {remedy}." if remedy else ".")
    elif any(one.cell.difference.sd for one in verdicts):
        text += " `actlab study plan --detect SIZE` says how many seeds a difference takes."
    return text + (f" So far {so_far}." if so_far else "")


def _tested(results: Results) -> Iterator[tuple[TableRow, Cell]]:
    for row in comparison.rows(results):
        for cell in row.cells:
            if cell.family and cell.column.tests:
                yield row, cell


def corrections(results: Results, family: Family = "primary", more: int = 0, margin: bool = False) -> str:
    """Return what p-values are corrected for: ``3 comparisons``, ``3 comparisons and 2 looks``."""
    count = plural(max(1, comparison.hypotheses(results, family, margin)), "comparison")
    looks = results.looks + more
    return f"{count} and {looks + 1} looks" if looks else count


def _name(results: Results, row: TableRow) -> str:
    names = short_names(list(row.point))
    compare = results.study.compare
    others = [f"{names[k]} {results.text(k, v)}" for k, v in row.point.items() if k != compare]
    name = results.text(compare, row.point[compare]) if compare in row.point else "the group"
    return f"{name} ({', '.join(others)})" if others else name


def _cost(results: Results, row: TableRow) -> str:
    cost = row.cost or {}
    if len(parts := cost.get("relative_in_parts", ())) < 2:  # costs of a single round have no spread
        return ""
    ratio = f"{cost['relative_to_reference']:.2f} ({min(parts):.2f} to {max(parts):.2f})"
    return f" An update takes {ratio} times the time of {comparison.reference_text(results)}."


def _sentence(results: Results, cell: Cell, verdict: Outcome) -> str:
    column, paired, reference = cell.column, cell.difference, comparison.reference_text(results)
    what = f"{_quantity(column)}{' on this test set' if cell.samples else ''}"
    won = f"probability of being better {cell.better.text}" if cell.better and cell.better.text else ""
    said = [*_found(results, cell, verdict), won, plural(paired.pairs, "pair")]
    details = f"({'; '.join(filter(None, said))})"
    if cell.by_probability:
        word = {"better": "better", "worse": "worse"}.get(verdict, "no significant difference")
        text = f"{word}{' to' if verdict == 'undecided' else ' than'} {reference} in {what} {details}."
    elif verdict in ("better", "worse") and paired.mean is not None:
        side = "lower" if paired.mean < 0 else "higher"
        inside = cell.margin is not None and abs(paired.mean) < cell.margin
        within = f", less than the margin of {_size(cell.margin, column)}" if inside and cell.margin else ""
        text = f"{verdict}, {_size(paired.mean, column)} {side} {what} than {reference}{within} {details}."
    elif verdict == "equivalent" and cell.margin is not None:
        text = f"equivalent to {reference} within {_size(cell.margin, column)} in {what} {details}."
    else:
        text = f"no significant difference to {reference} in {what} {details}."
    return text + _disagreement(cell) + _chance(cell, reference)


def _found(results: Results, cell: Cell, verdict: Outcome) -> list[str]:
    column, paired, reference = cell.column, cell.difference, comparison.reference_text(results)
    if cell.by_probability:
        infinite = [d for d in cell.differences if math.isinf(d)]
        worse = sum((d > 0) == (column.mode == "min") for d in infinite)
        return [
            f"of {plural(paired.pairs, 'pair')}, {worse} diverged on this side only and "
            f"{len(infinite) - worse} on the side of {reference} only",
            _p(results, cell, cell.p, cell.p_holm),
        ]
    if paired.mean is None or paired.low is None or paired.high is None:
        return []
    low, high = paired.low, paired.high
    if verdict in ("better", "worse") and low * high > 0:
        ends = [column.text(end) for end in sorted(map(abs, (low, high)))]
    else:
        ends = [_signed(low, column, False), _signed(high, column)]
    tested = _p(results, cell, cell.p, cell.p_holm)
    if verdict == "equivalent":
        of_margin = _p(results, cell, cell.p_equivalent, cell.p_equivalent_holm, margin=True)
        tested = f"two one-sided tests at 5 %, {of_margin}"
    return [f"95 % interval {ends[0]} to {ends[1]}", tested]


def _p(results: Results, cell: Cell, raw: float | None, corrected: float | None, margin: bool = False) -> str:
    if raw is None or corrected is None:
        return ""
    many = comparison.hypotheses(results, cell.family, margin) > 1 or results.looks
    after = f"after Holm's correction for {corrections(results, cell.family, margin=margin)}"
    return f"p = {p_text(raw)} alone, {p_text(corrected)} {after}" if many else f"p = {p_text(raw)}"


def _disagreement(cell: Cell) -> str:
    paired, won = cell.difference, cell.better
    if cell.by_probability and won is not None and won.low is not None and won.high is not None:
        apart = (won.p or 1.0) < LEVEL and won.low <= 0.5 <= won.high
        return " The interval of the probability is approximate, and wider than the test." * apart
    if cell.by_probability or won is None or paired.mean is None or paired.p is None or won.p is None:
        return ""
    good = -paired.mean if cell.column.mode == "min" else paired.mean
    if good * (won.probability - 0.5) < 0 and min(paired.p, won.p) < LEVEL:
        mean, most = ("better", "loses") if good > 0 else ("worse", "wins")
        return f" By the mean it is {mean}, but it {most} most pairs."
    if (paired.p < LEVEL) != (won.p < LEVEL):
        ps = f"p = {p_text(paired.p)} for the mean difference, {p_text(won.p)} for the probability"
        return f" The two quantities disagree before correction: {ps}."
    return ""


def _chance(cell: Cell, reference: str) -> str:
    if cell.at_chance:
        return f" Both it and {reference} are at chance." if cell.reference_at_chance else " It is at chance."
    return f" {reference} is at chance." if cell.reference_at_chance else ""


def _outlook(results: Results, cell: Cell) -> str:
    spread, number = cell.difference.sd, cell.difference.pairs
    effect = detectable(number, comparison.strictness(results, cell.family))
    if not spread or effect is None:
        return ""
    text = f" {number} pairs show a difference of {_size(effect * spread, cell.column)} four times in five"
    if not cell.margin or cell.margin >= effect * spread:
        return f"{text}."
    needed = _pairs_for(results, cell, cell.margin / spread)
    many = f"about {needed}" if needed <= MOST_PAIRS else f"more than {MOST_PAIRS}"
    return f"{text}; one of the margin, {_size(cell.margin, cell.column)}, takes {many}, as a further look."


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
