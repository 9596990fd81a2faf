"""The scoreboard as a page for browsers, ``index.html``.

The page has a row for each activation, and a column for each task and each data set. A script sorts
rows, and hides rows and columns. Without the script, the page shows all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from actlab.analysis.wording import digits
from actlab.reports import style
from actlab.reports.pages import rendering
from actlab.scoreboard import page_file
from actlab.scoreboard.figure import tasks_of
from actlab.scoreboard.scores import Score, Scoreboard, Standing, TaskScore, order
from actlab.scoreboard.sentences import FAILS, NONE, not_run, statements, verdict
from actlab.scoreboard.statistic import Ratio

_BOLD = re.compile(r"\*\*(.+?)\*\*")

Curve = Sequence[tuple[float, float]]  # points


@dataclass(frozen=True)
class Column:
    """A task, or a data set of it."""

    task: str
    data: str = ""  # empty for the task itself


@dataclass(frozen=True)
class Cell:
    """An activation on a task or a data set."""

    text: str  # a ratio, or why there is none
    note: str  # in words, with the selected setting
    ratio: Ratio | None = None
    marks: tuple[str, ...] = ()

    @property
    def interval(self) -> str:
        """The interval of the ratio; empty for the reference."""
        if not self.ratio or self.ratio.low == self.ratio.high:
            return ""
        return f"[{digits(self.ratio.low)}, {digits(self.ratio.high)}]"

    @property
    def sorting(self) -> str:
        """What the script sorts by: failures come after ratios, empty cells last."""
        if self.text == FAILS:
            return "Infinity"
        return str(self.ratio.value) if self.ratio else ""


def write(
    scoreboard: Scoreboard, folder: Path, reading: str, curves: Mapping[str, Curve]
) -> Path:
    """Write the page, and return its path.

    Args:
        scoreboard: all activations.
        folder: of the page.
        reading: how to read the tables, as a list in Markdown.
        curves: points of the curves of activations, by label.
    """
    standings = sorted(scoreboard.standings, key=order)
    columns = _columns(standings)

    # The cells of each activation
    lines = []
    for standing in standings:
        cells = [_cell(standing, column, scoreboard) for column in columns]
        lines.append(cells)

    # Where each column draws its ratios
    positions = []
    for cells_of_column in zip(*lines, strict=True):
        ratios = [cell.ratio for cell in cells_of_column]
        positions.append(_positions(ratios))

    # Put the rows together
    colours = style.colours(
        [standing.label for standing in standings], scoreboard.users
    )
    rows = []
    for number, (standing, cells) in enumerate(zip(standings, lines, strict=True)):
        places = [by_row[number] for by_row in positions]
        rows.append(
            {
                "standing": standing,
                "colour": colours[standing.label],
                "dark": style.on_dark(colours[standing.label]),
                "points": _points(curves.get(standing.label, ())),
                "statements": statements(standing, scoreboard),
                "cells": list(zip(columns, cells, places, strict=True)),
                "scores": _details(standing, scoreboard),
            }
        )
    return rendering.write(
        "scoreboard.html",
        folder / page_file.NAME,
        title=page_file.TITLE,
        version=scoreboard.version,
        not_run=not_run(scoreboard),
        reference=scoreboard.reference,
        tasks=tasks_of(scoreboard),
        columns=columns,
        rows=rows,
        reading=_list_items(reading),
    )


def _columns(standings: Sequence[Standing]) -> list[Column]:
    """Return the columns: each task, followed by its data sets."""
    # Collect the data sets of each task
    by_task: dict[str, dict[Column, None]] = {}
    for standing in standings:
        for score in standing.on:
            task, data = _names(score)
            columns = by_task.setdefault(task, {Column(task): None})
            columns[Column(task, data)] = None

    # Put a task before its data sets
    ordered: list[Column] = []
    for columns in by_task.values():
        ordered += columns
    return ordered


def _names(score: Score) -> tuple[str, str]:
    """Return the task of a score, and its data set."""
    task, _, data = score.name.partition(": ")
    return task, data


def _cell(standing: Standing, column: Column, scoreboard: Scoreboard) -> Cell:
    """Return the cell of an activation in a column."""
    # The scores of the task
    scores = [score for score in standing.on if _names(score)[0] == column.task]

    # The data set, or the whole task
    if column.data:
        for score in scores:
            if _names(score)[1] == column.data:
                return _data_cell(score, standing, scoreboard)
    elif column.task in standing.tasks:
        return _task_cell(column.task, scores, standing, scoreboard)

    # Some activations have runs on a part of the data sets
    return Cell(NONE, "Not run.")


def _task_cell(
    name: str, scores: Sequence[Score], standing: Standing, scoreboard: Scoreboard
) -> Cell:
    """Return the cell of an activation on a task."""
    task: TaskScore = standing.tasks[name]
    text = _text(task.ratio, task.fails, standing.label == scoreboard.reference)

    # How many of its data sets have a mark
    marks = [
        _mark(FAILS, [score.fails for score in scores]),
        _mark("edge", [score.edge for score in scores]),
        _mark("unstable", [score.unstable for score in scores]),
    ]
    marks = [mark for mark in marks if mark not in ("", text)]

    # In words
    words = []
    if task.rank is not None:
        words.append(f"Mean rank {task.rank:.1f} on {name}.")
    if standing.label != scoreboard.reference:
        words.append(
            f"A run is better than a run of {scoreboard.reference} with a probability of "
            f"{task.better:.2f}."
        )
    words.append(_settings(scores))
    return Cell(text, " ".join(words), task.ratio, tuple(marks))


def _data_cell(score: Score, standing: Standing, scoreboard: Scoreboard) -> Cell:
    """Return the cell of an activation on a data set."""
    is_reference = standing.label == scoreboard.reference
    text = _text(score.ratio, score.fails, is_reference)

    # The reference is not compared with itself
    words = verdict(score, scoreboard)
    if is_reference and not score.fails:
        words = f"{score.name}: the reference."
    note = f"{words} {_settings([score])}"
    return Cell(text, note, score.ratio, _marks(score))


def _text(ratio: Ratio | None, fails: bool, is_reference: bool) -> str:
    """Return a ratio without its interval, or why there is none."""
    if fails:
        return FAILS
    if ratio is None:
        return NONE
    if is_reference:
        return "1"
    return digits(ratio.value)


def _marks(score: Score) -> tuple[str, ...]:
    """Return the marks of the selected setting of a score."""
    marks = []
    if score.edge:
        marks.append("edge")
    if score.unstable:
        marks.append("unstable")
    return tuple(marks)


def _mark(word: str, flags: Sequence[bool]) -> str:
    """Return a mark of a task, with the number of its data sets that have it if some have not."""
    number = sum(flags)
    if not number:
        return ""
    if number == len(flags):
        return word
    return f"{word} in {number} of {len(flags)}"


def _settings(scores: Iterable[Score]) -> str:
    """Return the selected settings of some scores in a sentence."""
    # Group the data sets by their setting
    by_setting: dict[str, list[str]] = {}
    for score in scores:
        _, data = _names(score)
        by_setting.setdefault(score.setting or "as stated", []).append(data)

    # One setting for all needs no names of data sets
    if len(by_setting) == 1:
        return f"Selected setting: {next(iter(by_setting))}."

    texts = []
    for setting, names in by_setting.items():
        texts.append(f"{setting} ({', '.join(names)})")
    return f"Selected settings: {'; '.join(texts)}."


def _details(standing: Standing, scoreboard: Scoreboard) -> list[dict[str, str]]:
    """Return the texts on each data set of an activation, by header."""
    # The ratio with its interval, as in the table
    details = []
    for score in standing.on:
        cell = _data_cell(score, standing, scoreboard)

        # Count failed runs
        runs = str(score.runs)
        if score.failed:
            runs = f"{score.failed} of {score.runs} failed"

        # The texts by header
        details.append(
            {
                "data set": score.name,
                "ratio": f"{cell.text} {cell.interval}".rstrip(),
                "P": f"{score.better:.2f}",
                "runs": runs,
                "selected setting": score.setting or "as stated",
                "marks": ", ".join(cell.marks) or NONE,
            }
        )
    return details


def _positions(ratios: Sequence[Ratio | None]) -> list[dict[str, float]]:
    """Return the positions of the ratios of a column, and of 1, in percent of its width."""
    # The range of all intervals, on a logarithmic axis
    ends = [1.0]
    for ratio in ratios:
        if ratio:
            ends += [ratio.low, ratio.high]
    low = math.log(min(ends))
    span = math.log(max(ends)) - low

    # Positions of 1, the ratio and the ends of its interval
    positions = []
    for ratio in ratios:
        places = {}
        # A column in which all ratios are 1 has no axis
        if ratio and span:
            values = {"one": 1.0, **vars(ratio)}
            for name, value in values.items():
                places[name] = round(100 * (math.log(value) - low) / span, 1)
        positions.append(places)
    return positions


def _points(curve: Curve) -> str:
    """Return the points of a curve for an SVG, whose y axis points down."""
    # Without negative zeros, whose sign depends on the processor
    return " ".join(f"{x:z.1f},{-y:z.2f}" for x, y in curve)


def _list_items(markdown: str) -> list[list[tuple[bool, str]]]:
    """Return the items of a list, each as texts that are bold or not."""
    # Every second text is bold, because the pattern has one group
    items = []
    for item in markdown.removeprefix("- ").split("\n- "):
        texts = []
        for number, text in enumerate(_BOLD.split(item)):
            texts.append((number % 2 == 1, text))
        items.append(texts)
    return items
