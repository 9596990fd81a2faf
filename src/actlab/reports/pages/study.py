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
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Study
from actlab.studies.points import Point, short_names

NAME = "report.html"
INDEX = "index.html"  # page over all studies, in the folder that contains theirs
# In the folder of the page
_FILES = ("table.md", "table.json", "values.csv", "curves.csv", "figures")
_CONFIG = (
    *("name", "compare", "reference", "seeds", "select", "stages", "blocks"),
    *("probes", "table", "published", "figures"),
)


def write(stages: Sequence[Results], comparison: StudyTable, folder: Path) -> Path:
    """Write ``report.html``, which links to the run folders, and return its path.

    The settings of the page are from the first stage, and its values from the last one.
    """
    selecting = stages[0]
    last = stages[-1]
    # A grid has a heat map of its settings, a search a table of its trials
    trial_table = trials(selecting, last)
    heat = None
    if trial_table is None:
        heat = heat_map(selecting)

    # The runs of all stages, which may share some
    seconds: dict[str, float] = {}
    runs: dict[str, dict[str, Any]] = {}
    for stage in stages:
        for name, result in stage.results.items():
            seconds[name] = result.get("seconds", 0.0)
        for run in _runs(stage, folder):
            runs[run["id"]] = run

    # Links to the page over all studies, and to files next to this page
    index = None
    index_file = last.root.parent / INDEX
    if index_file.exists():
        index = _link(index_file, folder)
    files = [name for name in _FILES if (folder / name).exists()]

    # The values that the template names
    return rendering.write(
        "study.html",
        folder / NAME,
        record=comparison,
        learnt_title=parameters.TITLE,
        figures=list(map(drawing, plots.read(last))),
        table=table(comparison),
        heat_map=heat,
        trials=trial_table,
        seconds=duration(sum(seconds.values())),
        runs=list(runs.values()),
        config=config(selecting.study),
        index=index,
        files=files,
    )


def _link(path: Path, folder: Path) -> str:
    # Relative, so that the folder can be moved and published
    relative = os.path.relpath(path, folder)
    return quote(Path(relative).as_posix())


def _runs(results: Results, folder: Path) -> Iterator[dict[str, Any]]:
    for run, is_selected in selection.ended(results):
        result = results.results[run.id]
        yield {
            "id": run.id,
            "href": f"{_link(results.root / run.id, folder)}/",
            "status": result["status"],
            "chosen": is_selected,
            "seed": run.seed,
            "seconds": result.get("seconds"),
            "engine": result.get("engine", ""),
        }


def config(study: Study) -> str:
    """Return the study as YAML, in the words of study files, without empty entries."""
    # Stages and blocks as in study files
    stages = []
    for stage in study.stages:
        # None stands for a key that the file leaves out
        entries = vars(stage).items()
        stages.append({key: value for key, value in entries if value is not None})
    blocks = []
    for block in study.blocks:
        blocks.append(
            {
                "name": block.name,
                "grid": block.grid,
                "set": block.settings,
                "base": block.base,
            }
        )

    # Leave out what is empty, in the order of study files
    record = {key: getattr(study, key) for key in _CONFIG}
    record["stages"] = stages
    record["blocks"] = blocks
    filled = {}
    for key, value in record.items():
        if value not in ((), [], {}, None):
            filled[key] = value
    return written(shareable(filled), allow_unicode=True, width=100)


