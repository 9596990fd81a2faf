"""Print a study's table in a terminal or pipe: one table if it fits, else a narrow table per metric."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from actlab.analysis import notes, parameters
from actlab.analysis.study_table import StudyTable
from actlab.reports import tables

MARK = "> "  # before the user's activations
PIPE = 120  # characters: the widest single table in a pipe, which has no width
_WIDEST = 10_000  # characters: wider than any table, to measure the width that a table needs


def print_table(table: StudyTable, file: TextIO | None = None) -> None:
    """Print title, tables and footnotes; in a pipe, lines are as wide as the table: no name is cut off."""
    console = Console(file=file or sys.stdout, highlight=False)
    terminal = console.is_terminal
    own = tables.by_user(table)

    # One table if it fits, else a narrow one per metric
    wide = _table(*tables.grid(table), own)
    whole = _width_of(console, wide) <= (console.width if terminal else PIPE)
    printed: list[Text | Table] = [wide] if whole else narrow(table)
    if not terminal:
        console.width = max(80, *(_width_of(console, part) for part in printed))
    console.print(Text(table.title, style="bold"), "", sep="\n", soft_wrap=False)
    console.print(*printed, "", sep="\n", soft_wrap=False)

    # Sentences
    for title, lines in (("Verdict", table.summary), (parameters.TITLE, table.parameters)):
        if lines:
            head = Text(title, style="bold")
            console.print(head, *map(Text, lines), "", sep="\n", soft_wrap=not terminal)
    footnotes = list(table.footnotes)
    if not whole:
        footnotes = [note.replace(notes.BETTER, "") for note in footnotes]
        if any(cell.p_holm is not None for row in table.rows for cell in row.columns):
            footnotes.append(
                "Median differences and probabilities of being better: `show --json`, or a wider terminal."
            )
    console.print(*map(Text, footnotes), sep="\n", soft_wrap=not terminal)


def narrow(table: StudyTable) -> list[Text | Table]:
    """Return a table of settings and costs, and one per metric; with usual names they fit 80 characters."""
    printed: list[Text | Table] = []
    for title, head, body in tables.sections(table, brief=True):
        if title:
            printed.append(Text(f"\n{title}", style="bold"))
        printed.append(_table(head, body, tables.by_user(table)))
    return printed


def _table(head: Sequence[str], body: Sequence[Sequence[str]], by_user: Sequence[bool]) -> Table:
    """Return a table; the rows of the user's activations are bold, and marked for output without styles."""
    printed = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for i, words in enumerate(head):
        printed.add_column(Text(words), justify="left" if i == 0 else "right", overflow="fold")
    for (first, *others), mine in zip(body, by_user, strict=True):
        name, look = (f"{MARK}{first}", "bold") if mine else (first, "")
        printed.add_row(*map(Text, [name, *others]), style=look)
    return printed


def _width_of(console: Console, table: Text | Table) -> int:
    return Measurement.get(console, console.options.update_width(_WIDEST), table).maximum
