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
    reference, shown = table.reference_text, table.shown
    lines = []
    for row in table.rows:
        line = point(table, row) | trained(table, row)
        for number in shown:
            cell = row.columns[number]
            for head, text in _cells(cell, reference, brief=False).items():
                line[_joined(cell.name, head)] = text
        lines.append(line | cost(row.cost, reference))
    return _filled(lines)


def sections(table: StudyTable, brief: bool = False) -> list[Part]:
    """Return title, header and rows of each part: settings and costs without a title, then each metric.

    ``brief`` parts fit into 80 characters.
    """
    reference = table.reference_text
    points = [point(table, row) for row in table.rows]

    # Settings and costs
    lines = []
    for of_point, row in zip(points, table.rows, strict=True):
        lines.append(of_point | trained(table, row) | cost(row.cost, reference))
    parts = [("", *_filled(lines))]

    # Each metric
    for number in table.shown:
        lines = []
        for of_point, row in zip(points, table.rows, strict=True):
            cell = row.columns[number]
            lines.append(of_point | _cells(cell, reference, brief))
        parts.append((title(table.rows[0].columns[number]), *_filled(lines)))
    return parts


def title(cell: Cell) -> str:
    """Return the name of a cell's column, and whether it is the primary one."""
    return f"{cell.name}, primary" if cell.primary else cell.name


def by_user(table: StudyTable) -> list[bool]:
    """Return for each row whether it is of an activation of the user, which is emphasised."""
    return [table.is_own(row) for row in table.rows]


def _filled(lines: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows without the columns that are empty in every row."""
    head = [name for name in lines[0] if any(line[name] not in ("", NONE) for line in lines)]
    return head, [[line[name] or NONE for name in head] for line in lines]


def point(table: StudyTable, row: Row) -> dict[str, str]:
    """Return the printed grid point of a row by short key."""
    names = short_names([*row.point, *table.tuned, "runs"])  # "runs" is a column of its own
    return {names[key]: table.text(key, value) for key, value in row.point.items()}


def trained(table: StudyTable, row: Row) -> dict[str, str]:
    """Return selected values, settings tried, ``9 (relu 3)``, and runs, ``3 of 5, 1 diverged``, by header."""
    names = short_names([*row.point, *table.tuned])
    line = {}

    # Selected values
    star = "*" if row.provisional and row.settings > 1 else ""
    for key in table.tuned:
        text = ""
        if key in row.chosen:
            text = table.text(key, row.chosen[key]) + star
            text += EDGE if key in row.edges else ""
        line[f"{names[key]}\n(chosen)"] = text

    # Settings tried
    settings = str(row.settings) if table.tried else ""
    if settings and row.reference_settings not in (None, row.settings):
        settings += f" ({table.reference_text} {row.reference_settings})"
    line["settings\ntried"] = settings

    # Runs
    ended = row.finished + row.diverged
    count = str(ended) if ended == row.planned else f"{ended} of {row.planned}"
    if row.diverged:
        count += f", {row.diverged} diverged"
    line["runs"] = count
    return line


def cost(cost: Mapping[str, Any] | None, reference: str) -> dict[str, str]:
    """Return time and memory of an update, by header; empty where its own or the reference's are unknown."""
    line = {"ms per\nupdate": digits(1e3 * cost["seconds_per_update"]) if cost else ""}
    for head, key in (("time", "relative_to_reference"), ("memory", "bytes_relative")):
        line[f"{head}\n/ {reference}"] = f"{cost[key]:.2f}" if cost and key in cost else ""
    return line


def _joined(name: str, head: str) -> str:
    """Return the header of a metric's column in the whole table: the metric's name joined with ``head``."""
    first, line, rest = head.partition("\n")
    return f"{name}, {first}\n{rest}" if line else f"{name}\n{first}"


def _cells(cell: Cell, reference: str, brief: bool) -> dict[str, str]:
    texts = {"median": ours(cell), "test set\n±": number(cell.sampling_error, cell)}
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
    return " / ".join(p_text(p) for p in (cell.p, cell.p_holm) if p is not None) or NONE


def probability(cell: Cell) -> str:
    """Return the probability of being better than the reference: ``0.93 [0.71, 0.99]``."""
    return (cell.better.text if cell.better else "") or NONE


def ours(cell: Cell) -> str:
    """Return median and interval, and mean and standard deviation if the paper gives a standard deviation."""
    text = middle(cell)
    ends = cell.interval[:2] if cell.interval else ()
    if cell.median is not None and any(map(math.isfinite, (cell.median, *ends))):
        text = " ".join(filter(None, [text, interval(cell)]))
    return text if cell.mean is None else f"{text}, {plus_minus(cell, cell.mean, cell.sd)}"


def middle(cell: Cell) -> str:
    """Return the median."""
    return number(cell.median, cell, diverged=cell.diverged)


def interval(cell: Cell) -> str:
    """Return the interval of the median: ``[4.00, 4.10]``; empty for a single run."""
    if cell.interval is None or cell.n < 2:
        return ""
    low, high = (number(end, cell, diverged=cell.diverged) for end in cell.interval[:2])
    return f"[{low}, {high}]"


def published(cell: Cell) -> str:
    """Return the published value, and the difference of ours to it."""
    text = plus_minus(cell, cell.published, cell.published_sd)
    return (
        text
        if cell.difference is None
        else f"{text} ({number(cell.difference, cell, signed=True)})"
    )


def plus_minus(column: Column, mean: float | None, sd: float | None) -> str:
    """Return a mean as printed, with its standard deviation if there is one: ``2.10 ± 0.05``."""
    return number(mean, column) if sd is None else f"{number(mean, column)} ± {number(sd, column)}"


def difference(cell: Cell) -> str:
    """Return the paired differences as `mean_difference`, then their median; `NONE` with too few for a test."""
    if cell.pairs < FEWEST:
        return NONE
    centre = cell.paired.median
    text = number(centre, cell, signed=True)
    if centre is not None and math.isinf(centre):  # most runs of one side diverged
        text = "+∞" if centre > 0 else "-∞"
    return f"{mean_difference(cell)} / {text}"


def mean_difference(cell: Cell) -> str:
    """Return a mean difference with its interval, ``-0.10 [-0.17, -0.03]``; `NONE` with too few for a test."""
    if cell.pairs < FEWEST:
        return NONE
    mean, low, high = (number(of, cell, signed=True) for of in cell.paired[:3])
    return mean if cell.paired.low is None else f"{mean} [{low}, {high}]"


def number(value: float | None, column: Column, signed: bool = False, diverged: bool = True) -> str:
    """Return a value as `Column.text`; one that is not finite is ``diverged`` if a run did, ``never`` or ∞."""
    if value is None:
        return NONE
    # Of a diverged run, measured as such, or an epoch that no run reached
    if not math.isfinite(value):
        if column.is_epoch:
            return "never"
        return "diverged" if diverged else "∞" if value > 0 else "-∞"
    return column.text(value, signed)
