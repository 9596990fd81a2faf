"""The verdicts of a study: each activation compared with the reference in each test quantity, in a sentence.

A verdict of better or worse needs p < 0.05 after Holm's correction over the comparisons of its family, the
primary ones or the secondary ones, and after the correction for earlier looks at an extended study
(`actlab.analysis.looks`). The p-value is that of the mean difference; where a run of either side failed (it
diverged, or is at chance), it is that of the probability of being better, in which failed runs tie behind all
others. A verdict of equivalent needs a margin, which the study file states, and no failure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from actlab.analysis import comparison as tables
from actlab.analysis.choice import Choice
from actlab.analysis.columns import Column, place, ratio_text
from actlab.analysis.comparison import Cell, Correction, TableRow
from actlab.analysis.differences import Estimate
from actlab.analysis.looks import DECIDED, factor
from actlab.analysis.power import MOST_PAIRS, detectable, pairs_to_detect
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, LEVEL, p_text, pairs_needed
from actlab.analysis.wording import few, plural
from actlab.studies.points import short_names

Outcome = Literal["better", "worse", "equivalent", "undecided", "too few pairs", "unfinished"]
_LISTED = 8  # most differences listed before there is a verdict
SMOKE = "Smoke runs decide nothing: they make a few updates on samples."


@dataclass(frozen=True)
class Comparison:
    """How one activation differs from the reference in one test quantity; printed, it is its sentence."""

    name: str  # the activation, with whatever else the table distinguishes
    reference: str
    outcome: Outcome  # ``too few pairs`` for any p below 0.05, ``unfinished`` while planned runs are missing
    difference: Estimate  # mean of the paired differences
    superiority: Estimate  # probability that a run is better than one of the reference
    correction: Correction
    cell: Cell  # what else was measured, and the corrected p-values
    cost: str = ""  # a sentence on the time of an update
    choices: tuple[Choice | None, ...] = ()  # how the settings of both sides were selected, where it is known

    @property
    def column(self) -> Column:
        """The compared quantity."""
        return self.cell.column

    @property
    def text(self) -> str:
        """The comparison in words: the verdict with its evidence, or why it is not decided yet."""
        cell, name, reference = self.cell, self.name, self.reference
        if self.outcome in DECIDED:
            outlook = _outlook(self) if self.outcome == "undecided" else ""
            said = [_sentence(self), _disagreement(cell), _chance(cell, reference), outlook, _choice(self)]
            return f"{name}: {''.join(said)}{self.cost}"
        why = "planned runs are missing" if self.outcome == "unfinished" else "too few pairs"
        if cell.difference.pairs:
            why += f", so far {_so_far(self)} in {plural(cell.difference.pairs, 'pair')}"
        return f"{name}: no verdict against {reference} in {_quantity(cell.column)}, {why}."

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=4)  # the table, its notes and every piece of advice ask
def compared(results: Results) -> list[Comparison]:
    """Return the comparisons with the reference in test quantities, in the order of the table."""
    reference, comparisons = tables.reference_text(results), []
    for row in tables.rows(results):
        name, choices = _name(results, row), (row.choice, row.reference_choice)
        cells = [cell for cell in row.cells if cell.family and cell.column.tests]
        for cell in cells:
            correction, paired = tables.correction(results, cell.family), cell.difference
            given = name, reference, outcome(cell, correction.strictness())
            mean = Estimate(paired.mean, paired.low, paired.high, paired.p)
            won = cell.better or Estimate(None)
            cost = _cost(row, reference) if cell is cells[-1] else ""  # said once for each activation
            comparisons.append(Comparison(*given, mean, won, correction, cell, cost, choices))
    return comparisons


def verdicts(results: Results) -> list[Comparison]:
    """Return the verdicts of a study, primary ones first; none for smoke runs or without a reference."""
    comparisons = [] if results.study.smoke else compared(results)
    return sorted(comparisons, key=lambda verdict: verdict.cell.family != "primary")


def outcome(cell: Cell, strictness: int) -> Outcome:
    """Return the verdict on a comparison; ``strictness`` is that of its `Correction`."""
    if cell.missing:
        return "unfinished"
    enough = FEWEST if cell.by_probability else pairs_needed(strictness)
    if cell.difference.pairs < enough or cell.p_holm is None:
        return "too few pairs"
    if cell.p_holm < LEVEL:
        mean = None if cell.by_probability else cell.difference.mean
        probability = (cell.better and cell.better.value) or 0
        is_better = probability > 0.5 if mean is None else (mean < 0) == (cell.column.goal == "min")
        return "better" if is_better else "worse"
    matches = cell.p_equivalent_holm is not None and cell.p_equivalent_holm < LEVEL
    return "equivalent" if matches else "undecided"


def needs(results: Results, size: float) -> list[str]:
    """Return how many pairs show a difference, in points or the column's unit, four times in five."""
    texts, more = [], _more_looks(results)
    for verdict in compared(results):
        column, paired = verdict.column, verdict.cell.difference
        if not (spread := paired.sd):
            continue
        wanted, pairs = column.difference(size), plural(paired.pairs, "pair")
        number = pairs_to_detect(wanted / spread, verdict.correction.strictness(more))
        seeds = f"about {number} seeds" if number else f"more than {MOST_PAIRS} seeds"
        texts.append(
            f"{verdict.name}, {_quantity(column)}: {_difference_of(wanted, column)} to "
            f"{verdict.reference} takes {seeds} (standard deviation {column.size(spread)}, {pairs} so far, "
            f"{verdict.correction.text(more)})"
        )
    return texts


