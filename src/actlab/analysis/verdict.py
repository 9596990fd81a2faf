"""The verdicts of a study: each activation compared with the reference, one sentence a quantity.

A verdict of better or worse needs p < 0.05 after Holm's correction over the comparisons of its
family, the primary ones or the secondary ones, and after the correction for earlier looks at an
extended study (`actlab.analysis.looks`). The p-value belongs to the mean difference. If a run of
either side failed (it diverged, or is at chance), the p-value belongs to the probability of being
better, in which failed runs tie behind all others. A verdict of equivalent needs a margin, which
the study file states, and no failure.
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
from actlab.studies.points import Point, short_names

_LISTED = 8  # most differences listed before there is a verdict
SMOKE = "Smoke runs decide nothing: they make a few updates on samples."


class Case(NamedTuple):
    """An activation and the reference in one test quantity, with the outcome of their comparison.

    A case has what the sentences need. `Comparison` is the record that users see.
    """

    name: str  # the activation, with its other grid values
    reference: str
    outcome: Outcome
    correction: Correction
    cell: Cell
    row: Row
    reference_row: Row | None

    @property
    def all_failed(self) -> bool:
        """Whether all runs of both sides failed."""
        return min(self.cell.failures) == self.cell.pairs

    @property
    def failure_text(self) -> str:
        """How many runs of both sides failed, ``failed 2 of 8 runs, 0 of relu``; empty if none."""
        activation_runs, reference_runs = self.cell.failures
        if activation_runs + reference_runs == 0:
            return ""

        # A value of an epoch column is the epoch at which a run reaches a threshold.
        event = "failed"
        if self.cell.is_epoch:
            event = "never reached by"
        runs = plural(self.cell.pairs, "run")
        return f"{event} {activation_runs} of {runs}, {reference_runs} of {self.reference}"

    @property
    def preliminary_text(self) -> str:
        """The mean difference before there is a verdict."""
        mean = self.cell.paired.mean
        difference = ""
        if self.cell.identical:
            difference = "identical"
        elif mean is not None:
            difference = self.cell.signed(mean)

        text = f"{difference} {_quantity(self.cell)}".strip()
        if self.failure_text:
            text += f" ({self.failure_text})"
        return text


def cases(table: StudyTable) -> list[Case]:
    """Return the comparisons with the reference in test quantities, in the order of the table."""
    reference = table.reference_text
    corrections = {family: table.correction(family) for family in FAMILIES}

    # The reference has a row for each combination of the other keys.
    reference_rows: dict[Point, Row] = {}
    for row in table.rows:
        if table.label(row) == reference:
            setting = row.point.without([table.compare])
            reference_rows[setting] = row

    # Judge each comparison.
    judged = []
    for row, cell in table.compared:
        correction = corrections[cell.family]
        setting = row.point.without([table.compare])
        case = Case(
            name=_name(table, row),
            reference=reference,
            outcome=outcome(cell, correction.strictness()),
            correction=correction,
            cell=cell,
            row=row,
            reference_row=reference_rows.get(setting),
        )
        judged.append(case)
    return judged


def verdicts(table: StudyTable) -> list[Comparison]:
    """Return the verdicts of a study, primary ones first.

    Smoke runs and studies without a reference have none.
    """
    if table.smoke:
        return []

    all_cases = cases(table)
    comparisons = []
    for number, case in enumerate(all_cases):
        text = _text(case)

        # The cost of an activation follows its last comparison.
        is_last = number + 1 == len(all_cases) or all_cases[number + 1].row is not case.row
        if case.outcome in DECIDED and is_last:
            text += _cost(case.row, case.reference)

        comparison = Comparison(
            name=case.name,
            column=case.cell.key,
            family=case.cell.family,
            outcome=case.outcome,
            text=text,
            difference=case.cell.paired,
            superiority=case.cell.better or Superiority(),
            correction=case.correction,
        )
        comparisons.append(comparison)
    return sorted(comparisons, key=lambda comparison: comparison.family != "primary")


def outcome(cell: Cell, strictness: int) -> Outcome:
    """Return the verdict on a comparison.

    Args:
        cell: the cell of the activation, compared with the reference.
        strictness: what the smallest p-value is multiplied by, see `Correction.strictness`.
    """
    if cell.missing:
        return "unfinished"

    # Too few pairs cannot reach p < 0.05, whatever their values are.
    fewest = pairs_needed(strictness)
    if cell.by_probability:
        fewest = FEWEST
    if cell.pairs < fewest or cell.p_holm is None:
        return "too few pairs"

    # A difference precedes equivalence: a small one may be both.
    if cell.p_holm < LEVEL:
        return "better" if _is_better(cell) else "worse"
    if cell.p_equivalent_holm is not None and cell.p_equivalent_holm < LEVEL:
        return "equivalent"
    return "undecided"


def _is_better(cell: Cell) -> bool:
    """Return whether the activation is better by the quantity that decides."""
    mean = cell.paired.mean
    if cell.by_probability or mean is None:
        superiority = cell.better or Superiority()
        return (superiority.probability or 0) > 0.5
    return (mean < 0) == (cell.goal == "min")


def needs(table: StudyTable, size: float) -> list[str]:
    """Return a line for each comparison on how many seeds show a difference with 80 % power.

    Args:
        table: the study, whose runs give the standard deviation of the differences.
        size: the difference in points, as a ratio, or in the unit of the column.
    """
    further_looks = _further_looks(table)
    texts = []
    for case in cases(table):
        cell = case.cell
        spread = cell.paired.sd
        if not spread:
            continue

        # Find the number of seeds.
        difference = cell.in_units(size)
        strictness = case.correction.strictness(further_looks)
        number = pairs_to_detect(difference / spread, strictness)

        # Say what the number rests on.
        pairs = plural(cell.pairs, "pair")
        counted = case.correction.text(further_looks)
        texts.append(
            f"{case.name}, {_quantity(cell)}: {_difference_text(difference, cell)} to "
            f"{case.reference} takes {_about(number)} seeds "
            f"(standard deviation {cell.size(spread)}, {pairs} so far, {counted})"
        )
    return texts


def _about(pairs: int | None) -> str:
    """Return a number of pairs in words; None is above `MOST_PAIRS`."""
    if pairs is None:
        return f"more than {MOST_PAIRS}"
    return f"about {pairs}"


def advised(table: StudyTable) -> int | None:
    """Return how many seeds show each primary margin with 80 % power.

    None without a margin, without a standard deviation, or above `MOST_PAIRS`.
    """
    # The smallest effect needs the most seeds.
    effects = []
    for _, cell in table.compared:
        if cell.family == "primary" and cell.margin and cell.paired.sd:
            effects.append(cell.margin / cell.paired.sd)
    if not effects:
        return None

    strictness = table.correction("primary").strictness(_further_looks(table))
    return pairs_to_detect(min(effects), strictness)


def _further_looks(table: StudyTable) -> int:
    """Return 1 if a verdict has been shown, because more seeds are another look then, else 0."""
    return int(any(comparison.outcome in DECIDED for comparison in table.verdicts))


def lines(table: StudyTable, results: Results) -> list[str]:
    """Return the sentences below a table.

    Each decided comparison has a sentence. The comparisons that lack runs share one.
    """
    if table.smoke:
        return [SMOKE]

    # Write a sentence for each decided comparison.
    has_primary = any(comparison.family == "primary" for comparison in table.verdicts)
    sentences = []
    for comparison in table.verdicts:
        if comparison.outcome in DECIDED:
            sentence = comparison.text
            if has_primary and comparison.family == "secondary":
                sentence = f"Secondary: {sentence}"
            sentences.append(sentence)

    # A reader sees why p-values are larger than without earlier looks.
    if sentences and table.looks:
        sentences.append(
            f"The study was extended after {plural(table.looks, 'verdict')}, by seeds or by trials "
            "of a search, or cut short. Extending it until a difference is significant finds one "
            f"too often, so p-values are multiplied by {factor(table.looks)}."
        )

    # Sum up the others, primary ones first.
    all_cases = sorted(cases(table), key=lambda case: case.cell.family != "primary")
    unfinished = [case for case in all_cases if case.outcome == "unfinished"]
    lacking = [case for case in all_cases if case.outcome == "too few pairs"]
    if unfinished:
        sentences.append(_unfinished(results, unfinished))
    if lacking:
        sentences.append(_lacking(lacking, advised(table), results.study.more_seeds))
    return sentences


def _unfinished(results: Results, unfinished: Sequence[Case]) -> str:
    """Return which comparisons lack runs, and what to do if runs failed."""
    reference = unfinished[0].reference
    text = (
        f"No verdict yet against {reference} on {plural(len(unfinished), 'comparison')}: a "
        "comparison is judged when all planned runs of both sides have ended"
    )
    if not results.failures:
        return f"{text}."

    names = few(list(results.failures))
    text += f", and {names} failed. Repair what failed and repeat the command"

    # Seeds cannot be left out of an earlier stage.
    is_of_this_stage = any(run.id in results.failures for run in results.runs)
    if is_of_this_stage:
        text += "; or give --seeds without these, which counts as a look"
    return f"{text}."


def _lacking(lacking: Sequence[Case], seeds: int | None, more_seeds: str) -> str:
    """Return what comparisons with too few pairs lack.

    Args:
        lacking: the comparisons, at least one.
        seeds: the advised number of seeds, see `advised`.
        more_seeds: the words that set a number of seeds, with ``{}`` in its place; may be empty.
    """
    case = lacking[0]
    numbers = sorted({case.cell.pairs for case in lacking})
    pairs = f"{numbers[0]} to {numbers[-1]} pairs"
    if len(numbers) == 1:
        pairs = plural(numbers[0], "pair")
    text = (
        f"No verdict against {case.reference} from {pairs} of runs: with {case.correction.text()}, "
        "so few cannot reach p < 0.05."
    )

    # Advise a number of seeds, or how to find one.
    if seeds:
        margins = {_margin_text(case.cell) for case in lacking if case.cell.margin}
        margin = "the margins"
        if len(margins) == 1:
            margin = f"the margin of {margins.pop()}"
        text += f" {plural(seeds, 'seed')} show {margin} four times in five"
        if more_seeds:
            text += f": {more_seeds.format(seeds)}"
        text += "."
    elif any(case.cell.paired.sd for case in lacking):
        text += " `actlab study plan --detect SIZE` says how many seeds a difference takes."

    # List the differences if there are few.
    differences = []
    for case in lacking:
        if case.cell.pairs:
            differences.append(f"{case.name}: {case.preliminary_text}")
    if 0 < len(differences) <= _LISTED:
        text += f" So far {'; '.join(differences)}."
    return text


def _name(table: StudyTable, row: Row) -> str:
    """Return the name of an activation, with its other grid values: ``gelu (dropout 0.5)``."""
    names = short_names(list(row.point))
    settings = []
    for key, value in row.point.items():
        if key != table.compare:
            settings.append(f"{names[key]} {table.text(key, value)}")

    name = table.label(row) or "the group"
    if settings:
        name += f" ({', '.join(settings)})"
    return name


def _text(case: Case) -> str:
    """Return a comparison in words: the verdict with its evidence, or why it is not decided yet."""
    # A verdict with its evidence and notes
    if case.outcome in DECIDED:
        text = _sentence(case) + _disagreement(case.cell) + _chance(case)
        if case.outcome == "undecided":
            text += _outlook(case)
        return f"{case.name}: {text}{_choice(case)}"

    # No verdict yet
    reason = "too few pairs"
    if case.outcome == "unfinished":
        reason = "planned runs are missing"
    if case.cell.pairs:
        reason += f", so far {case.preliminary_text} in {plural(case.cell.pairs, 'pair')}"
    return f"{case.name}: no verdict against {case.reference} in {_quantity(case.cell)}, {reason}."


def _cost(row: Row, reference: str) -> str:
    """Return the time of an update relative to the reference; empty if it has no spread."""
    cost = row.cost or {}
    parts = cost.get("relative_in_parts", ())
    if len(parts) < 2:
        return ""
    ratio = f"{cost['relative_to_reference']:.2f} ({min(parts):.2f} to {max(parts):.2f})"
    return f" An update takes {ratio} times the time of {reference}."


def _sentence(case: Case) -> str:
    """Return the verdict with its evidence."""
    cell, reference = case.cell, case.reference
    quantity = _quantity(cell)
    if cell.samples:
        quantity += " on this test set"
    pairs = plural(cell.pairs, "pair")

    # Equal values or no values leave nothing to test.
    if case.all_failed:
        event = "both at chance"
        if cell.is_epoch:
            event = "never reached"
        return f"{event} in {quantity}: all runs of it and of {reference} failed ({pairs})."
    if cell.identical:
        return f"identical to {reference} in {quantity}, run by run ({pairs})."

    # Collect the evidence; parts of it may be empty.
    parts = _evidence(case)
    if cell.better and cell.better.text:
        parts.append(f"probability of being better {cell.better.text}")
    parts.append(pairs)
    evidence = f"({'; '.join(filter(None, parts))})"

    # Write the verdict.
    if case.outcome == "equivalent":
        margin = _margin_text(cell)
        return f"equivalent to {reference} within {margin} in {quantity} {evidence}."
    if case.outcome == "undecided":
        return f"no significant difference to {reference} in {quantity} {evidence}."
    return f"{case.outcome}{_effect(case, quantity)} {evidence}."


def _effect(case: Case, quantity: str) -> str:
    """Return by how much an activation is better or worse."""
    cell, reference = case.cell, case.reference
    mean = cell.paired.mean
    if cell.by_probability or mean is None:
        return f" than {reference} in {quantity}"

    # A mean of logarithms is a ratio.
    if cell.by_ratio:
        effect = f", {ratio_text(mean)} times the {quantity} of {reference}"
    elif mean < 0:
        effect = f", {cell.size(mean)} lower {quantity} than {reference}"
    else:
        effect = f", {cell.size(mean)} higher {quantity} than {reference}"
    if cell.within_margin:
        effect += f", less than the margin of {_margin_text(cell)}"
    return effect


def _evidence(case: Case) -> list[str]:
    """Return what decides, in words: who failed, or the interval; and p."""
    cell = case.cell
    mean, low, high = cell.paired.mean, cell.paired.low, cell.paired.high
    p = _corrected_p(case.correction, cell.p, cell.p_holm)

    # The probability decides.
    if cell.by_probability:
        parts = [case.failure_text, p]
        if mean is not None:
            parts.append(f"{cell.signed(mean)} where both succeeded")
        return parts

    # Without an interval the mean is not tested.
    if low is None or high is None:
        return []

    # The mean decides. Its interval has no signs if the verdict says the side.
    if cell.by_ratio:
        ends = [ratio_text(low), ratio_text(high)]
    elif case.outcome in ("better", "worse") and low * high > 0:
        ends = [cell.text(end) for end in sorted([abs(low), abs(high)])]
    else:
        number, _, _ = cell.signed(low).partition(" ")
        ends = [number, cell.signed(high)]

    # Equivalence has two tests of its own.
    if case.outcome == "equivalent":
        p = _corrected_p(case.correction, cell.p_equivalent, cell.p_equivalent_holm, margin=True)
        p = f"two one-sided tests at 5 %, {p}"
    return [f"95 % interval {ends[0]} to {ends[1]}", p]


def _corrected_p(
    correction: Correction, raw: float | None, corrected: float | None, margin: bool = False
) -> str:
    """Return a p-value before and after its correction, if there is any."""
    if raw is None or corrected is None:
        return ""
    text = f"p = {p_text(raw)}"

    # One test at the first look needs no correction.
    tests = correction.comparisons
    if margin:
        tests = correction.with_margin
    if tests <= 1 and not correction.looks:
        return text
    counted = correction.text(margin=margin)
    return f"{text} alone, {p_text(corrected)} after Holm's correction for {counted}"


def _disagreement(cell: Cell) -> str:
    """Return a note if mean and probability, or an interval and its test, do not agree."""
    paired, superiority = cell.paired, cell.better or Superiority()
    probability, p = superiority.probability, superiority.p
    if probability is None or p is None:
        return ""

    # The interval of the probability
    if cell.by_probability:
        low, high = superiority.low, superiority.high
        has_half = low is not None and high is not None and low <= 0.5 <= high
        if has_half and p < LEVEL:
            return " The interval of the probability is approximate, and wider than the test."
        return ""

    # Without a test of the mean there is nothing to disagree with.
    if paired.mean is None or paired.p is None:
        return ""
    ps = f"p = {p_text(paired.p)} for the mean difference, {p_text(p)} for the probability"

    # The sides: a positive gain is better.
    gain = paired.mean
    if cell.goal == "min":
        gain = -gain
    if gain * (probability - 0.5) < 0 and min(paired.p, p) < LEVEL:
        if gain > 0:
            return f" By the mean it is better, but it loses most pairs: {ps}."
        return f" By the mean it is worse, but it wins most pairs: {ps}."

    # The significance
    if (paired.p < LEVEL) != (p < LEVEL):
        return f" The two quantities disagree before correction: {ps}."
    return ""


def _chance(case: Case) -> str:
    """Return which sides failed in the median."""
    cell = case.cell

    # Collect the sides that failed.
    sides = []
    if cell.at_chance:
        sides.append("it")
    if cell.reference_at_chance:
        sides.append(case.reference)
    if not sides or case.all_failed:
        return ""

    # Say how they failed.
    if cell.is_epoch:
        return f" In the median {' and '.join(sides)} never did."
    if cell.chance is None:
        return f" In the median {' and '.join(sides)} failed."
    if len(sides) == 2:
        return f" Both it and {case.reference} are at chance."
    if cell.at_chance:
        return " It is at chance."
    return f" {case.reference} is at chance."


def _choice(case: Case) -> str:
    """Return a note if other seeds would often choose another setting of one side."""
    shares = []
    for side, row in (("it", case.row), (case.reference, case.reference_row)):
        if row and row.choice and row.choice.unstable:
            shares.append(f"{100 * (row.choice.again or 0):.0f} % for {side}")
    if not shares:
        return ""
    return f" Other seeds would choose the same setting in {' and '.join(shares)}."


def _outlook(case: Case) -> str:
    """Return which difference the pairs show, and how many show the margin, as a further look."""
    cell, correction = case.cell, case.correction
    spread = cell.paired.sd
    if not spread:
        return ""  # power needs a standard deviation

    # What these pairs show; the power of too few pairs is not known.
    text = ""
    effect = detectable(cell.pairs, correction.strictness())
    if effect is not None:
        difference = effect * spread
        difference_text = _difference_text(difference, cell)
        text = f" {cell.pairs} pairs show {difference_text} four times in five"
        if not cell.margin or cell.margin >= difference:
            return f"{text}."
    if not cell.margin:
        return ""

    # How many pairs show the margin
    needed = pairs_to_detect(cell.margin / spread, correction.strictness(further_looks=1))
    margin = _margin_text(cell)
    if effect is None:
        text = f" A difference of the margin, {margin}, takes {_about(needed)} pairs"
    else:
        text += f"; one of the margin, {margin}, takes {_about(needed)}"
    return f"{text}, as a further look."


def _margin_text(cell: Cell) -> str:
    """Return the margin with its unit, and as many digits as it has."""
    if not cell.margin:
        return ""
    text = cell.size(cell.margin)
    if cell.by_ratio:
        return text

    # The margin on the scale on which it is printed
    exact = cell.margin
    if cell.in_percent:
        exact *= 100
    number, _, unit = text.partition(" ")

    # A fraction of a median has arbitrarily many digits, so three are enough.
    tolerance = 1e-9
    if cell.relative:
        tolerance = 5e-3
    if math.isclose(float(number), exact, rel_tol=tolerance):
        return text

    # The printed digits are not the margin: write more.
    return f"{exact:.6g} {unit}".strip()


def _quantity(column: Column) -> str:
    """Return the quantity in words: ``test error``, ``noise test error (noise=1)``."""
    name = column.metric.replace("/", " ").replace("_", " ")
    details = []
    if column.condition:
        details.append(column.condition)
    if column.at != "last":
        details.append(place(column.at))
    if details:
        name += f" ({', '.join(details)})"
    return name


def _difference_text(value: float, column: Column) -> str:
    """Return a difference in words: ``a difference of 0.20 points``, ``a ratio of 1.05``."""
    size = column.size(value)
    if column.by_ratio:
        return size
    return f"a difference of {size}"
