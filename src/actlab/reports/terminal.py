"""Print a study's table in a terminal or pipe: a single table if it fits, else one per metric."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from actlab.analysis import notes, parameters
from actlab.analysis.study_table import Row, StudyTable
from actlab.reports import tables

MARK = "> "  # before the user's activations
PIPE = 120  # characters: the widest single table in a pipe, which has no width
# Characters: wider than any table, to measure the width that a table needs.
_WIDEST = 10_000


def print_table(table: StudyTable, file: TextIO | None = None) -> None:
    """Print title, tables and footnotes; in a pipe, lines are as wide as the table."""
    console, widest = open_console(file)

    # A single table if it fits, else a narrow one for each metric
    head, body = tables.grid(table)
    wide = layout(head, body, tables.by_user(table))
    fits = width_of(console, wide) <= widest
    parts: list[Text | Table] = [wide]
    if not fits:
        parts = narrow(table)

    # In a pipe, no name is cut off
    if not console.is_terminal:
        console.width = max(80, *(width_of(console, part) for part in parts))
    console.print(Text(table.title, style="bold"), "", sep="\n", soft_wrap=False)
    console.print(*parts, "", sep="\n", soft_wrap=False)

    # Sentences
    soft_wrap = not console.is_terminal
    for title, sentences in (
        ("Verdict", table.summary),
        (parameters.TITLE, table.parameters),
    ):
        if sentences:
            heading = Text(title, style="bold")
            console.print(
                heading, *map(Text, sentences), "", sep="\n", soft_wrap=soft_wrap
            )

    # Footnotes; narrow tables have neither median differences nor probabilities
    footnotes = list(table.footnotes)
    if not fits:
        footnotes = [note.replace(notes.BETTER, "") for note in footnotes]
        if any(_has_p_value(row) for row in table.rows):
            footnotes.append(
                "Median differences and probabilities of being better: `show --json`, "
                "or a wider terminal."
            )
    console.print(*map(Text, footnotes), sep="\n", soft_wrap=soft_wrap)


def _has_p_value(row: Row) -> bool:
    return any(cell.p_holm is not None for cell in row.columns)


def narrow(table: StudyTable) -> list[Text | Table]:
    """Return a table of settings and costs, and one for each metric.

    With names of usual length, they fit into 80 characters.
    """
    parts: list[Text | Table] = []
    for title, head, body in tables.sections(table, brief=True):
        if title:
            parts.append(Text(f"\n{title}", style="bold"))
        parts.append(layout(head, body, tables.by_user(table)))
    return parts


def open_console(file: TextIO | None) -> tuple[Console, int]:
    """Return a console on a file, by default the standard output, and its widest table."""
    console = Console(file=file or sys.stdout, highlight=False)
    if console.is_terminal:
        return console, console.width
    return console, PIPE


def layout(
    head: Sequence[str], body: Sequence[Sequence[str]], by_user: Sequence[bool]
) -> Table:
    """Return a table; the user's rows are bold, and marked for output without styles."""
    # A line below the header is the only rule
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
    )

    # Names of rows on the left, numbers on the right
    for index, name in enumerate(head):
        justify: Literal["left", "right"] = "right" if index else "left"
        table.add_column(Text(name), justify=justify, overflow="fold")

    # Mark the user's rows
    for row, is_own in zip(body, by_user, strict=True):
        label, *cells = row
        style = ""
        if is_own:
            label = f"{MARK}{label}"
            style = "bold"
        table.add_row(Text(label), *map(Text, cells), style=style)
    return table


def width_of(console: Console, table: Text | Table) -> int:
    """Return the width that a table needs."""
    options = console.options.update_width(_WIDEST)
    return Measurement.get(console, options, table).maximum
