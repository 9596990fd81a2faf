"""Print the end of ``actlab study run``: what ran, the verdict, a single table, and short notes.

Sentences of full length are in ``table.md`` (`actlab.reports.table_files`), on the page, and in
``actlab study show`` (`actlab.reports.terminal`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from actlab.analysis import notes, parameters, verdict
from actlab.analysis.looks import FINAL
from actlab.analysis.results import Results
from actlab.analysis.sentences import Case, brief, detectable_difference, quantity_text
from actlab.analysis.study_table import Cell, Row, StudyTable
from actlab.analysis.wording import plural
from actlab.reports import table_files, tables, terminal
from actlab.studies.points import short_names

MOST_COMPARISONS = 8  # secondary comparisons that are printed
_SHOWN_VERSIONS = ("actlab", "torch")


def print_summary(
    table: StudyTable, results: Results, file: TextIO | None = None
) -> None:
    """Print what ran, the verdict, the table and short notes.

    A terminal wraps long lines. In a pipe, a sentence is one line.
    """
    console, widest = terminal.open_console(file)
    grid, left_out = _fitting(console, table, widest)
    # A pipe has no width: the widest row decides
    if not console.is_terminal:
        console.width = max(80, terminal.width_of(console, grid))

    # What ran
    console.print("", Text(table.title, style="bold"), sep="\n")
    _print(console, [_runs_text(table, results), *table.notes])

    # The verdict, and the table
    _print(console, ["", *_verdict(table, results)])
    console.print("", grid, "", sep="\n")

    # Trainable parameters, and notes
    if table.parameters:
        console.print(Text(parameters.TITLE, style="bold"))
        _print(console, [*table.parameters, ""])
    _print(console, [*_reading(table, left_out), *notes.caveats(table, results)])


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)


def _runs_text(table: StudyTable, results: Results) -> str:
    """Return what ran: ``12 of 12 runs finished. 4 activations, 3 seeds (0–2).`` and alike."""
    text = notes.state(results)
    if not table.ended:
        return text

    # Rows of one activation may differ in other grid values
    labels = set(map(table.label, table.rows))
    names = short_names([table.compare])
    values = plural(len(labels), names[table.compare])
    seeds = plural(len(table.seeds), "seed")
    return f"{text} {values}, {seeds} ({notes.spans(table.seeds)})."


def _verdict(table: StudyTable, results: Results) -> list[str]:
    """Return the verdict: a line for each comparison, or why there is none."""
    if table.smoke:
        return [f"Verdict: none. {verdict.SMOKE}"]

    # Group the comparisons by their state
    decided: list[Case] = []
    unfinished: list[Case] = []
    lacking: list[Case] = []
    for case in _sorted_cases(table):
        if case.outcome in FINAL:
            decided.append(case)
        elif case.outcome == "unfinished":
            unfinished.append(case)
        else:
            lacking.append(case)

    # Comparisons with a verdict
    lines: list[str] = []
    if decided:
        lines = _comparisons(table, decided)

    # Comparisons without a verdict
    if unfinished:
        lines.append(verdict.unfinished_text(results, unfinished))
    if lacking:
        subject = "Verdict: none."
        if lines:
            subject = f"No verdict on {plural(len(lacking), 'comparison')}:"
        reason, *remedy = verdict.seeds_text(table, lacking, results.study.more_seeds)
        lines += [f"{subject} {reason}", *(f"  {text}" for text in remedy)]
    return lines


def _sorted_cases(table: StudyTable) -> list[Case]:
    """Return the comparisons in the order of the printed rows, but primary and own ones first."""
    cases: list[Case] = []
    unsorted = verdict.cases(table)
    for row in _sorted_rows(table):
        cases += [case for case in unsorted if case.row is row]

    # Both sorts are stable, so the second leaves the order of the first within families
    cases.sort(key=lambda case: not table.is_own(case.row))
    cases.sort(key=lambda case: case.cell.family != "primary")
    return cases


def _comparisons(table: StudyTable, decided: Sequence[Case]) -> list[str]:
    """Return a line for each comparison; secondary ones follow under a heading of their own.

    The lines name their quantities, unless all have the same one.
    """
    # The primary comparisons come first, see `_sorted_cases`
    quantities = set()
    number_of_primary = 0
    for case in decided:
        quantities.add(quantity_text(case.cell))
        if case.cell.family == "primary":
            number_of_primary += 1

    # The words of each line
    words: list[list[str]] = []
    for case in decided[: number_of_primary + MOST_COMPARISONS]:
        mark = " " * len(terminal.MARK)
        if table.is_own(case.row):
            mark = terminal.MARK
        cells = [f"{mark}{case.name}", *brief(case)]
        if len(quantities) > 1:
            # Behind the name, where a reader looks for it
            cells.insert(1, quantity_text(case.cell))
        words.append(cells)

    # Headings
    lines = _aligned(words)
    leading = decided[0]
    quantity = quantity_text(leading.cell)
    seeds = plural(leading.cell.pairs, "seed")
    heading = f"Verdict on {quantity} against {leading.reference}, {seeds}:"
    if 0 < number_of_primary < len(decided):
        lines.insert(number_of_primary, "Other comparisons:")
    if len(decided) > len(words):
        lines.append(f"  and {len(decided) - len(words)} more: {table_files.MARKDOWN}")
    lines = [heading, *lines, _evidence(table, decided)]
    if table.looks:
        lines.append(verdict.looks_text(table))
    return lines


def _aligned(words: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with columns of equal width."""
    widths: list[int] = []
    for column in zip(*words, strict=True):
        widths.append(max(map(len, column)))

    lines: list[str] = []
    for cells in words:
        padded = map(str.ljust, cells, widths)
        lines.append("  ".join(padded).rstrip())
    return lines