def too_few_seeds(results: Results) -> str:
    """Return a line on what a design cannot decide whatever its runs give, with the fewest seeds that can.

    ``results`` need no values of runs. The line is empty if each family of comparisons can reach p < 0.05.
    """
    study = results.study
    if study.smoke:
        return ""

    # Find what each family of comparisons requires.
    required = dict[str, int]()
    for family in tables.FAMILIES:
        correction = tables.correction(results, family)
        fewest = pairs_needed(correction.strictness())
        if correction.comparisons and len(study.seeds) < fewest:
            required[f"from {fewest} seeds on for {correction.text()} ({family})"] = fewest
    if not required:
        return ""

    most = max(required.values())
    remedy = study.more_seeds.format(most)
    use = f" Use at least {remedy}." if remedy else ""
    return (
        f"seeds: expected at least {most} for a verdict on each comparison, got {len(study.seeds)}. "
        f"A difference of means can reach p < {LEVEL} after Holm's correction {', '.join(required)}.{use}"
    )


def advised(results: Results) -> int | None:
    """Return how many seeds show each primary margin four times in five; None without margin or spread."""
    primary = [verdict.cell for verdict in compared(results) if verdict.cell.family == "primary"]
    effects = [cell.margin / cell.difference.sd for cell in primary if cell.margin and cell.difference.sd]
    strictness = tables.correction(results, "primary").strictness(_more_looks(results))
    return pairs_to_detect(min(effects), strictness) if effects else None


def _more_looks(results: Results) -> int:
    """Return 1 if a verdict has been shown, which makes more seeds another look, else 0."""
    return int(any(verdict.outcome in DECIDED for verdict in compared(results)))


def lines(results: Results) -> list[str]:
    """Return the sentences below a table: the verdicts, with those that lack runs in one sentence."""
    if results.study.smoke:
        return [SMOKE]
    given = verdicts(results)
    mark = {"secondary": "Secondary: "} if any(verdict.cell.family == "primary" for verdict in given) else {}
    said = [mark.get(verdict.cell.family, "") + verdict.text for verdict in given if verdict.outcome in DECIDED]
    if said and results.looks:
        said.append(
            f"The study was extended after {plural(results.looks, 'verdict')}, by seeds or by trials of a "
            "search, or cut short. Extending it until a difference is significant finds one too often, so "
            f"p-values are multiplied by {factor(results.looks)}."
        )
    if unfinished := [verdict for verdict in given if verdict.outcome == "unfinished"]:
        said.append(_unfinished(results, unfinished))
    if lacking := [verdict for verdict in given if verdict.outcome == "too few pairs"]:
        said.append(_lacking(results, lacking))
    return said


def _unfinished(results: Results, unfinished: list[Comparison]) -> str:
    text = (
        f"No verdict yet against {unfinished[0].reference} on {plural(len(unfinished), 'comparison')}: a "
        "comparison is judged when all planned runs of both sides have ended"
    )
    if not results.failures:
        return f"{text}."
    text += f", and {few(list(results.failures))} failed. Repair what failed and repeat the command"
    of_this_stage = any(run.id in results.failures for run in results.runs)
    return f"{text}; or give --seeds without these, which counts as a look." if of_this_stage else f"{text}."