def table(record: StudyTable) -> dict[str, Any]:
    """Return columns and rows of the table, as the template shows them."""
    # A colour for each activation
    users = set()
    labels = []
    for row in record.rows:
        label = record.label(row)
        labels.append(label)
        if record.is_own(row):
            users.add(label)
    colours = style.colours(labels, users)

    # The cells of each column, with the positions of their marks
    columns = []
    for number in record.shown:
        cells = [row.columns[number] for row in record.rows]
        columns.append(list(zip(cells, _positions(cells), strict=True)))

    # The other texts of each row
    rows = []
    for row, label in zip(record.rows, labels, strict=True):
        *selected, tried, runs = tables.trained(record, row).values()
        costs = tables.cost(row.cost, record.reference_text)
        rows.append(
            {
                "labels": list(tables.point(record, row).values()),
                "chosen": [text or tables.NONE for text in selected],
                "settings": tried,
                "runs": runs,
                "cost": list(costs.values()),
                "own": record.is_own(row),
                "colour": colours[label],
                "dark": style.on_dark(colours[label]),
            }
        )

    # Headers
    top_row = record.rows[0]
    names = short_names([*top_row.point, *record.tuned])
    return {
        "points": list(tables.point(record, top_row)),
        "tuned": [names[key] for key in record.tuned],
        "columns": columns,
        "rows": rows,
    }


def _positions(cells: Sequence[Cell]) -> list[dict[str, float]]:
    """Return the positions of the marks of each cell, in percent of the range of all marks."""
    # The range of all marks
    marks_by_cell = []
    values: list[float] = []
    for cell in cells:
        marks = _marked_values(cell)
        marks_by_cell.append(marks)
        values += marks.values()
    low = min(values, default=0.0)
    span = max(values, default=0.0) - low

    # Equal marks are in the middle
    for marks in marks_by_cell:
        for name, value in marks.items():
            marks[name] = round(100 * (value - low) / span, 2) if span else 50.0
    return marks_by_cell


def _marked_values(cell: Cell) -> dict[str, float]:
    """Return the finite values of a cell that have a mark, by name."""
    values = {"median": cell.median, "published": cell.published}
    if cell.interval:
        values["low"] = cell.interval.low
        values["high"] = cell.interval.high

    marks = {}
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            marks[name] = value
    return marks


def heat_map(results: Results) -> dict[str, Any] | None:
    """Return medians of the selection metric at each setting, shaded from a row's worst to best.

    They are medians over the runs that the selection used. None if a single setting was tried.
    """
    # Keep the results of the runs that the selection used
    used = results.chose
    if used:
        # Other runs than planned selected: their scores would not explain the choice
        if not used <= {run.id for run in results.runs}:
            return None
        ended = {}
        for name, result in results.results.items():
            if name in used:
                ended[name] = result
        results = replace(results, results=ended)

    # Settings in the order of the groups
    settings: dict[str, None] = {}
    most = 0
    for group in results.groups:
        most = max(most, len(group.settings))
        for setting in group.settings:
            settings[_text(results, setting.tuned)] = None
    if most < 2 or len(settings) < 2 or not results.results:
        return None

    # A row for each group
    rows = []
    for group in results.groups:
        label = _text(results, group.point) or "all"
        rows.append(
            {"label": label, "cells": _heat_row(results, group, list(settings))}
        )
    return {
        "value": results.study.select.value,
        "points": ", ".join(short_names(results.groups[0].point).values()),
        "tuned": ", ".join(short_names(results.study.select.tune).values()),
        "settings": list(settings),
        "rows": rows,
    }


def trials(searched: Results, compared: Results) -> dict[str, Any] | None:
    """Return the trials of a search with their medians of the selection metric; else None."""
    if not any(stage.search for stage in searched.study.stages):
        return None

    # The grid point of each trial
    trial_points: list[tuple[Setting, Point]] = []
    for group in searched.groups:
        for setting in group.settings:
            trial_points.append((setting, setting.runs[0].point))

    # Show the keys in which trials differ
    keys = []
    for key in searched.study.keys:
        if len({point.only([key]) for _, point in trial_points}) > 1:
            keys.append(key)

    # A row for each trial
    column = selection.selected_by(searched.study)
    # The comparison has one setting at each grid point, the selected one
    selected = {group.point | group.settings[0].tuned for group in compared.groups}
    rows = []
    for setting, point in trial_points:
        ended = _ended(searched, setting)
        score = None
        if ended:
            (score,) = selection.scores(searched, [setting])
        rows.append(
            {
                "values": [searched.text(key, point[key]) for key in keys],
                "score": tables.number(score, column),
                "n": ended,
                "chosen": point in selected,
            }
        )
    return {
        "value": searched.study.select.value,
        "keys": list(short_names(keys).values()),
        "rows": rows,
    }


