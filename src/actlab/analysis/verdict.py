"""The verdicts of a study: each activation compared with the reference in each test quantity, in a sentence.

A verdict of better or worse needs p < 0.05 after Holm's correction over the comparisons of its
family, the primary ones or the secondary ones, and after the correction for earlier looks at an
extended study (`actlab.analysis.looks`). The p-value is that of the mean difference; where a run of
either side failed (it diverged, or is at chance), it is that of the probability of being better, in
which failed runs tie behind all others. A verdict of equivalent needs a margin, which the study
file states, and no failure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from actlab.analysis.columns import Column, place, ratio_text
from actlab.analysis.differences import Superiority
from actlab.analysis.looks import DECIDED, factor
from actlab.analysis.power import MOST_PAIRS, detectable, pairs_to_detect
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, LEVEL, p_text, pairs_needed
from actlab.analysis.study_table import (
    FAMILIES,
    Cell,
    Comparison,
    Correction,
    Outcome,
    Row,
    StudyTable,
)
from actlab.analysis.wording import few, plural
from actlab.studies.points import short_names

_LISTED = 8  # most differences listed before there is a verdict
SMOKE = "Smoke runs decide nothing: they make a few updates on samples."


class Case(NamedTuple):
    """An activation and the reference in one test quantity, to be judged."""

    name: str  # the activation, with whatever else the table distinguishes
    reference: str
    outcome: Outcome
    correction: Correction
    cell: Cell
    row: Row
    reference_row: Row | None

    @property
    def failed(self) -> str:
        """How many runs of both sides failed, ``failed 2 of 8 runs, 0 of relu``; empty without any."""
        mine, theirs = self.cell.failures
        if not mine + theirs:
            return ""
        how = "never reached by" if self.cell.is_epoch else "failed"
        return f"{how} {mine} of {plural(self.cell.pairs, 'run')}, {theirs} of {self.reference}"

    @property
    def so_far(self) -> str:
        """The mean difference before there is a verdict."""
        mean, by = self.cell.paired.mean, ""
        if self.cell.identical:
            by = "identical"
        elif mean is not None:
            by = self.cell.signed(mean)
        text = f"{by} {_quantity(self.cell)}".strip()
        return f"{text} ({self.failed})" if self.failed else text


def cases(table: StudyTable) -> list[Case]:
    """Return the comparisons with the reference in test quantities, in the order of the table."""
    reference = table.reference_text
    rest = {
        row.point.without([table.compare]): row
        for row in table.rows
        if table.label(row) == reference
    }
    corrections = {family: table.correction(family) for family in FAMILIES}
    found = []
    for row, cell in table.compared:
        correction = corrections[cell.family]
        judged = outcome(cell, correction.strictness())
        reference_row = rest.get(row.point.without([table.compare]))
        found.append(
            Case(_name(table, row), reference, judged, correction, cell, row, reference_row)
        )
    return found


def verdicts(table: StudyTable) -> list[Comparison]:
    """Return the verdicts of a study, primary ones first; none for smoke runs or without a reference."""
    if table.smoke:
        return []
    found, listed = [], cases(table)
    for number, case in enumerate(listed):
        cell, text = case.cell, _text(case)
        is_last = number + 1 == len(listed) or listed[number + 1].row is not case.row
        if case.outcome in DECIDED and is_last:  # said once for each activation
            text += _cost(case.row, case.reference)
        won = cell.better or Superiority()
        found.append(
            Comparison(
                case.name,
                cell.key,
                cell.family,
                case.outcome,
                text,
                cell.paired,
                won,
                case.correction,
            )
        )
    return sorted(found, key=lambda verdict: verdict.family != "primary")


def outcome(cell: Cell, strictness: int) -> Outcome:
    """Return the verdict on a comparison; ``strictness`` is that of its `Correction`."""
    if cell.missing:
        return "unfinished"
    enough = FEWEST if cell.by_probability else pairs_needed(strictness)
    if cell.pairs < enough or cell.p_holm is None:
        return "too few pairs"
    if cell.p_holm < LEVEL:
        mean = None if cell.by_probability else cell.paired.mean
        probability = (cell.better and cell.better.probability) or 0
        is_better = probability > 0.5 if mean is None else (mean < 0) == (cell.goal == "min")
        return "better" if is_better else "worse"
    matches = cell.p_equivalent_holm is not None and cell.p_equivalent_holm < LEVEL
    return "equivalent" if matches else "undecided"


def needs(table: StudyTable, size: float) -> list[str]:
    """Return how many pairs show a difference, in points or the column's unit, four times in five."""
    texts, more = [], _more_looks(table)
    for case in cases(table):
        cell, spread = case.cell, case.cell.paired.sd
        if not spread:
            continue
        wanted = cell.in_units(size)
        number = pairs_to_detect(wanted / spread, case.correction.strictness(more))
        seeds = f"about {number} seeds" if number else f"more than {MOST_PAIRS} seeds"
        texts.append(
            f"{case.name}, {_quantity(cell)}: {_difference_of(wanted, cell)} to {case.reference} takes "
            f"{seeds} (standard deviation {cell.size(spread)}, {plural(cell.pairs, 'pair')} so far, "
            f"{case.correction.text(more)})"
        )
    return texts