def _evidence(table: StudyTable, decided: Sequence[Case]) -> str:
    """Return what interval and p are, and which difference the seeds of the first family detect."""
    # Correction
    counts: dict[str, str] = {}
    for case in decided:
        counts.setdefault(case.cell.family, case.correction.text())
    counted = "; others: ".join(counts.values())
    text = (
        f"p after Holm's correction ({counted}). Intervals of 95 % are not corrected."
    )
    for case in decided:
        if case.cell.by_probability and not any(case.cell.failures):
            text += " Where pairs are too few, p belongs to the probability of being better."
            break

    # Power
    family = decided[0].cell.family
    undecided = []
    sizes: list[tuple[float, str]] = []
    for case in decided:
        if case.cell.family == family and case.outcome == "undecided":
            undecided.append(case)
            difference = detectable_difference(case)
            if difference is not None:
                sizes.append((difference, case.cell.size(difference)))
    if sizes:
        detected = " to ".join(dict.fromkeys([min(sizes)[1], max(sizes)[1]]))
        text += f" {plural(undecided[0].cell.pairs, 'pair')} detect {detected} with 80 % power."

    # Seeds that the margin needs
    seeds = verdict.advised(table)
    if undecided and seeds and seeds > len(table.seeds):
        text += f" The margin takes about {seeds}, including the correction for a further look."
    return text


def _sorted_rows(table: StudyTable) -> list[Row]:
    """Return the rows, the best first in the primary metric, by what they share otherwise."""
    rows: list[Row] = []
    for _, group in table.points:
        rows += sorted(group, key=_badness)
    return rows


def _badness(row: Row) -> float:
    """Return a number that is larger for a worse median; inf without one."""
    if not row.columns:
        return 0.0
    cell = row.primary
    # Rows without a value come last
    if cell.median is None or math.isnan(cell.median):
        return math.inf
    if not cell.goal:
        return 0.0  # neither good nor bad: rows stay as they are
    if cell.goal == "max":
        return -cell.median
    return cell.median


def _fitting(console: Console, table: StudyTable, widest: int) -> tuple[Table, int]:
    """Return the table with as many metrics as fit, and how many it leaves out."""
    # The primary metric is never left out
    rows = _sorted_rows(table)
    metrics: list[int] = []
    for index in table.shown:
        if table.rows[0].columns[index] is not table.rows[0].primary:
            metrics.append(index)
    by_user = list(map(table.is_own, rows))

    # Leave out metrics from the last one on, until the table fits
    left_out = 0
    while True:
        shown = metrics[: len(metrics) - left_out]
        head, body = tables.summary(table, rows, shown)
        grid = terminal.layout(head, body, by_user)
        if not shown or terminal.width_of(console, grid) <= widest:
            return grid, left_out
        left_out += 1


def _reading(table: StudyTable, left_out: int) -> list[str]:
    """Return how to read the table, and where its runs were trained."""
    if not table.ended:
        return []

    # What the numbers of the primary metric are
    texts = []
    meanings: dict[str, None] = {}
    # A study may have no column yet
    cells = [row.primary for row in table.rows if row.columns]
    for cell in cells:
        interval = cell.interval
        if interval is not None and cell.n > 1:
            meaning = (
                "range of the runs" if interval.kind == "range" else "95 % interval"
            )
            meanings[meaning] = None
    if meanings:
        brackets = " or ".join(meanings)
        texts.append(f"Medians [{brackets}]; a mean difference can disagree with them.")
    texts.append(_test_set(cells))
    if left_out:
        noun = "metric" if left_out == 1 else "metrics"
        texts.append(f"{left_out} more {noun}: {table_files.MARKDOWN}.")

    # Machine and versions
    machine = " / ".join(table.hardware)
    if any(row.cost for row in table.rows):
        machine = f"Time and memory: an update on {machine}"
    versions = []
    for name in _SHOWN_VERSIONS:
        if name in table.versions:
            versions.append(f"{name} {' / '.join(table.versions[name])}")
    return [
        " ".join(filter(None, texts)),
        f"{'. '.join(filter(None, [machine, ', '.join(versions)]))}.",
    ]


def _test_set(cells: Sequence[Cell]) -> str:
    """Return the standard error that the test set alone gives the primary metric."""
    errors: list[float] = []
    for cell in cells:
        if cell.sampling_error:
            errors.append(cell.sampling_error)
    if not errors:
        return ""

    # Its range over the rows
    column = cells[0]
    ends = map(column.text, (min(errors), max(errors)))
    text = f"Standard error of the test set: {' to '.join(dict.fromkeys(ends))}"
    if column.in_percent:
        text += " points"
    return f"{text}."
