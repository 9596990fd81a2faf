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
from actlab.analysis.looks import DECIDED
from actlab.analysis.results import Results
from actlab.analysis.sentences import Case, brief, detectable_difference, quantity_text
from actlab.analysis.study_table import Cell, Row, StudyTable
from actlab.analysis.wording import plural
from actlab.reports import table_files, tables, terminal
from actlab.studies.points import short_names

MOST_COMPARISONS = 8  # secondary comparisons that are printed
_SHOWN_VERSIONS = ("actlab", "torch")


def print_summary(table: StudyTable, results: Results, file: TextIO | None = None) -> None:
    """Print what ran, the verdict, the table and short notes.

    A terminal wraps long lines. In a pipe, a sentence is one line.
    """
    console, widest = terminal.open_console(file)
    grid, left_out = _fitting(console, table, widest)
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

    compared = short_names([table.compare])[table.compare]
    values = plural(len({table.label(row) for row in table.rows}), compared)
    seeds = plural(len(table.seeds), "seed")
    return f"{text} {values}, {seeds} ({notes.spans(table.seeds)})."


def _verdict(table: StudyTable, results: Results) -> list[str]:
    """Return the verdict: a line for each comparison, or why there is none."""
    if table.smoke:
        return [f"Verdict: none. {verdict.SMOKE}"]

    # Sort the comparisons as the rows of the table, the user's activations first
    order = {id(row): number for number, row in enumerate(_sorted_rows(table))}
    cases = verdict.cases(table)
    cases.sort(key=lambda case: (not table.is_own(case.row), order[id(case.row)]))
    cases.sort(key=lambda case: case.cell.family != "primary")
    decided = [case for case in cases if case.outcome in DECIDED]
    unfinished = [case for case in cases if case.outcome == "unfinished"]
    lacking = [case for case in cases if case.outcome == "too few pairs"]

    # Comparisons with a verdict
    lines: list[str] = []
    if decided:
        lines += _comparisons(table, decided)
        lines.append(_evidence(table, decided))
        if table.looks:
            lines.append(verdict.looks_text(table))

    # Comparisons without a verdict
    if unfinished:
        lines.append(verdict.unfinished_text(results, unfinished))
    if lacking:
        reason, *remedy = verdict.seeds_text(table, lacking, results.study.more_seeds)
        subject = "Verdict: none."
        if decided or unfinished:
            subject = f"No verdict on {plural(len(lacking), 'comparison')}:"
        lines.append(f"{subject} {reason}")
        lines += [f"  {text}" for text in remedy]
    return lines


def _comparisons(table: StudyTable, decided: Sequence[Case]) -> list[str]:
    """Return a line for each comparison; secondary ones follow under a heading of their own.

    The lines name their quantities, unless all have the same one.
    """
    quantities = {quantity_text(case.cell) for case in decided}
    number_of_primary = sum(case.cell.family == "primary" for case in decided)

    # The words of each line
    words: list[list[str]] = []
    for case in decided[: number_of_primary + MOST_COMPARISONS]:
        mark = " " * len(terminal.MARK)
        if table.is_own(case.row):
            mark = terminal.MARK
        cells = [f"{mark}{case.name}", *brief(case)]
        if len(quantities) > 1:
            cells.insert(1, quantity_text(case.cell))
        words.append(cells)

    # Columns of equal width
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    lines: list[str] = []
    for cells in words:
        padded = [text.ljust(width) for text, width in zip(cells, widths, strict=True)]
        lines.append("  ".join(padded).rstrip())

    # Headings
    leading = decided[0]
    quantity = quantity_text(leading.cell)
    seeds = plural(leading.cell.pairs, "seed")
    heading = f"Verdict on {quantity} against {leading.reference}, {seeds}:"
    if 0 < number_of_primary < len(decided):
        lines.insert(number_of_primary, "Other comparisons:")
    if len(decided) > len(words):
        lines.append(f"  and {len(decided) - len(words)} more: {table_files.MARKDOWN}")
    return [heading, *lines]


def _evidence(table: StudyTable, decided: Sequence[Case]) -> str:
    """Return what interval and p are, and which difference the seeds of the first family detect."""
    # Correction
    counts: dict[str, str] = {}
    for case in decided:
        counts.setdefault(case.cell.family, case.correction.text())
    counted = "; others: ".join(counts.values())
    text = f"p after Holm's correction ({counted}). Intervals of 95 % are not corrected."

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
    cell = row.primary
    if cell.median is None or math.isnan(cell.median):
        return math.inf
    if not cell.goal:
        return 0.0  # neither good nor bad: rows stay as they are
    if cell.goal == "max":
        return -cell.median
    return cell.median


def _fitting(console: Console, table: StudyTable, widest: int) -> tuple[Table, int]:
    """Return the table with as many metrics as fit, and how many it leaves out."""
    rows = _sorted_rows(table)
    primary = table.rows[0].primary
    metrics = [index for index in table.shown if table.rows[0].columns[index] is not primary]

    # Leave out metrics from the last one on, until the table fits
    by_user = [table.is_own(row) for row in rows]
    for number in range(len(metrics), -1, -1):
        head, body = tables.summary(table, rows, metrics[:number])
        grid = terminal.layout(head, body, by_user)
        if terminal.width_of(console, grid) <= widest:
            break
    return grid, len(metrics) - number


def _reading(table: StudyTable, left_out: int) -> list[str]:
    """Return how to read the table, and where its runs were trained."""
    if not table.ended:
        return []

    # What the numbers of the primary metric are
    cell = next((row.primary for row in table.rows if row.primary.median is not None), None)
    texts = []
    if cell is not None and cell.interval is not None and cell.n > 1:
        meaning = "95 % interval"
        if cell.interval.kind == "range":
            meaning = "range of the runs"
        texts.append(f"Medians [{meaning}]; a mean difference can disagree with them.")
    texts.append(_test_set(table))
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


def _test_set(table: StudyTable) -> str:
    """Return the standard error that the test set alone gives the primary metric."""
    cells: list[Cell] = []
    for row in table.rows:
        if row.primary.sampling_error:
            cells.append(row.primary)
    if not cells:
        return ""

    # Its range over the rows
    errors = [cell.sampling_error or 0.0 for cell in cells]
    texts = [cells[0].text(error) for error in (min(errors), max(errors))]
    text = f"Standard error of the test set: {' to '.join(dict.fromkeys(texts))}"
    if cells[0].in_percent:
        text += " points"
    return f"{text}."