def advised(table: StudyTable) -> int | None:
    """Return how many seeds show each primary margin four times in five; None without margin or spread."""
    effects = []
    for _, cell in table.compared:
        if cell.family == "primary" and cell.margin and cell.paired.sd:
            effects.append(cell.margin / cell.paired.sd)
    if not effects:
        return None
    return pairs_to_detect(min(effects), table.correction("primary").strictness(_more_looks(table)))


def _more_looks(table: StudyTable) -> int:
    """Return 1 if a verdict has been shown, which makes more seeds another look, else 0."""
    return int(any(verdict.outcome in DECIDED for verdict in table.verdicts))


def lines(table: StudyTable, results: Results) -> list[str]:
    """Return the sentences below a table: the verdicts, with those that lack runs in one sentence."""
    if table.smoke:
        return [SMOKE]

    # Each decided verdict
    has_primary = any(verdict.family == "primary" for verdict in table.verdicts)
    said = []
    for verdict in table.verdicts:
        if verdict.outcome in DECIDED:
            mark = "Secondary: " if has_primary and verdict.family == "secondary" else ""
            said.append(mark + verdict.text)
    if said and table.looks:
        said.append(
            f"The study was extended after {plural(table.looks, 'verdict')}, by seeds or by trials of a "
            "search, or cut short. Extending it until a difference is significant finds one too often, so "
            f"p-values are multiplied by {factor(table.looks)}."
        )

    # All others together
    others = sorted(cases(table), key=lambda case: case.cell.family != "primary")
    if unfinished := [case for case in others if case.outcome == "unfinished"]:
        said.append(_unfinished(results, unfinished))
    if lacking := [case for case in others if case.outcome == "too few pairs"]:
        said.append(_lacking(lacking, advised(table), results.study.more_seeds))
    return said


def _unfinished(results: Results, unfinished: Sequence[Case]) -> str:
    text = (
        f"No verdict yet against {unfinished[0].reference} on {plural(len(unfinished), 'comparison')}: a "
        "comparison is judged when all planned runs of both sides have ended"
    )
    if not results.failures:
        return f"{text}."
    text += f", and {few(list(results.failures))} failed. Repair what failed and repeat the command"
    of_this_stage = any(run.id in results.failures for run in results.runs)
    return (
        f"{text}; or give --seeds without these, which counts as a look."
        if of_this_stage
        else f"{text}."
    )


def _lacking(lacking: Sequence[Case], seeds: int | None, more_seeds: str) -> str:
    """Return what comparisons with too few pairs lack; ``seeds`` are advised, and set by ``more_seeds``."""
    pairs = sorted({case.cell.pairs for case in lacking})
    number = plural(pairs[0], "pair") if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]} pairs"
    first = lacking[0]
    text = (
        f"No verdict against {first.reference} from {number} of runs: with {first.correction.text()}, so few "
        "cannot reach p < 0.05."
    )
    if seeds:
        margins = {_margin(case.cell) for case in lacking if case.cell.margin}
        what = f"the margin of {margins.pop()}" if len(margins) == 1 else "the margins"
        remedy = more_seeds.format(seeds)
        text += f" {plural(seeds, 'seed')} show {what} four times in five" + (
            f": {remedy}." if remedy else "."
        )
    elif any(case.cell.paired.sd for case in lacking):
        text += " `actlab study plan --detect SIZE` says how many seeds a difference takes."
    begun = [f"{case.name}: {case.so_far}" for case in lacking if case.cell.pairs]
    return f"{text} So far {'; '.join(begun)}." if 0 < len(begun) <= _LISTED else text


