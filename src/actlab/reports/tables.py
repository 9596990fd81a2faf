"""Format a study's table as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from actlab.analysis import comparison
from actlab.analysis.columns import Column
from actlab.analysis.comparison import Cell, TableRow
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, p_text
from actlab.analysis.wording import digits
from actlab.studies.points import short_names

NONE = "-"
EDGE = " (edge)"  # after a chosen value at an end of what was tried


def grid(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table as text, without columns that are empty in every row."""
    reference, lines = comparison.reference_text(results), []
    seen = shown(results)
    for row in comparison.rows(results):
        line = point(results, row) | trained(results, row)
        for cell in (row.cells[number] for number in seen):
            texts = _cells(cell, reference, brief=False)
            line |= {_joined(cell.column.name, head): text for head, text in texts.items()}
        lines.append(line | cost(row.cost, reference))
    return filled(lines)


def sections(results: Results, brief: bool = False) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return title, header and rows of each part: settings and costs without a title, then each metric."""
    rows, reference = comparison.rows(results), comparison.reference_text(results)
    points = [point(results, row) for row in rows]
    whole = (trained(results, row) | cost(row.cost, reference) for row in rows)
    parts = [("", [p | more for p, more in zip(points, whole, strict=True)])]
    for number in shown(results):
        cells = [row.cells[number] for row in rows]
        lines = [p | _cells(cell, reference, brief) for p, cell in zip(points, cells, strict=True)]
        parts.append((title(results, results.columns[number]), lines))
    return [(name, *filled(lines)) for name, lines in parts]


def title(results: Results, column: Column) -> str:
    """Return the name of a column, and whether it is the primary one."""
    return f"{column.name}, primary" if column == results.primary else column.name


def shown(results: Results) -> list[int]:
    """Return the indices of the columns that have a value in any row; all before a run has ended."""
    rows = comparison.rows(results)
    return [
        number
        for number, column in enumerate(results.columns)
        if not results.results or any(row.cells[number].median is not None for row in rows)
        if column not in results.learnt  # lines below the verdict, see `parameters`
    ]


def by_user(results: Results) -> list[bool]:
    """Return for each row of the table whether it is of an activation of the user, which is emphasised."""
    return [results.study.has_own(group.point) for group in results.groups]


def filled(lines: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows without the columns that are empty in every row."""
    head = [name for name in lines[0] if any(line[name] not in ("", NONE) for line in lines)]
    return head, [[line[name] or NONE for name in head] for line in lines]


def point(results: Results, row: TableRow) -> dict[str, str]:
    """Return the printed grid point of a row by short key."""
    names = short_names([*row.point, *results.study.select.tune, "runs"])  # "runs" is a column of its own
    return {names[key]: results.text(key, value) for key, value in row.point.items()}


def trained(results: Results, row: TableRow) -> dict[str, str]:
    """Return selected values, settings tried, ``9 (relu 3)``, and runs, ``3 of 5, 1 diverged``, by header."""
    tune, ended = results.study.select.tune, row.finished + row.diverged
    star = "*" if row.provisional and row.tried > 1 else ""
    names = short_names([*row.point, *tune])
    line = {}
    for key in tune:
        text = f"{results.text(key, row.chosen[key])}{star}" if key in row.chosen else ""
        line[f"{names[key]}\n(chosen)"] = f"{text}{EDGE}" if text and key in row.edges else text
    tried, count = str(row.tried), str(ended) if ended == row.planned else f"{ended} of {row.planned}"
    if row.reference_tried not in (None, row.tried):
        tried += f" ({comparison.reference_text(results)} {row.reference_tried})"
    if row.diverged:
        count += f", {row.diverged} diverged"
    return {**line, "settings\ntried": tried if shows_settings(results) else "", "runs": count}


def cost(cost: Mapping[str, Any] | None, reference: str) -> dict[str, str]:
    """Return time and memory of an update, by header; empty where its own or the reference's are unknown."""
    line = {"ms per\nupdate": digits(1e3 * cost["seconds_per_update"]) if cost else ""}
    for head, key in (("time", "relative_to_reference"), ("memory", "bytes_relative")):
        line[f"{head}\n/ {reference}"] = f"{cost[key]:.2f}" if cost and key in cost else ""
    return line