def _lacking(results: Results, lacking: list[Comparison]) -> str:
    pairs = sorted({verdict.cell.difference.pairs for verdict in lacking})
    number = plural(pairs[0], "pair") if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]} pairs"
    first = next((verdict for verdict in lacking if verdict.cell.family == "primary"), lacking[0])
    text = (
        f"No verdict against {first.reference} from {number} of runs: with {first.correction.text()}, so few "
        "cannot reach p < 0.05."
    )
    if seeds := advised(results):
        margins = {_margin(verdict.cell) for verdict in lacking if verdict.cell.margin}
        what = f"the margin of {margins.pop()}" if len(margins) == 1 else "the margins"
        remedy = results.study.more_seeds.format(seeds)
        text += f" {plural(seeds, 'seed')} show {what} four times in five" + (f": {remedy}." if remedy else ".")
    elif any(verdict.cell.difference.sd for verdict in lacking):
        text += " `actlab study plan --detect SIZE` says how many seeds a difference takes."
    begun = [f"{verdict.name}: {_so_far(verdict)}" for verdict in lacking if verdict.cell.difference.pairs]
    return f"{text} So far {'; '.join(begun)}." if 0 < len(begun) <= _LISTED else text


def _name(results: Results, row: TableRow) -> str:
    names, compare = short_names(list(row.point)), results.study.compare
    others = [f"{names[k]} {results.text(k, v)}" for k, v in row.point.items() if k != compare]
    name = results.text(compare, row.point[compare]) if compare in row.point else "the group"
    return f"{name} ({', '.join(others)})" if others else name


def _cost(row: TableRow, reference: str) -> str:
    cost = row.cost or {}
    if len(parts := cost.get("relative_in_parts", ())) < 2:  # costs of a single round have no spread
        return ""
    ratio = f"{cost['relative_to_reference']:.2f} ({min(parts):.2f} to {max(parts):.2f})"
    return f" An update takes {ratio} times the time of {reference}."


def _so_far(comparison: Comparison) -> str:
    mean, column, failed = comparison.difference.value, comparison.column, _failed(comparison)
    by = "identical" if comparison.cell.difference.identical else "" if mean is None else column.signed(mean)
    return f"{by} {_quantity(column)}".strip() + (f" ({failed})" if failed else "")


def _failed(comparison: Comparison) -> str:
    """Return how many runs of both sides failed, ``failed 2 of 8 runs, 0 of relu``; empty without any."""
    (mine, theirs), pairs = comparison.cell.failures, comparison.cell.difference.pairs
    if not mine + theirs:
        return ""
    how = "never reached by" if comparison.column.is_epoch else "failed"
    return f"{how} {mine} of {plural(pairs, 'run')}, {theirs} of {comparison.reference}"


def _sentence(comparison: Comparison) -> str:
    cell, column, reference = comparison.cell, comparison.column, comparison.reference
    verdict, mean, won = comparison.outcome, comparison.difference.value, comparison.superiority.text
    what = _quantity(column) + (" on this test set" if cell.samples else "")
    pairs, margin = plural(cell.difference.pairs, "pair"), _margin(cell)
    said = [*_evidence(comparison), f"probability of being better {won}" if won else ""]
    details = f"({'; '.join(filter(None, [*said, pairs]))})"
    if min(cell.failures) == cell.difference.pairs:
        how = "never reached" if column.is_epoch else "both at chance"
        return f"{how} in {what}: all runs of it and of {reference} failed ({pairs})."
    if cell.difference.identical:
        return f"identical to {reference} in {what}, run by run ({pairs})."
    if verdict in ("better", "worse"):
        if cell.by_probability or mean is None:
            return f"{verdict} than {reference} in {what} {details}."
        within = f", less than the margin of {margin}" if cell.within_margin else ""
        side = "lower" if mean < 0 else "higher"
        by = f"{column.size(mean)} {side} {what} than {reference}"
        if column.by_ratio:
            by = f"{ratio_text(mean)} times the {what} of {reference}"
        return f"{verdict}, {by}{within} {details}."
    if verdict == "equivalent":
        return f"equivalent to {reference} within {margin} in {what} {details}."
    return f"no significant difference to {reference} in {what} {details}."