def _name(table: StudyTable, row: Row) -> str:
    names = short_names(list(row.point))
    others = []
    for key, value in row.point.items():
        if key != table.compare:
            others.append(f"{names[key]} {table.text(key, value)}")
    name = table.label(row) or "the group"
    return f"{name} ({', '.join(others)})" if others else name


def _text(case: Case) -> str:
    """Return a comparison in words: the verdict with its evidence, or why it is not decided yet."""
    cell, name, reference = case.cell, case.name, case.reference
    if case.outcome in DECIDED:
        outlook = _outlook(case) if case.outcome == "undecided" else ""
        said = [
            _sentence(case),
            _disagreement(cell),
            _chance(cell, reference),
            outlook,
            _choice(case),
        ]
        return f"{name}: {''.join(said)}"
    why = "planned runs are missing" if case.outcome == "unfinished" else "too few pairs"
    if cell.pairs:
        why += f", so far {case.so_far} in {plural(cell.pairs, 'pair')}"
    return f"{name}: no verdict against {reference} in {_quantity(cell)}, {why}."


def _cost(row: Row, reference: str) -> str:
    cost = row.cost or {}
    # Costs of a single round have no spread
    if len(parts := cost.get("relative_in_parts", ())) < 2:
        return ""
    ratio = f"{cost['relative_to_reference']:.2f} ({min(parts):.2f} to {max(parts):.2f})"
    return f" An update takes {ratio} times the time of {reference}."


def _sentence(case: Case) -> str:
    cell, reference, verdict, mean = case.cell, case.reference, case.outcome, case.cell.paired.mean
    won = cell.better.text if cell.better else ""
    what = _quantity(cell) + (" on this test set" if cell.samples else "")
    pairs, margin = plural(cell.pairs, "pair"), _margin(cell)
    said = [*_evidence(case), f"probability of being better {won}" if won else ""]
    details = f"({'; '.join(filter(None, [*said, pairs]))})"
    if min(cell.failures) == cell.pairs:
        how = "never reached" if cell.is_epoch else "both at chance"
        return f"{how} in {what}: all runs of it and of {reference} failed ({pairs})."
    if cell.identical:
        return f"identical to {reference} in {what}, run by run ({pairs})."
    if verdict in ("better", "worse"):
        if cell.by_probability or mean is None:
            return f"{verdict} than {reference} in {what} {details}."
        within = f", less than the margin of {margin}" if cell.within_margin else ""
        side = "lower" if mean < 0 else "higher"
        by = f"{cell.size(mean)} {side} {what} than {reference}"
        if cell.by_ratio:
            by = f"{ratio_text(mean)} times the {what} of {reference}"
        return f"{verdict}, {by}{within} {details}."
    if verdict == "equivalent":
        return f"equivalent to {reference} within {margin} in {what} {details}."
    return f"no significant difference to {reference} in {what} {details}."


def _evidence(case: Case) -> list[str]:
    """Return what decides, in words: who failed, or the interval; and p."""
    cell, verdict, paired = case.cell, case.outcome, case.cell.paired
    tested = _p(case, cell.p, cell.p_holm)
    mean, low, high = paired.mean, paired.low, paired.high
    if cell.by_probability:
        succeeded = "" if mean is None else f"{cell.signed(mean)} where both succeeded"
        return [case.failed, tested, succeeded]
    if low is None or high is None:
        return []
    if cell.by_ratio:
        ends = [ratio_text(low), ratio_text(high)]
    elif verdict in ("better", "worse") and low * high > 0:
        ends = [cell.text(end) for end in sorted(map(abs, (low, high)))]
    else:
        ends = [cell.signed(low).partition(" ")[0], cell.signed(high)]
    if verdict == "equivalent":
        of_margin = _p(case, cell.p_equivalent, cell.p_equivalent_holm, margin=True)
        tested = f"two one-sided tests at 5 %, {of_margin}"
    return [f"95 % interval {ends[0]} to {ends[1]}", tested]