def shows_settings(results: Results) -> bool:
    """Return whether the table has a column of numbers of settings: some were tried here or before."""
    return bool(results.study.select.tune or results.study.tried)


def _joined(name: str, head: str) -> str:
    """Return the header of a metric's column in the whole table: the metric's name joined with ``head``."""
    first, line, rest = head.partition("\n")
    return f"{name}, {first}\n{rest}" if line else f"{name}\n{first}"


def _cells(cell: Cell, reference: str, brief: bool) -> dict[str, str]:
    texts = {"median": ours(cell), "test set\n±": number(cell.sampling_error, cell.column)}
    if brief:  # within 80 characters
        return texts | {
            "published\n(ours - it)": published(cell),
            f"difference to {reference}\nmean [interval]": difference(cell, median=False),
            "p\nalone / Holm": p_values(cell),
        }
    return texts | {
        "published (ours - it)": published(cell),
        f"difference to {reference}\nmean [interval] / median": difference(cell),
        f"better than {reference}\nprobability [interval]": probability(cell),
        f"p vs {reference}\nalone / Holm": p_values(cell),
    }


def p_values(cell: Cell) -> str:
    """Return the p-value before and after correction, ``0.04 / 0.23``."""
    return " / ".join(p_text(p) for p in (cell.p, cell.p_holm) if p is not None) or NONE


def probability(cell: Cell) -> str:
    """Return the probability of being better than the reference: ``0.93 [0.71, 0.99]``."""
    return (cell.better.text if cell.better else "") or NONE


def ours(cell: Cell) -> str:
    """Return median and interval, and mean and standard deviation if the paper gives a standard deviation."""
    column = cell.column
    text = number(cell.median, column, diverged=cell.diverged)
    if cell.interval and cell.median is not None and any(map(math.isfinite, (cell.median, *cell.interval[:2]))):
        text = " ".join(filter(None, [text, interval(cell)]))
    if cell.mean_and_sd:
        text += f", {plus_minus(cell.mean_and_sd, column)}"
    return text


def interval(cell: Cell) -> str:
    """Return the interval of the median: ``[4.00, 4.10]``; empty for a single run."""
    if cell.interval is None or len(cell.values) < 2:
        return ""
    low, high = (number(end, cell.column, diverged=cell.diverged) for end in cell.interval[:2])
    return f"[{low}, {high}]"


def published(cell: Cell) -> str:
    """Return the published value, and the difference of ours to it."""
    text = plus_minus(cell.published, cell.column)
    if cell.beyond_published is not None:
        text += f" ({number(cell.beyond_published, cell.column, signed=True)})"
    return text


def plus_minus(pair: tuple[float, float | None] | None, column: Column) -> str:
    """Return a mean as printed, with its standard deviation if there is one: ``2.10 ± 0.05``."""
    mean, sd = pair or (None, None)
    return number(mean, column) if sd is None else f"{number(mean, column)} ± {number(sd, column)}"


def difference(cell: Cell, median: bool = True) -> str:
    """Return the paired differences as `mean_difference`, then their median; `NONE` with too few for a test."""
    paired, column = cell.difference, cell.column
    if paired.pairs < FEWEST:
        return NONE
    middle = number(paired.median, column, signed=True)
    if paired.median is not None and math.isinf(paired.median):  # most runs of one side diverged
        middle = "+∞" if paired.median > 0 else "-∞"
    text = mean_difference(paired.mean, paired.low, paired.high, column)
    return f"{text} / {middle}" if median else text


def mean_difference(mean: float | None, low: float | None, high: float | None, column: Column) -> str:
    """Return a mean difference with its interval, if there is one: ``-0.10 [-0.17, -0.03]``."""
    text = number(mean, column, signed=True)
    if low is None:
        return text
    return f"{text} [{number(low, column, signed=True)}, {number(high, column, signed=True)}]"


def number(value: float | None, column: Column, signed: bool = False, diverged: bool = True) -> str:
    """Return a value as `Column.text`; one that is not finite is ``diverged`` if a run did, ``never`` or ∞."""
    if value is None:
        return NONE
    if not math.isfinite(value):  # of a diverged run, measured as such, or an epoch that no run reached
        if column.is_epoch:
            return "never"
        return "diverged" if diverged else "∞" if value > 0 else "-∞"
    return column.text(value, signed)
