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

Lines = list[str | Table]


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


def _print(console: Console, lines: Sequence[str | Table]) -> None:
    for line in lines:
        if isinstance(line, str):
            console.print(Text(line), soft_wrap=not console.is_terminal)
        else:
            console.print(line)


def _runs_text(table: StudyTable, results: Results) -> str:
    """Return what ran: ``12 of 12 runs finished. 4 activations, 3 seeds (0–2).`` and alike."""
    text = notes.state(results)
    if not table.ended:
        return text

    compared = short_names([table.compare])[table.compare]
    values = plural(len({table.label(row) for row in table.rows}), compared)
    seeds = plural(len(table.seeds), "seed")
    return f"{text} {values}, {seeds} ({notes.spans(table.seeds)})."


def _verdict(table: StudyTable, results: Results) -> Lines:
    """Return the verdict: a line for each comparison, or why there is none."""
    if table.smoke:
        return [f"Verdict: none. {verdict.SMOKE}"]

    # Sort the comparisons as the rows of the table, the user's activations first
    order = {id(row): number for number, row in enumerate(_sorted_rows(table))}
    cases = verdict.cases(table)
    cases.sort(key=lambda case: (not table.is_own(case.row), order[id(case.row)]))
    primary, secondary = [], []
    for case in cases:
        if case.outcome in DECIDED:
            family = primary if case.cell.family == "primary" else secondary
            family.append(case)
    decided = primary + secondary

    # Decided comparisons
    lines: Lines = []
    if decided:
        main = primary or secondary
        quantities = {quantity_text(case.cell) for case in decided}
        quantity = quantity_text(main[0].cell)
        pairs = plural(main[0].cell.pairs, "seed")
        lines.append(f"Verdict on {quantity} against {main[0].reference}, {pairs}:")
        lines.append(_comparisons(table, main, {quantity} >= quantities))
        if primary and secondary:
            lines.append("Other comparisons:")
            lines.append(
                _comparisons(table, secondary[:MOST_COMPARISONS], {quantity} >= quantities)
            )
            more = len(secondary) - MOST_COMPARISONS
            if more > 0:
                lines.append(f"  and {more} more: {table_files.MARKDOWN}")
        lines += _evidence(table, primary, secondary)
        if table.looks:
            lines.append(verdict.looks_text(table))

    # Comparisons without a verdict
    cases.sort(key=lambda case: case.cell.family != "primary")
    unfinished = [case for case in cases if case.outcome == "unfinished"]
    lacking = [case for case in cases if case.outcome == "too few pairs"]
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


def _comparisons(table: StudyTable, cases: Sequence[Case], is_same_quantity: bool) -> Table:
    """Return a line for each comparison, which names its quantity unless it is the same for all."""
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for case in cases:
        name, style = f"  {case.name}", ""
        if table.is_own(case.row):
            name, style = f"{terminal.MARK}{case.name}", "bold"

        quantity = "" if is_same_quantity else quantity_text(case.cell)
        cells = [text for text in (name, quantity) if text] + list(brief(case))
        grid.add_row(*map(Text, cells), style=style)
    return grid


def _evidence(table: StudyTable, primary: Sequence[Case], secondary: Sequence[Case]) -> list[str]:
    """Return what interval and p are, and which difference the seeds of the first family detect."""
    # Correction
    counts = [family[0].correction.text() for family in (primary, secondary) if family]
    counted = counts[0]
    if len(counts) == 2:
        counted += f" (others: {counts[1]})"
    text = f"p after Holm's correction for {counted}. Intervals of 95 % are not corrected."

    # Power
    undecided = [case for case in primary or secondary if case.outcome == "undecided"]
    sizes: dict[str, float] = {}
    for case in undecided:
        difference = detectable_difference(case)
        if difference is not None:
            sizes[f"{case.cell.size(difference)} ({case.name})"] = difference
    if sizes:
        ordered = sorted(sizes, key=lambda name: sizes[name])
        detected = " to ".join(dict.fromkeys([ordered[0], ordered[-1]]))
        if len(ordered) == 1:
            detected, _, _ = ordered[0].rpartition(" (")
        text += f" {plural(undecided[0].cell.pairs, 'pair')} detect {detected} with 80 % power."

    # Seeds that the margin needs
    seeds = verdict.advised(table)
    if undecided and seeds and seeds > len(table.seeds):
        text += f" The margin takes about {seeds}, including the correction for a further look."
    return [text]


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
