"""The figures of a study as numbers, ``curves.csv``, and drawn from them or from the published curves alone.

The file has one row per x position of each line. A panel without a title has its number, from 1 on.
Errors are fractions, ``inf`` is a diverged run. The last three columns name the published curve
drawn with the line, as in the published file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from actlab.analysis.curves import Curve
from actlab.analysis.results import Results
from actlab.analysis.statistics import Band
from actlab.config.labels import label
from actlab.errors.messages import one_line, unknown
from actlab.reports import figures, plots, style
from actlab.reports.canvas import Figure, mpl
from actlab.reports.panels import Line, Panel, Plot, PublishedCurve
from actlab.storage.files import DamagedError, regular, write_atomically
from actlab.studies.reading import load
from actlab.studies.study_folder import StudyFolder

NAME = "curves.csv"
_WORDS, _NUMBERS = ("figure", "panel", "line", "metric"), ("x", "median", "low", "high", "n")
_PUBLISHED = ("published_panel", "published_act", "published_curve")
COLUMNS = (*_WORDS, *_NUMBERS, *_PUBLISHED)


def write(results: Results, folder: Path) -> Path:
    """Write ``curves.csv`` and return its path; the folder is created."""
    write_atomically(folder / NAME, to_csv(plots.read(results)))
    return folder / NAME


def load_curves(path: Path) -> pd.DataFrame:
    """Return the rows of a ``curves.csv``; text stays text, such as a line called None."""
    types = dict.fromkeys((*_WORDS, *_PUBLISHED), str) | dict.fromkeys(_NUMBERS, float) | {"n": int}
    try:
        frame = pd.read_csv(regular(path), dtype=types, keep_default_na=False)
        if missing := [name for name in (*_WORDS, *_NUMBERS) if name not in frame]:
            raise ValueError(f"it lacks the columns {', '.join(missing)}")
    except (OSError, ValueError) as error:
        remedy = "let `actlab study report` write it again"
        raise DamagedError(f"{path} is damaged ({one_line(error, 100)}): {remedy}") from error
    return frame


def to_csv(drawn: Sequence[Plot]) -> str:
    """Return every position of every line of several figures as CSV."""
    rows = []
    for plot in drawn:
        for panel in plot.panels:
            for line in panel.lines:
                names = plot.name, panel.title or panel.number, line.label, line.metric
                ours, theirs = line.ours, line.published.name if line.published else ("", "", "")
                places = zip(ours.x, *ours.band[:3], strict=True)
                rows += [(*names, *place, ours.n, *theirs) for place in places]
    return pd.DataFrame(rows, columns=[*COLUMNS]).to_csv(index=False, lineterminator="\n")


def draw(study: str, figure: str | None = None, results: str | Path = "results") -> Figure:
    """Return a figure of our medians and bands and the published curves, or only these if nothing was run here.

    ``study`` is the name of a study file, ``figure`` that of one of its figures, by default the
    first, and ``results`` the folder that contains ``<study>/curves.csv``.
    """
    plan = load(study)
    names = [str(entry.get("name", "curves")) for entry in plan.figures]
    wanted = figure or next(iter(names), "")
    if wanted not in names:
        raise unknown(f"figure of {study}", wanted, names)
    entry = plan.figures[names.index(wanted)]
    path = Path(results) / plan.name / NAME
    ours = load_curves(path).query("figure == @wanted") if path.exists() else None
    if ours is None and entry.get("published"):  # keep the paper's own epochs
        entry = {**entry, "published": {**entry["published"], "stretch": 1.0}}
    planned = Results(StudyFolder(plan, path.parent), {}, {})
    panels = [_panel(planned, panel, ours) for panel in plots.checked(planned, entry)]
    plot = Plot(wanted, panels, "" if ours is None else str(entry.get("caption", "")))
    with mpl.rc_context(style.RC):
        return figures.figure_of(planned, plot)


def _panel(planned: Results, panel: Mapping[str, Any], ours: pd.DataFrame | None) -> Panel:
    name = str(panel.get("title") or panel["number"])
    rows = pd.DataFrame() if ours is None else ours[ours["panel"] == name]
    lines = list(_lines(rows, panel))
    if not lines:
        lines = [
            _invisible(
                "not run here, no published curve", next(iter(panel["y"])), np.zeros(1), None
            )
        ]
    elif rows.empty:
        name += " (published; not run here)"
    else:
        fewest, most = rows["n"].min(), rows["n"].max()
        name += f" (n = {most})" if fewest == most else f" (n = {fewest}–{most})"
    return plots.panel_of(planned, {**panel, "title": name}, lines)


def _lines(rows: pd.DataFrame, panel: Mapping[str, Any]) -> Iterator[Line]:
    published = panel["curves"]
    curves = {
        (label(unit), metric): theirs
        for unit in published.names
        for metric, curve in panel["y"].items()
        if (theirs := published.get(panel["published"], unit, curve))
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
