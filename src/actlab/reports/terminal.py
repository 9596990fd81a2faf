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

from actlab.analysis import comparison, scoreboard, verdict
from actlab.analysis.results import Results
from actlab.analysis.scoreboard import Board, StoredTable
from actlab.reports import effects, tables
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
        console.print(
            Text("Verdict", style="bold"), *map(Text, sentences), "", sep="\n", soft_wrap=not terminal
        )
    notes = footnotes(results, brief=not whole)
    if not whole and any(cell.p_holm is not None for row in comparison.rows(results) for cell in row.cells):
        notes.append(
            "Median differences and probabilities of being better: `show --json`, or a wider terminal."
        )
    for line in notes:
        console.print(Text(line), soft_wrap=not terminal)


def narrow(results: Results) -> list[Text | Table]:
    """Return a table of settings and costs, and one per metric; with usual names they fit 80 characters."""
    printed: list[Text | Table] = []
    for title, head, body in tables.sections(results, brief=True):
        printed += [Text(f"\n{title}", style="bold")] if title else []
        printed.append(_table(head, body, tables.by_user(results)))
    return printed


def print_boards(records: Sequence[StoredTable], file: TextIO | None = None) -> None:
    """Print each scoreboard: over tasks, then the differences to the reference in each, then medians."""
    console = Console(file=file or sys.stdout, highlight=False)
    boards = scoreboard.boards(records)
    for board in boards:
        lines = [(label, effects.better(mean), effects.tasks(mean)) for label, mean in board.means.items()]
        _print_lines(console, board, "over tasks", effects.over_tasks(board), lines)
        for task, shown in effects.compared(board):
            what = f"{task.column.name}, difference to {task.reference}; {effects.direction(task.column)}"
            lines = []
            for effect in shown:
                pairs, chance = effects.pairs([effect]), ", chance" if effect.place.chance else ""
                lines.append((effect.label, effects.text(effect.difference, task.column), f"{pairs}{chance}"))
            _print_lines(console, board, task.name, what, lines)
    for line in effects.notes(boards):
        console.print(Text(line), "", sep="\n", soft_wrap=not console.is_terminal)
    for board in boards:
        body = []
        for task in board.tasks:
            where = ", ".join(filter(None, (task.point, task.column.name)))
            cells = (effects.median(task, label) for label in board.labels)
            texts = [f"{median} ({marks})" if marks else median for median, marks in cells]
            body.append([f"{task.record.table['study']}\n  {where}", *texts])
        table = _table(["task", *(_marked(label, board) for label in board.labels)], body)
        if not console.is_terminal:
            console.width = max(80, _width_of(console, table))
        console.print(table, "", sep="\n", soft_wrap=False)
        for note in board.notes:
            console.print(Text(note), soft_wrap=not console.is_terminal)
    for note in scoreboard.common_notes(records):
        console.print(Text(note), soft_wrap=not console.is_terminal)


def _marked(label: str, board: Board) -> str:
    return f"{MARK}{label}" if label in board.users else label


def _print_lines(console: Console, board: Board, title: str, what: str, lines: Sequence[Sequence[str]]) -> None:
    if not lines:
        return
    names = [_marked(label, board) for label, *_ in lines]
    widest, longest = max(map(len, names)), max(len(text) for _, text, _ in lines)
    console.print(Text(title, style="bold"), Text(f"  {what}"), sep="\n", soft_wrap=True)
    for name, (label, text, number) in zip(names, lines, strict=True):
        line = Text(f"  {name:<{widest}}  {text:>{longest}}  {number}")
        line.stylize("bold" if label in board.users else "", 2, 2 + len(name))
        console.print(line, soft_wrap=True)
    console.print()


def _table(head: Sequence[str], body: Sequence[Sequence[str]], by_user: Sequence[bool] = ()) -> Table:
    """Return a table; the rows of the user's activations are bold, and marked for output without styles."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for i, words in enumerate(head):
        table.add_column(Text(words), justify="left" if i == 0 else "right", overflow="fold")
    for (first, *others), mine in zip(body, by_user or [False] * len(body), strict=True):
        name, look = (f"{MARK}{first}", "bold") if mine else (first, "")
        table.add_row(*map(Text, [name, *others]), style=look)
    return table


def _width_of(console: Console, table: Text | Table) -> int:
    return Measurement.get(console, console.options.update_width(_WIDEST), table).maximum
