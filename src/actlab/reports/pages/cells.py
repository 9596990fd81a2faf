"""The tables of a study for a page: medians with the positions of their marks; how settings were selected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from actlab.analysis import comparison
from actlab.analysis.comparison import Cell, TableRow
from actlab.analysis.results import Results
from actlab.reports import style, tables
from actlab.studies.groups import Group, Setting
from actlab.studies.points import short_names


def table(results: Results) -> dict[str, Any]:
    """Return header and rows of the table; parts that no row has are marked as absent."""
    rows, study = comparison.rows(results), results.study
    names = short_names([*rows[0].point, *study.select.tune])
    labels = [_label(results, row) for row in rows]
    users = {label for label, row in zip(labels, rows, strict=True) if study.has_own(row.point)}
    colours = style.colours(labels, users)
    return {
        "points": [names[key] for key in rows[0].point],
        "tuned": [names[key] for key in study.select.tune],
        "settings": tables.shows_settings(results),
        "reference": comparison.reference_text(results),
        "base": comparison.cost_base(results),
        "learnt": [head.replace("\n", " ") for head in tables.learnt(results, rows[0])],
        "costs": any(row.cost for row in rows),
        "columns": [_column(results, [row.cells[i] for row in rows]) for i in tables.shown(results)],
        "rows": [_row(results, row, colours) for row in rows],
    }


def _label(results: Results, row: TableRow) -> str:
    return results.text(results.study.compare, row.point.get(results.study.compare, ""))


def _row(results: Results, row: TableRow, colours: Mapping[str, str]) -> dict[str, Any]:
    *chosen, tried, runs = tables.trained(results, row).values()
    colour, cost = colours[_label(results, row)], tables.cost(row.cost, comparison.cost_base(results))
    return {
        "chosen": [text or tables.NONE for text in chosen],
        "settings": tried,
        "runs": runs,
        "labels": [results.text(key, value) for key, value in row.point.items()],
        "own": results.study.has_own(row.point),
        "colour": colour,
        "dark": style.on_dark(colour),
        "cost": [*tables.learnt(results, row).values(), *cost.values()],
    }


def _column(results: Results, cells: Sequence[Cell]) -> dict[str, Any]:
    return {
        "name": tables.title(results, cells[0].column),
        "cells": [(cell, _places(cell, cells)) for cell in cells],
        "sd": any(cell.mean_and_sd for cell in cells),
        "published": any(cell.published for cell in cells),
        "difference": any(tables.difference(cell) != tables.NONE for cell in cells),
        "better": any(tables.probability(cell) != tables.NONE for cell in cells),
        "test_set": any(cell.sampling_error for cell in cells),
        "p": any(cell.p is not None for cell in cells),
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


def heat_map(results: Results) -> dict[str, Any] | None:
    """Return medians of the selection metric over the runs that chose, shaded from a row's worst to best."""
    if results.chose:
        if not results.chose <= {run.id for run in results.runs}:
            return None
        ended = {name: result for name, result in results.results.items() if name in results.chose}
        results = replace(results, results=ended)
    settings = list(dict.fromkeys(_text(results, s) for group in results.groups for s in group.settings))
    several = any(len(group.settings) > 1 for group in results.groups)
    if not several or len(settings) < 2 or not results.results:
        return None
    return {
        "value": results.study.select.value,
        "points": ", ".join(short_names(results.groups[0].point).values()),
        "tuned": ", ".join(short_names(results.study.select.tune).values()),
        "settings": settings,
        "rows": [
            {
                "label": ", ".join(results.text(key, value) for key, value in group.point.items()) or "all",
                "cells": _heat_row(results, group, settings),
            }
            for group in results.groups
        ],
    }


def _text(results: Results, setting: Setting) -> str:
    return ", ".join(results.text(key, value) for key, value in setting.tuned.items())


def _heat_row(results: Results, group: Group, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a cell per setting; empty if the group was not run with it or none of these runs has ended."""
    column, chosen = results.selected_by, results.chosen(group)
    tried = {_text(results, setting): setting for setting in group.settings}
    ended = {text: sum(r.id in results.results for r in setting.runs) for text, setting in tried.items()}
    begun = [text for text, n in ended.items() if n]
    scores = dict(zip(begun, results.scores([tried[text] for text in begun]), strict=True))
    return [
        {
            "text": tables.number(scores[text], column) if text in scores else tables.NONE,
            "shade": _shade(text, scores, column.mode),
            "n": ended.get(text, 0),
            "chosen": chosen is not None and tried.get(text) is chosen,
        }
        for text in texts
    ]


def _shade(text: str, row: Mapping[str, float], mode: str) -> float:
    """Return 0 for the row's worst finite score to 100 for its best; 0 without a finite score."""
    known = sorted((score for score in row.values() if math.isfinite(score)), reverse=mode == "max")
    if not math.isfinite(score := row.get(text, math.nan)):
        return 0.0
    best, worst = known[0], known[-1]
    return round(100 * (worst - score) / (worst - best), 1) if worst != best else 100.0
