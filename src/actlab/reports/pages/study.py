"""The page of a study, ``report.html``, whose figures a script draws in the browser."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from actlab.analysis import parameters, selection
from actlab.analysis.results import Results
from actlab.analysis.study_table import Cell, StudyTable
from actlab.analysis.wording import duration
from actlab.config.values import shareable
from actlab.reports import plots, style, tables
from actlab.reports.pages import rendering
from actlab.reports.panels import Line, Panel, Plot, limits
from actlab.storage.mappings import written
from actlab.studies.groups import Group
from actlab.studies.plan import Study
from actlab.studies.points import Point, short_names

NAME = "report.html"
INDEX = "index.html"  # page over all studies, in the folder that contains theirs
# In the folder of the page
_FILES = (
    "table.md",
    "table.json",
    "values.csv",
    "curves.csv",
    "figures",
)
_CONFIG = (
    *("name", "compare", "reference", "seeds", "select", "stages", "blocks"),
    *("probes", "table", "published", "figures"),
)


def write(stages: Sequence[Results], comparison: StudyTable, folder: Path) -> Path:
    """Write ``report.html``, which links to the run folders, and return its path."""
    # The first selected settings, the last that has opened is shown
    first, last = (
        stages[0],
        stages[-1],
    )
    found = trials(first, last)

    # The runs of all stages, which may share some
    seconds: dict[str, float] = {}
    runs: dict[str, dict[str, Any]] = {}
    for stage in stages:
        seconds |= {name: result.get("seconds", 0.0) for name, result in stage.results.items()}
        runs |= {run["id"]: run for run in _runs(stage, folder)}

    index = last.root.parent / INDEX
    return rendering.write(
        "study.html",
        folder / NAME,
        record=comparison,
        learnt_title=parameters.TITLE,
        figures=[drawing(plot) for plot in plots.read(last)],
        table=table(comparison),
        heat_map=None if found else heat_map(first),
        trials=found,
        seconds=duration(sum(seconds.values())),
        runs=list(runs.values()),
        config=config(first.study),
        index=_link(index, folder) if index.exists() else None,
        files=[name for name in _FILES if (folder / name).exists()],
    )


def _link(path: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(path, folder)).as_posix())


def _runs(results: Results, folder: Path) -> Iterator[dict[str, Any]]:
    for run, is_chosen in selection.ended(results):
        result = results.results[run.id]
        yield {
            "id": run.id,
            "href": f"{_link(results.root / run.id, folder)}/",
            "status": result["status"],
            "chosen": is_chosen,
            "seed": run.seed,
            "seconds": result.get("seconds"),
            "engine": result.get("engine", ""),
        }


def config(study: Study) -> str:
    """Return the study as YAML: base config, grid, seeds, selection, table, published values and figures."""
    blocks = [
        {"name": b.name, "grid": b.grid, "set": b.settings, "base": b.base} for b in study.blocks
    ]
    stages = [
        {key: value for key, value in vars(stage).items() if value is not None}
        for stage in study.stages
    ]
    record = {key: getattr(study, key) for key in _CONFIG} | {"stages": stages, "blocks": blocks}
    given = shareable(
        {key: value for key, value in record.items() if value not in ((), [], {}, None)}
    )
    return written(given, allow_unicode=True, width=100)


def table(record: StudyTable) -> dict[str, Any]:
    """Return columns and rows of the table, as the template shows them."""
    points = [tables.point(record, row) for row in record.rows]

    # A colour for each activation
    labels = [record.label(row) for row in record.rows]
    users = {label for label, row in zip(labels, record.rows, strict=True) if record.is_own(row)}
    colours = style.colours(labels, users)

    # The cells of each column, with the positions of their marks
    columns = []
    for number in record.shown:
        cells = [row.columns[number] for row in record.rows]
        columns.append([*zip(cells, _places(cells), strict=True)])

    rows = []
    for row, point, label in zip(record.rows, points, labels, strict=True):
        *chosen, tried, runs = tables.trained(record, row).values()
        costs = tables.cost(row.cost, record.reference_text)
        rows.append(
            {
                "labels": list(point.values()),
                "chosen": [text or tables.NONE for text in chosen],
                "settings": tried,
                "runs": runs,
                "cost": list(costs.values()),
                "own": record.is_own(row),
                "colour": colours[label],
                "dark": style.on_dark(colours[label]),
            }
        )
    names = short_names([*record.rows[0].point, *record.tuned])
    return {
        "points": list(points[0]),
        "tuned": [names[key] for key in record.tuned],
        "columns": columns,
        "rows": rows,
    }


def _places(cells: Sequence[Cell]) -> list[dict[str, float]]:
    """Return the positions of the marks of each cell between the smallest and largest of all, in percent."""
    marks: list[dict[str, float]] = []
    for cell in cells:
        low, high = cell.interval[:2] if cell.interval else (None, None)
        of_cell = {"low": low, "high": high, "median": cell.median, "published": cell.published}
        known = {name: value for name, value in of_cell.items() if value is not None}
        marks.append({name: value for name, value in known.items() if math.isfinite(value)})

    # Scale from the smallest to the largest of all
    values = [value for known in marks for value in known.values()]
    low, span = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    places = []
    for known in marks:
        if span:
            places.append(
                {name: round(100 * (value - low) / span, 2) for name, value in known.items()}
            )
        else:
            places.append(dict.fromkeys(known, 50.0))
    return places


def heat_map(results: Results) -> dict[str, Any] | None:
    """Return medians of the selection metric over the runs that chose, shaded from a row's worst to best."""
    if results.chose:
        if not results.chose <= {run.id for run in results.runs}:
            return None
        ended = {name: result for name, result in results.results.items() if name in results.chose}
        results = replace(results, results=ended)
    settings = list(
        dict.fromkeys(_text(results, s.tuned) for group in results.groups for s in group.settings)
    )
    several = any(len(group.settings) > 1 for group in results.groups)
    if not several or len(settings) < 2 or not results.results:
        return None
    rows = ((_text(results, group.point) or "all", group) for group in results.groups)
    return {
        "value": results.study.select.value,
        "points": ", ".join(short_names(results.groups[0].point).values()),
        "tuned": ", ".join(short_names(results.study.select.tune).values()),
        "settings": settings,
        "rows": [
            {"label": text, "cells": _heat_row(results, group, settings)} for text, group in rows
        ],
    }