def _evidence(comparison: Comparison) -> list[str]:
    """Return what decides, in words: who failed, or the interval; and p."""
    cell, column, verdict = comparison.cell, comparison.column, comparison.outcome
    tested = _p(comparison, cell.p, cell.p_holm)
    mean, low, high, _ = comparison.difference
    if cell.by_probability:
        succeeded = "" if mean is None else f"{column.signed(mean)} where both succeeded"
        return [_failed(comparison), tested, succeeded]
    if low is None or high is None:
        return []
    if column.by_ratio:
        ends = [ratio_text(low), ratio_text(high)]
    elif verdict in ("better", "worse") and low * high > 0:
        ends = [column.text(end) for end in sorted(map(abs, (low, high)))]
    else:
        ends = [column.signed(low).partition(" ")[0], column.signed(high)]
    if verdict == "equivalent":
        of_margin = _p(comparison, cell.p_equivalent, cell.p_equivalent_holm, margin=True)
        tested = f"two one-sided tests at 5 %, {of_margin}"
    return [f"95 % interval {ends[0]} to {ends[1]}", tested]


def _p(comparison: Comparison, raw: float | None, corrected: float | None, margin: bool = False) -> str:
    if raw is None or corrected is None:
        return ""
    alone, correction = f"p = {p_text(raw)}", comparison.correction
    if (correction.with_margin if margin else correction.comparisons) <= 1 and not correction.looks:
        return alone
    return f"{alone} alone, {p_text(corrected)} after Holm's correction for {correction.text(margin=margin)}"


def _disagreement(cell: Cell) -> str:
    paired, won = cell.difference, cell.better
    if won is None or won.value is None or won.p is None:
        return ""
    if cell.by_probability:
        inside = won.low is not None and won.high is not None and won.low <= 0.5 <= won.high
        wider = " The interval of the probability is approximate, and wider than the test."
        return wider if inside and won.p < LEVEL else ""
    if paired.mean is None or paired.p is None:
        return ""
    good = -paired.mean if cell.column.goal == "min" else paired.mean
    ps = f"p = {p_text(paired.p)} for the mean difference, {p_text(won.p)} for the probability"
    if good * (won.value - 0.5) < 0 and min(paired.p, won.p) < LEVEL:
        mean, most = ("better", "loses") if good > 0 else ("worse", "wins")
        return f" By the mean it is {mean}, but it {most} most pairs: {ps}."
    if (paired.p < LEVEL) != (won.p < LEVEL):
        return f" The two quantities disagree before correction: {ps}."
    return ""


def _chance(cell: Cell, reference: str) -> str:
    """Return which sides failed in the median."""
    who = [name for name, fails in (("it", cell.at_chance), (reference, cell.reference_at_chance)) if fails]
    if not who or min(cell.failures) == cell.difference.pairs:
        return ""
    if cell.column.is_epoch or cell.column.chance is None:
        return f" In the median {' and '.join(who)} {'never did' if cell.column.is_epoch else 'failed'}."
    if len(who) == 2:
        return f" Both it and {reference} are at chance."
    return " It is at chance." if cell.at_chance else f" {reference} is at chance."


def _choice(comparison: Comparison) -> str:
    """Return a note if other seeds would often choose another setting of one side."""
    sides = zip(("it", comparison.reference), comparison.choices, strict=False)
    shares = [f"{100 * (of.again or 0):.0f} % for {who}" for who, of in sides if of and of.unstable]
    return f" Other seeds would choose the same setting in {' and '.join(shares)}." if shares else ""


def _outlook(comparison: Comparison) -> str:
    """Return which difference the pairs show, and how many show the margin, as a further look."""
    cell, column, correction = comparison.cell, comparison.column, comparison.correction
    spread, pairs = cell.difference.sd, cell.difference.pairs
    effect = detectable(pairs, correction.strictness())
    if not spread:
        return ""

    # What these pairs show; the power of too few is not known.
    text, wanted = "", " A difference of"
    if effect is not None:
        shown = effect * spread
        text, wanted = f" {pairs} pairs show {_difference_of(shown, column)} four times in five", "; one of"
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
    column, text = cell.column, cell.column.size(cell.margin)
    if column.by_ratio:
        return text
    exact, (number, _, unit) = cell.margin * (100 if column.in_percent else 1), text.partition(" ")
    close = math.isclose(float(number), exact, rel_tol=5e-3 if column.relative else 1e-9)
    return text if close else f"{exact:.6g} {unit}".strip()


def _quantity(column: Column) -> str:
    """Return the quantity in words: ``test error``, ``noise test error (noise=1)``."""
    name = column.metric.replace("/", " ").replace("_", " ")
    where = ", ".join(filter(None, (column.condition, "" if column.at == "last" else place(column.at))))
    return f"{name} ({where})" if where else name


def _difference_of(value: float, column: Column) -> str:
    return f"{'' if column.by_ratio else 'a difference of '}{column.size(value)}"
