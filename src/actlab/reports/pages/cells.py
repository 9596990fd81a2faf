"""The table of a study for a page: each number in its own cell, with its position within the column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from actlab.analysis import comparison
from actlab.analysis.comparison import Cell
from actlab.analysis.results import Results
from actlab.config.keys import short_names
from actlab.reports import style, tables
from actlab.reports.tables import number, p_value


def table(results: Results) -> dict[str, Any]:
    """Return header and rows of the table; parts that no row has are marked as absent."""
    rows, study = comparison.rows(results), results.study
    reference, base = comparison.reference_text(results), comparison.cost_base(results)
    names = short_names([*rows[0].point, *study.select.tune])
    compared = [results.text(study.compare, row.point.get(study.compare, "")) for row in rows]
    own = [study.has_own(row.point) for row in rows]
    colours = style.colours(compared, {name for name, mine in zip(compared, own, strict=True) if mine})
    columns = [[row.cells[i] for row in rows] for i in tables.shown(results)]
    trained = [[*tables.trained(results, row).values()] for row in rows]
    learnt = [tables.learnt(results, row) for row in rows]
    return {
        "points": [names[key] for key in rows[0].point],
        "tuned": [names[key] for key in study.select.tune],
        "settings": tables.shows_settings(results),
        "reference": reference,
        "base": base,
        "learnt": [head.replace("\n", " ") for head in learnt[0]],
        "costs": any(row.cost for row in rows),
        "columns": [_head(cells, cells[0].column == results.primary) for cells in columns],
        "rows": [
            {
                "chosen": [text or tables.NONE for text in chosen],
                "settings": tried,
                "runs": runs,
                "labels": [results.text(key, value) for key, value in row.point.items()],
                "own": mine,
                "colour": colours[whose],
                "dark": style.on_dark(colours[whose]),
                "cells": [_cell(column[number], column) for column in columns],
                "cost": [*learnt[number].values(), *tables.cost(row.cost, base).values()],
            }
            for number, (row, whose, mine, (*chosen, tried, runs)) in enumerate(
                zip(rows, compared, own, trained, strict=True)
            )
        ],
    }


def _head(cells: Sequence[Cell], primary: bool) -> dict[str, Any]:
    return {
        "name": cells[0].column.name + ", primary" * primary,
        "sd": any(cell.mean_and_sd for cell in cells),
        "published": any(cell.published for cell in cells),
        "difference": any(tables.difference(cell) != tables.NONE for cell in cells),
        "better": any(tables.probability(cell) != tables.NONE for cell in cells),
        "test_set": any(cell.sampling_error for cell in cells),
        "p": any(cell.p is not None for cell in cells),
    }


def _cell(cell: Cell, column: Sequence[Cell]) -> dict[str, Any]:
    of, theirs, diverged = cell.column, cell.published, cell.diverged
    spread = cell.interval if cell.interval and len(cell.values) > 1 else None
    return {
        "median": number(cell.median, of, diverged=diverged),
        "interval": f"[{', '.join(number(v, of, diverged=diverged) for v in spread[:2])}]" if spread else "",
        "n": len(cell.values),
        "sd": tables.plus_minus(*cell.mean_and_sd, of) if cell.mean_and_sd else tables.NONE,
        "published": tables.plus_minus(*theirs, of) if theirs else tables.NONE,
        "beyond": number(cell.beyond_published, of, signed=True),
        "difference": tables.difference(cell),
        "better": tables.probability(cell),
        "test_set": number(cell.sampling_error, of),
        "p": [p_value(p) for p in (cell.p, cell.p_holm)],
        "significant": cell.p_holm is not None and cell.p_holm < 0.05,
        "places": _places(cell, column),
    }


def _places(cell: Cell, column: Sequence[Cell]) -> dict[str, float]:
    """Return the positions of a cell's marks between the column's smallest and largest value, in percent."""
    known = [value for other in column for value in _marks(other).values()]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    return {
        name: round(100 * (value - low) / span, 2) if span else 50.0 for name, value in _marks(cell).items()
    }


def _marks(cell: Cell) -> dict[str, float]:
    marks = {
        "low": cell.interval.low if cell.interval else None,
        "high": cell.interval.high if cell.interval else None,
        "median": cell.median,
        "published": cell.published.value if cell.published else None,
    }
    return {name: value for name, value in marks.items() if value is not None and math.isfinite(value)}
