"""The verdicts of a study: each activation compared with the reference, one sentence a quantity.

A verdict of better or worse needs p < 0.05 after Holm's correction over the comparisons of its
family, the primary ones or the secondary ones, and after the correction for earlier looks at an
extended study (`actlab.analysis.looks`). The p-value belongs to the mean difference, or to the
probability of being better, as `actlab.analysis.differences.deciding` says. In the latter, failed
runs (that diverged, or are at chance) tie behind all others. A verdict of equivalent needs a
margin, which the study file states, and no failure.
"""

from __future__ import annotations

from collections.abc import Sequence

from actlab.analysis.differences import Superiority
from actlab.analysis.looks import FINAL, factor
from actlab.analysis.power import pairs_to_detect
from actlab.analysis.results import Results
from actlab.analysis.sentences import (
    Case,
    about,
    case_text,
    cost_text,
    difference_text,
    margin_text,
    quantity_text,
)
from actlab.analysis.statistics import LEVEL, runs_needed
from actlab.analysis.study_table import (
    FAMILIES,
    Cell,
    Comparison,
    Outcome,
    Row,
    StudyTable,
)
from actlab.analysis.wording import few, plural
from actlab.studies.points import Point, short_names

MARGINS = "the margins"
_LISTED = 8  # most differences listed before there is a verdict
SMOKE = "Smoke runs decide nothing: they make a few updates on samples."


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

    # Cases of the same row follow each other
    all_cases = cases(table)
    comparisons = []
    for number, case in enumerate(all_cases):
        text = case_text(case)

        # The cost of an activation follows its last comparison.
        is_last = (
            number + 1 == len(all_cases) or all_cases[number + 1].row is not case.row
        )
        if case.outcome in FINAL and is_last:
            text += cost_text(case.row, case.reference)

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
    if cell.pairs < runs_needed(strictness) or cell.p_holm is None:
        return "too few pairs"

    # A difference precedes equivalence: a small one may be both.
    if cell.p_holm < LEVEL:
        return "better" if _is_better(cell) else "worse"
    if cell.is_equivalent:
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

        # Without a spread no number can be computed
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
            f"{case.name}, {quantity_text(cell)}: {difference_text(difference, cell)} to "
            f"{case.reference} takes {about(number)} seeds "
            f"(standard deviation {cell.size(spread)}, {pairs} so far, {counted})"
        )
    return texts


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
    return int(any(comparison.outcome in FINAL for comparison in table.verdicts))


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
        if comparison.outcome in FINAL:
            sentence = comparison.text
            if has_primary and comparison.family == "secondary":
                sentence = f"Secondary: {sentence}"
            sentences.append(sentence)

    # A reader sees why p-values are larger than without earlier looks.
    if sentences and table.looks:
        sentences.append(looks_text(table))

    # Sum up the others, primary ones first.
    all_cases = sorted(cases(table), key=lambda case: case.cell.family != "primary")
    unfinished = [case for case in all_cases if case.outcome == "unfinished"]
    lacking = [case for case in all_cases if case.outcome == "too few pairs"]
    if unfinished:
        sentences.append(unfinished_text(results, unfinished))
    if lacking:
        sentences.append(_lacking(lacking, advised(table), results.study.more_seeds))
    return sentences


def looks_text(table: StudyTable) -> str:
    """Return why the p-values of a study that was extended are larger."""
    return (
        f"The study was extended after {plural(table.looks, 'verdict')}, by seeds or by trials "
        "of a search, or cut short. Extending it until a difference is significant finds one "
        f"too often, so p-values are multiplied by {factor(table.looks)}."
    )


def seeds_text(
    table: StudyTable, lacking: Sequence[Case], more_seeds: str
) -> list[str]:
    """Return why comparisons with too few pairs have no verdict, and how many seeds they need.

    Args:
        table: the table of the study.
        lacking: the comparisons, at least one, of which the first is counted.
        more_seeds: the words that set a number of seeds, with ``{}`` in its place; may be empty.
    """
    # Why there is no verdict
    correction = lacking[0].correction
    numbers = sorted({case.cell.pairs for case in lacking})
    count = f"{numbers[0]} to {numbers[-1]} seeds are"
    if numbers == [1]:
        count = "1 seed is"
    elif len(numbers) == 1:
        count = f"{numbers[0]} seeds are"
    fewest = runs_needed(correction.strictness())
    texts = [
        f"{count} too few to reach p < {LEVEL} with {correction.text()}; it takes {fewest}."
    ]

    # How many seeds the margin needs
    seeds = advised(table)
    if seeds:
        difference = _margins(lacking)
        if difference != MARGINS:
            difference = f"a difference of {difference}"
        option = more_seeds.format(seeds) or plural(seeds, "seed")
        texts.append(f"To detect {difference} with 80 % power: {option}")
    elif any(case.cell.paired.sd for case in lacking):
        texts.append("Seeds that a difference takes: actlab study plan --detect SIZE")
    return texts


def _margins(compared: Sequence[Case]) -> str:
    """Return the margin of comparisons with its unit, `MARGINS` if they differ."""
    margins = {margin_text(case.cell) for case in compared if case.cell.margin}
    if len(margins) == 1:
        return margins.pop()
    return MARGINS


def unfinished_text(results: Results, unfinished: Sequence[Case]) -> str:
    """Return which comparisons lack runs, and what to do if runs failed."""
    reference = unfinished[0].reference
    text = (
        f"No verdict yet against {reference} on {plural(len(unfinished), 'comparison')}: a "
        "comparison is judged when all planned runs of both sides have ended"
    )

    # Without failures the remaining runs only have to end
    if not results.failures:
        return f"{text}."

    # Failed runs need a remedy
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

    # The comparisons may have unequal numbers of pairs
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
        margin = _margins(lacking)
        if margin != MARGINS:
            margin = f"the margin of {margin}"
        text += f" {plural(seeds, 'seed')} show {margin} with 80 % power"
        if more_seeds:
            text += f": {more_seeds.format(seeds)}"
        text += "."
    elif any(case.cell.paired.sd for case in lacking):
        text += (
            " `actlab study plan --detect SIZE` says how many seeds a difference takes."
        )

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