def _p(case: Case, raw: float | None, corrected: float | None, margin: bool = False) -> str:
    if raw is None or corrected is None:
        return ""
    alone, correction = f"p = {p_text(raw)}", case.correction
    if (correction.with_margin if margin else correction.comparisons) <= 1 and not correction.looks:
        return alone
    return f"{alone} alone, {p_text(corrected)} after Holm's correction for {correction.text(margin=margin)}"


def _disagreement(cell: Cell) -> str:
    paired, won = cell.paired, cell.better
    if won is None or won.probability is None or won.p is None:
        return ""
    if cell.by_probability:
        inside = won.low is not None and won.high is not None and won.low <= 0.5 <= won.high
        wider = " The interval of the probability is approximate, and wider than the test."
        return wider if inside and won.p < LEVEL else ""
    if paired.mean is None or paired.p is None:
        return ""
    good = -paired.mean if cell.goal == "min" else paired.mean
    ps = f"p = {p_text(paired.p)} for the mean difference, {p_text(won.p)} for the probability"
    if good * (won.probability - 0.5) < 0 and min(paired.p, won.p) < LEVEL:
        mean, most = ("better", "loses") if good > 0 else ("worse", "wins")
        return f" By the mean it is {mean}, but it {most} most pairs: {ps}."
    if (paired.p < LEVEL) != (won.p < LEVEL):
        return f" The two quantities disagree before correction: {ps}."
    return ""


def _chance(cell: Cell, reference: str) -> str:
    """Return which sides failed in the median."""
    who = [
        name
        for name, fails in (("it", cell.at_chance), (reference, cell.reference_at_chance))
        if fails
    ]
    if not who or min(cell.failures) == cell.pairs:
        return ""
    if cell.is_epoch or cell.chance is None:
        return f" In the median {' and '.join(who)} {'never did' if cell.is_epoch else 'failed'}."
    if len(who) == 2:
        return f" Both it and {reference} are at chance."
    return " It is at chance." if cell.at_chance else f" {reference} is at chance."


def _choice(case: Case) -> str:
    """Return a note if other seeds would often choose another setting of one side."""
    shares = []
    for who, row in (("it", case.row), (case.reference, case.reference_row)):
        if row and row.choice and row.choice.unstable:
            shares.append(f"{100 * (row.choice.again or 0):.0f} % for {who}")
    return (
        f" Other seeds would choose the same setting in {' and '.join(shares)}." if shares else ""
    )


def _outlook(case: Case) -> str:
    """Return which difference the pairs show, and how many show the margin, as a further look."""
    cell, correction = case.cell, case.correction
    spread, pairs = cell.paired.sd, cell.pairs
    effect = detectable(pairs, correction.strictness())
    if not spread:
        return ""

    # What these pairs show; the power of too few is not known.
    text, wanted = "", " A difference of"
    if effect is not None:
        shown = effect * spread
        text, wanted = (
            f" {pairs} pairs show {_difference_of(shown, cell)} four times in five",
            "; one of",
        )
        if not cell.margin or cell.margin >= shown:
            return f"{text}."
    if not cell.margin:
        return ""

    # How many pairs show the margin
    needed = pairs_to_detect(cell.margin / spread, correction.strictness(more=1))
    many = f"about {needed}" if needed else f"more than {MOST_PAIRS}"
    takes = f"takes {many} pairs" if effect is None else f"takes {many}"
    return f"{text}{wanted} the margin, {_margin(cell)}, {takes}, as a further look."


def _margin(cell: Cell) -> str:
    """Return the margin with its unit, and as many digits as it has."""
    if not cell.margin:
        return ""
    text = cell.size(cell.margin)
    if cell.by_ratio:
        return text
    exact, (number, _, unit) = cell.margin * (100 if cell.in_percent else 1), text.partition(" ")
    close = math.isclose(float(number), exact, rel_tol=5e-3 if cell.relative else 1e-9)
    return text if close else f"{exact:.6g} {unit}".strip()


def _quantity(column: Column) -> str:
    """Return the quantity in words: ``test error``, ``noise test error (noise=1)``."""
    name = column.metric.replace("/", " ").replace("_", " ")
    where = ", ".join(
        filter(None, (column.condition, "" if column.at == "last" else place(column.at)))
    )
    return f"{name} ({where})" if where else name


def _difference_of(value: float, column: Column) -> str:
    return f"{'' if column.by_ratio else 'a difference of '}{column.size(value)}"