def trials(searched: Results, compared: Results) -> dict[str, Any] | None:
    """Return the trials of a search with their medians of the selection metric; None without a search."""
    if not any(stage.search for stage in searched.study.stages):
        return None

    # Show the keys in which trials differ.
    settings = [setting for group in searched.groups for setting in group.settings]
    points = [setting.runs[0].point for setting in settings]
    keys = [key for key in searched.study.keys if len({point.only([key]) for point in points}) > 1]
    names = short_names(keys)

    selected = {group.point | group.settings[0].tuned for group in compared.groups}
    rows = []
    for setting, point in zip(settings, points, strict=True):
        ended = sum(run.id in searched.results for run in setting.runs)
        score = selection.scores(searched, [setting])[0] if ended else None
        rows.append(
            {
                "values": [searched.text(key, point[key]) for key in keys],
                "score": tables.number(score, selection.selected_by(searched.study)),
                "n": ended,
                "chosen": point in selected,
            }
        )
    return {
        "value": searched.study.select.value,
        "keys": [names[key] for key in keys],
        "rows": rows,
    }


def _text(results: Results, point: Point) -> str:
    return ", ".join(results.text(key, value) for key, value in point.items())


def _heat_row(results: Results, group: Group, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a cell per setting; empty if the group was not run with it or none of these runs has ended."""
    column = selection.selected_by(results.study)
    selected = selection.chosen(results, group)

    # Count the runs that have ended at each setting
    tried = {_text(results, setting.tuned): setting for setting in group.settings}
    ended: dict[str, int] = {}
    for text, setting in tried.items():
        ended[text] = sum(run.id in results.results for run in setting.runs)

    # Score the settings with such runs
    begun = [text for text, number in ended.items() if number]
    values = selection.scores(results, [tried[text] for text in begun])
    scores = dict(zip(begun, values, strict=True))

    cells = []
    for text in texts:
        shown = tables.NONE
        if text in scores:
            shown = tables.number(scores[text], column)
        is_selected = selected is not None and tried.get(text) is selected
        shade = _shade(text, scores, column.mode)
        cells.append(
            {"text": shown, "shade": shade, "n": ended.get(text, 0), "chosen": is_selected}
        )
    return cells


def _shade(text: str, row: Mapping[str, float], mode: str) -> float:
    """Return 0 for the row's worst finite score to 100 for its best; 0 without a finite score."""
    known = sorted((score for score in row.values() if math.isfinite(score)), reverse=mode == "max")
    if not math.isfinite(score := row.get(text, math.nan)):
        return 0.0
    best, worst = known[0], known[-1]
    return round(100 * (worst - score) / (worst - best), 1) if worst != best else 100.0


def drawing(plot: Plot) -> dict[str, Any]:
    """Return a figure: panels with their lines, and a colour per label on light and on dark background."""
    colours = style.colours((line.label for line in plot.lines), plot.users)
    units = []
    for label, colour in colours.items():
        dark = style.on_dark(colour)
        units.append({"label": label, "light": colour, "dark": dark, "own": label in plot.users})

    kinds = plot.kinds
    if any(line.ours.shaded for line in plot.lines):
        kinds.append("bands")
    return {
        "name": plot.name,
        "caption": plot.caption,
        "units": units,
        "kinds": kinds,
        "dashes": {kind: plot.dash_of(kind) for kind in kinds},
        "panels": [_panel(plot, panel) for panel in plot.panels],
    }


def _panel(plot: Plot, panel: Panel) -> dict[str, Any]:
    return {
        "xlabel": panel.xlabel,
        "ylabel": panel.ylabel,
        "over_epochs": panel.over_epochs,
        "log": panel.log,
        "title": panel.title or panel.ylabel,
        "ylim": _rounded(limits(panel)),
        "lines": [_line(plot, line, panel.scale) for line in panel.lines],
    }


def _line(plot: Plot, line: Line, scale: float) -> dict[str, Any]:
    kind, band = plot.kind_of(line), line.ours.band
    published = None
    if line.published:
        published = [_rounded(line.published.x), _rounded(line.published.values)]
    return {
        "label": line.label,
        "metric": line.metric,
        "kind": kind,
        "dash": plot.dash_of(kind),
        "shaded": line.ours.shaded,
        "x": _rounded(line.ours.x),
        "median": _rounded(band.median * scale),
        "low": _rounded(band.low * scale),
        "high": _rounded(band.high * scale),
        "published": published,
    }


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Return numbers with six digits, more than a screen shows; None if not finite, which JSON lacks."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
