"""Format a study's table as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from actlab.analysis.columns import Column
from actlab.analysis.statistics import FEWEST, p_text
from actlab.analysis.study_table import Cell, Row, StudyTable
from actlab.analysis.wording import digits
from actlab.studies.points import short_names

NONE = "-"
EDGE = " (edge)"  # after a chosen value at an end of what was tried

Part = tuple[str, list[str], list[list[str]]]  # title, header and rows


def grid(table: StudyTable) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table as text, without columns that are empty in every row."""
    reference = table.reference_text
    columns = table.shown

    # A text for each header
    lines = []
    for row in table.rows:
        line = point(table, row) | trained(table, row)
        for index in columns:
            cell = row.columns[index]
            for head, text in _cells(cell, reference, brief=False).items():
                line[_with_metric(cell.name, head)] = text
        line |= cost(row.cost, reference)
        lines.append(line)
    return _filled(lines)


def summary(
    table: StudyTable, rows: Sequence[Row], metrics: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table that has the primary metric first and in detail.

    Args:
        table: the table of the study.
        rows: its rows, in the order in which they are printed.
        metrics: indices of the other columns, of which only the median is printed.
    """
    # The texts of each row by header
    reference = table.reference_text
    lines = []
    for row in rows:
        line = point(table, row) | trained(table, row)

        # Runs, unless all have finished
        if all(other.finished == other.planned for other in rows):
            del line["runs"]

        # The primary metric, and the medians of the others
        if row.columns:
            cell = row.primary
            line[f"{_two_lines(cell)}\nmedian [interval]"] = median_with_interval(cell)
            line[f"difference to\n{reference}, mean"] = _mean(cell)
            line["published\n(ours − it)"] = published(cell)
        for index in metrics:
            cell = row.columns[index]
            line[_two_lines(cell)] = median(cell)
            line[f"{_two_lines(cell)}\npublished"] = number(cell.published, cell)

        # Ratios to the reference
        costs = cost(row.cost, reference)
        del costs["ms per\nupdate"]
        lines.append(line | costs)
    return _filled(lines)


def _two_lines(column: Column) -> str:
    """Return the name of a column with its details on a second line; a last value has none."""
    name, _, details = column.name.partition(" (")
    if details in ("", "last)"):
        *words, last = name.split(" ")
        if len(words) > 1 and not column.in_percent:
            return f"{' '.join(words)}\n{last}"
        return name
    return f"{name}\n{details.removesuffix(')')}"


def _mean(cell: Cell) -> str:
    """Return the mean difference to the reference; empty for the reference."""
    if not cell.pairs or cell.paired.mean is None:
        return ""
    return number(cell.paired.mean, cell, signed=True)


def sections(table: StudyTable, brief: bool = False) -> list[Part]:
    """Return title, header and rows of each part of the table.

    The first part has settings and costs and no title; each metric has a part of its own. ``brief``
    parts fit into 80 characters.
    """
    reference = table.reference_text
    points = [point(table, row) for row in table.rows]

    # Settings and costs
    lines = []
    for texts, row in zip(points, table.rows, strict=True):
        lines.append(texts | trained(table, row) | cost(row.cost, reference))
    parts = [("", *_filled(lines))]

    # Each metric
    for index in table.shown:
        lines = []
        for texts, row in zip(points, table.rows, strict=True):
            lines.append(texts | _cells(row.columns[index], reference, brief))
        name = title(table.rows[0].columns[index])
        parts.append((name, *_filled(lines)))
    return parts


def title(cell: Cell) -> str:
    """Return the name of a cell's column, and whether it is the primary one."""
    if cell.primary:
        return f"{cell.name}, primary"
    return cell.name


def by_user(table: StudyTable) -> list[bool]:
    """Return for each row whether its activation is the user's, which is emphasised."""
    return [table.is_own(row) for row in table.rows]


def _filled(lines: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows without the columns that are empty in every row."""
    # Columns with a text
    head = []
    for name in lines[0]:
        texts = {line[name] for line in lines}
        if texts - {"", NONE}:
            head.append(name)

    rows = []
    for line in lines:
        rows.append([line[name] or NONE for name in head])
    return head, rows


def point(table: StudyTable, row: Row) -> dict[str, str]:
    """Return the printed grid point of a row by short key."""
    # "runs" is a column of its own.
    names = short_names([*row.point, *table.tuned, "runs"])
    return {names[key]: table.text(key, value) for key, value in row.point.items()}


def trained(table: StudyTable, row: Row) -> dict[str, str]:
    """Return what was trained for a row, by header.

    These are the selected values, the settings tried, ``9 (relu 3)``, and the runs, ``3 of 5, 1
    diverged``.
    """
    names = short_names([*row.point, *table.tuned])
    line = {}

    # Selected values; a star marks a selection before all runs have ended
    for key in table.tuned:
        text = ""
        if key in row.chosen:
            text = table.text(key, row.chosen[key])
            if row.provisional and row.settings > 1:
                text += "*"
            if key in row.edges:
                text += EDGE
        line[f"{names[key]}\n(chosen)"] = text

    # Settings tried
    settings = ""
    if table.tried:
        settings = str(row.settings)
        if row.reference_settings not in (None, row.settings):
            settings += f" ({table.reference_text} {row.reference_settings})"
    line["settings\ntried"] = settings

    # Runs
    ended = row.finished + row.diverged
    count = str(ended)
    if ended != row.planned:
        count += f" of {row.planned}"
    if row.diverged:
        count += f", {row.diverged} diverged"
    line["runs"] = count
    return line


def cost(cost: Mapping[str, Any] | None, reference: str) -> dict[str, str]:
    """Return time and memory of an update, by header; the text of an unknown value is empty."""
    cost = cost or {}

    # Time in milliseconds
    milliseconds = ""
    if cost:
        milliseconds = digits(1e3 * cost["seconds_per_update"])
    line = {"ms per\nupdate": milliseconds}

    # Ratios to the reference
    for head, key in (("time", "relative_to_reference"), ("memory", "bytes_relative")):
        ratio = ""
        if key in cost:
            ratio = f"{cost[key]:.2f}"
        line[f"{head}\n/ {reference}"] = ratio
    return line


def _with_metric(metric: str, head: str) -> str:
    """Return the header of a metric's column in the grid, where it names the metric."""
    name, _, detail = head.partition("\n")
    if detail:
        return f"{metric}, {name}\n{detail}"
    return f"{metric}\n{name}"


def _cells(cell: Cell, reference: str, brief: bool) -> dict[str, str]:
    texts = {
        "median": median_with_interval(cell),
        "test set\n±": number(cell.sampling_error, cell),
    }
    if brief:  # within 80 characters
        texts["published\n(ours - it)"] = published(cell)
        texts[f"difference to {reference}\nmean [interval]"] = mean_difference(cell)
        texts["p\nalone / Holm"] = p_values(cell)
    else:
        texts["published (ours - it)"] = published(cell)
        texts[f"difference to {reference}\nmean [interval] / median"] = difference(cell)
        texts[f"better than {reference}\nprobability [interval]"] = probability(cell)
        texts[f"p vs {reference}\nalone / Holm"] = p_values(cell)
    return texts


def p_values(cell: Cell) -> str:
    """Return the p-value before and after correction, ``0.04 / 0.23``."""
    texts = []
    for p in (cell.p, cell.p_holm):
        if p is not None:
            texts.append(p_text(p))
    return " / ".join(texts) or NONE


def probability(cell: Cell) -> str:
    """Return the probability of being better than the reference: ``0.93 [0.71, 0.99]``."""
    if cell.better is None:
        return NONE
    return cell.better.text or NONE


def median_with_interval(cell: Cell) -> str:
    """Return median and interval, and mean and standard deviation if the paper gives the latter."""
    # Median
    text = median(cell)
    interval_text = interval(cell)

    # An interval says nothing if all of its numbers are infinite
    values = [cell.median, *(cell.interval or ())[:2]]
    if interval_text and cell.median is not None and any(map(math.isfinite, values)):
        text = f"{text} {interval_text}"
    if cell.mean is not None:
        text = f"{text}, {plus_minus(cell, cell.mean, cell.sd)}"
    return text


def median(cell: Cell) -> str:
    """Return the median."""
    return number(cell.median, cell, diverged=cell.diverged)


def interval(cell: Cell) -> str:
    """Return the interval of the median: ``[4.00, 4.10]``; empty for a single run."""
    if cell.interval is None or cell.n < 2:
        return ""
    low = number(cell.interval.low, cell, diverged=cell.diverged)
    high = number(cell.interval.high, cell, diverged=cell.diverged)
    return f"[{low}, {high}]"


def published(cell: Cell) -> str:
    """Return the published value, and our difference to it."""
    text = plus_minus(cell, cell.published, cell.published_sd)
    if cell.difference is not None:
        text = f"{text} ({number(cell.difference, cell, signed=True)})"
    return text


def plus_minus(column: Column, mean: float | None, sd: float | None) -> str:
    """Return a mean as printed, with its standard deviation if there is one: ``2.10 ± 0.05``."""
    text = number(mean, column)
    if sd is not None:
        text = f"{text} ± {number(sd, column)}"
    return text


def difference(cell: Cell) -> str:
    """Return mean and median of the paired differences; `NONE` with too few pairs for a test."""
    if cell.pairs < FEWEST:
        return NONE
    centre = cell.paired.median
    text = number(centre, cell, signed=True)
    if centre is not None and math.isinf(centre):  # most runs of one side diverged
        text = "+∞" if centre > 0 else "−∞"
    return f"{mean_difference(cell)} / {text}"


def mean_difference(cell: Cell) -> str:
    """Return a mean difference with its interval, ``−0.10 [−0.17, −0.03]``.

    With too few pairs for a test, the text is `NONE`.
    """
    if cell.pairs < FEWEST:
        return NONE
    mean, low, high = (number(value, cell, signed=True) for value in cell.paired[:3])
    if cell.paired.low is None:
        return mean
    return f"{mean} [{low}, {high}]"


def number(
    value: float | None, column: Column, signed: bool = False, diverged: bool = True
) -> str:
    """Return a value as `Column.text`.

    The text of a value that is not finite is ``never`` for an epoch that no run reached,
    ``diverged`` if a run diverged, and else ∞.
    """
    if value is None:
        return NONE
    if math.isfinite(value):
        return column.text(value, signed)

    # Infinite values
    if column.is_epoch:
        return "never"
    if diverged:
        return "diverged"
    return "∞" if value > 0 else "−∞"