def _ended(results: Results, setting: Setting) -> int:
    """Return how many runs of a setting have ended."""
    return sum(run.id in results.results for run in setting.runs)


def _text(results: Results, point: Point) -> str:
    return ", ".join(results.text(key, value) for key, value in point.items())


def _heat_row(
    results: Results, group: Group, texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a cell for each setting: a dash where no run of the group has ended at the setting."""
    column = selection.selected_by(results.study)

    # Count the runs that have ended at each setting of the group
    numbers_ended = {}
    scored_settings = []
    scored_texts = []
    for setting in group.settings:
        text = _text(results, setting.tuned)
        numbers_ended[text] = _ended(results, setting)
        if numbers_ended[text]:
            scored_settings.append(setting)
            scored_texts.append(text)

    # Only these settings have a score
    values = selection.scores(results, scored_settings)
    scores = dict(zip(scored_texts, values, strict=True))

    # The selected setting is marked in its cell
    selected = selection.selected_setting(results, group)
    selected_text = None
    if selected is not None:
        selected_text = _text(results, selected.tuned)

    # A cell for each setting of the heat map, also for settings of other groups
    cells = []
    for text in texts:
        score_text = tables.NONE
        if text in scores:
            score_text = tables.number(scores[text], column)
        cells.append(
            {
                "text": score_text,
                "shade": _shade(text, scores, column.mode),
                "n": numbers_ended.get(text, 0),
                "chosen": text == selected_text,
            }
        )
    return cells


def _shade(text: str, row: Mapping[str, float], mode: str) -> float:
    """Return 0 for the row's worst finite score to 100 for its best; 0 without a finite score."""
    score = row.get(text, math.nan)
    if not math.isfinite(score):
        return 0.0

    finite = [value for value in row.values() if math.isfinite(value)]
    # The worst finite score is 0, so a diverged setting does not hide all differences
    best = min(finite)
    worst = max(finite)
    if mode == "max":
        best, worst = worst, best
    if best == worst:
        return 100.0
    return round(100 * (worst - score) / (worst - best), 1)


def drawing(plot: Plot) -> dict[str, Any]:
    """Return a figure for the script: its panels, and colours of labels on light and dark."""
    # A colour for each label
    colours = style.colours((line.label for line in plot.lines), plot.users)
    legend = []
    for label, colour in colours.items():
        # The page follows the reader's colour scheme
        dark = style.on_dark(colour)
        legend.append(
            {"label": label, "light": colour, "dark": dark, "own": label in plot.users}
        )

    # The kinds of lines that a reader can hide
    kinds = plot.kinds
    if any(line.curve.shaded for line in plot.lines):
        kinds.append("bands")
    return {
        "name": plot.name,
        "caption": plot.caption,
        "legend": legend,
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
        "title": panel.title or panel.ylabel,  # a single panel needs no title
        "ylim": _rounded(limits(panel)),
        "lines": [_line(plot, line, panel.scale) for line in panel.lines],
    }


def _line(plot: Plot, line: Line, scale: float) -> dict[str, Any]:
    kind = plot.kind_of(line)
    band = line.curve.band

    # The published curve as x and y
    published = None
    if line.published:
        published = [_rounded(line.published.x), _rounded(line.published.values)]
    return {
        "label": line.label,
        "metric": line.metric,
        "kind": kind,
        "dash": plot.dash_of(kind),
        "shaded": line.curve.shaded,
        "x": _rounded(line.curve.x),
        "median": _rounded(band.median * scale),
        "low": _rounded(band.low * scale),
        "high": _rounded(band.high * scale),
        "published": published,
    }


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Return numbers with six digits; None if not finite, which JSON lacks."""
    rounded: list[float | None] = []
    for value in values:
        if math.isfinite(value):
            rounded.append(float(f"{value:.6g}"))
        else:
            rounded.append(None)
    return rounded
