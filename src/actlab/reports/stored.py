"""Draw a study's figures from its files in ``results/``, or from the published curves alone, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from actlab.analysis.curves import Curve
from actlab.analysis.results import Results
from actlab.analysis.statistics import Band
from actlab.config.values import label
from actlab.errors import unknown
from actlab.reports import curve_table, figures, plots, style
from actlab.reports.canvas import Figure, mpl
from actlab.reports.panels import Line, Panel, Plot, PublishedCurve
from actlab.studies.reading import load


def draw(study: str, figure: str | None = None, results: str | Path = "results") -> Figure:
    """Return a figure of our medians and bands and the published curves, or only these if nothing was run here.

    ``study`` is the name of a study file, ``figure`` that of one of its figures, by default the first, and
    ``results`` the folder that contains ``<study>/curves.csv``.
    """
    plan = load(study)
    names = [str(entry.get("name", "curves")) for entry in plan.figures]
    wanted = figure or next(iter(names), "")
    if wanted not in names:
        raise unknown(f"figure of {study}", wanted, names)
    entry = plan.figures[names.index(wanted)]
    path = Path(results) / plan.name / curve_table.NAME
    ours = curve_table.load(path).query("figure == @wanted") if path.exists() else None
    if ours is None and entry.get("published"):  # keep the paper's own epochs
        entry = {**entry, "published": {**entry["published"], "stretch": 1.0}}
    planned = Results(plan, path.parent, {}, {})
    panels = [_panel(planned, panel, ours) for panel in plots.checked(planned, entry)]
    plot = Plot(wanted, panels, "" if ours is None else str(entry.get("caption", "")))
    with mpl.rc_context(style.RC):
        return figures.figure_of(planned, plot)


def _panel(planned: Results, panel: Mapping[str, Any], ours: pd.DataFrame | None) -> Panel:
    name, metrics = str(panel.get("title") or panel["number"]), plots.metrics_of(planned, panel)
    rows = pd.DataFrame() if ours is None else ours[ours["panel"] == name]
    lines = list(_lines(rows, panel, metrics))
    if not lines:
        lines = [_invisible("not run here, no published curve", next(iter(metrics)), np.zeros(1), None)]
    elif rows.empty:
        name += " (published; not run here)"
    else:
        fewest, most = rows["n"].min(), rows["n"].max()
        name += f" (n = {most})" if fewest == most else f" (n = {fewest}–{most})"
    return plots.panel_of(planned, {**panel, "title": name}, lines)


def _lines(rows: pd.DataFrame, panel: Mapping[str, Any], metrics: Mapping[str, str | None]) -> Iterator[Line]:
    published = panel["curves"]
    curves = {
        (label(unit), metric): found
        for unit in published.curves
        for metric, curve in metrics.items()
        if (found := published.get(panel["published"], unit, curve))
    }
    for (name, metric), values in rows.groupby(["line", "metric"], sort=False) if len(rows) else ():
        x, median, low, high = values[["x", "median", "low", "high"]].to_numpy().T
        ours = Curve(x, Band(median, low, high, "interval", 1.0), int(values["n"].max()))
        yield Line(str(name), str(metric), ours, curves.pop((str(name), str(metric)), None))
    for (name, metric), curve in curves.items():
        yield _invisible(name, metric, curve.x, curve)


def _invisible(name: str, metric: str, x: Any, published: PublishedCurve | None) -> Line:
    nothing = np.full(len(x), np.nan)
    return Line(name, metric, Curve(x, Band(nothing, nothing, nothing, "range", 0.0), 0), published)
