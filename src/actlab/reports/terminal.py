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

from actlab.analysis import comparison, verdict
from actlab.analysis.results import Results
from actlab.reports import parameters, tables
from actlab.reports.notes import footnotes

MARK = "> "  # before the user's activations
PIPE = 120  # characters: the widest single table in a pipe, which has no width
_WIDEST = 10_000  # characters: wider than any table, to measure the width that a table needs


def print_table(results: Results, file: TextIO | None = None) -> None:
    """Print title, tables and footnotes; in a pipe, lines are as wide as the table: no name is cut off."""
    console = Console(file=file or sys.stdout, highlight=False)
    terminal = console.is_terminal
    wide = _table(*tables.grid(results), tables.by_user(results))
    whole = _width_of(console, wide) <= (console.width if terminal else PIPE)
    printed: list[Text | Table] = [wide] if whole else narrow(results)
    if not terminal:
        console.width = max(80, *(_width_of(console, table) for table in printed))
    console.print(Text(results.study.title, style="bold"), "", sep="\n", soft_wrap=False)
    console.print(*printed, "", sep="\n", soft_wrap=False)
    if sentences := verdict.lines(results):
        head = Text("Verdict", style="bold")
        console.print(head, *map(Text, sentences), "", sep="\n", soft_wrap=not terminal)
    if learnt := parameters.lines(results):
        head = Text(parameters.TITLE, style="bold")
        console.print(head, *map(Text, learnt), "", sep="\n", soft_wrap=not terminal)
    notes = footnotes(results, brief=not whole)
    if not whole and any(cell.p_holm is not None for row in comparison.rows(results) for cell in row.cells):
        notes.append(
            "Median differences and probabilities of being better: `show --json`, or a wider terminal."
        )
    console.print(*map(Text, notes), sep="\n", soft_wrap=not terminal)


def narrow(results: Results) -> list[Text | Table]:
    """Return a table of settings and costs, and one per metric; with usual names they fit 80 characters."""
    printed: list[Text | Table] = []
    for title, head, body in tables.sections(results, brief=True):
        printed += [Text(f"\n{title}", style="bold")] if title else []
        printed.append(_table(head, body, tables.by_user(results)))
    return printed


def _table(head: Sequence[str], body: Sequence[Sequence[str]], by_user: Sequence[bool]) -> Table:
    """Return a table; the rows of the user's activations are bold, and marked for output without styles."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for i, words in enumerate(head):
        table.add_column(Text(words), justify="left" if i == 0 else "right", overflow="fold")
    for (first, *others), mine in zip(body, by_user, strict=True):
        name, look = (f"{MARK}{first}", "bold") if mine else (first, "")
        table.add_row(*map(Text, [name, *others]), style=look)
    return table


def _width_of(console: Console, table: Text | Table) -> int:
    return Measurement.get(console, console.options.update_width(_WIDEST), table).maximum
