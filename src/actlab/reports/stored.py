"""The figures of a study as numbers, ``curves.csv``, and figures drawn from this file.

The file has one row for each x position of each line. A panel without a title has its number, from
1 on. Errors are fractions, ``inf`` is a diverged run. The last three columns name the published
curve drawn with the line, as in the published file.
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
_LINE_COLUMNS = ("figure", "panel", "line", "metric")
_NUMBER_COLUMNS = ("x", "median", "low", "high", "n")
# Which published curve belongs to a line. `draw` finds the curves itself, so that
# `load_curves` accepts a file without these columns.
_PUBLISHED_COLUMNS = ("published_panel", "published_act", "published_curve")
COLUMNS = (*_LINE_COLUMNS, *_NUMBER_COLUMNS, *_PUBLISHED_COLUMNS)


def write(results: Results, folder: Path) -> Path:
    """Write ``curves.csv`` and return its path; the folder is created."""
    write_atomically(folder / NAME, to_csv(plots.read(results)))
    return folder / NAME


def load_curves(path: Path) -> pd.DataFrame:
    """Return the rows of a ``curves.csv``; text stays text, such as a line called None.

    Raises:
        DamagedError: for a file that cannot be read or lacks columns.
    """
    # Types of the columns
    types: dict[str, type] = dict.fromkeys((*_LINE_COLUMNS, *_PUBLISHED_COLUMNS), str)
    types |= dict.fromkeys(_NUMBER_COLUMNS, float)
    types["n"] = int

    # Read them
    try:
        frame = pd.read_csv(regular(path), dtype=types, keep_default_na=False)
        missing = [
            name for name in (*_LINE_COLUMNS, *_NUMBER_COLUMNS) if name not in frame
        ]
        if missing:
            raise ValueError(f"it lacks the columns {', '.join(missing)}")
    except (OSError, ValueError) as error:
        remedy = "Let `actlab study report` write it again."
        raise DamagedError(
            f"{path} is damaged ({one_line(error, 100)}). {remedy}"
        ) from error
    return frame


def to_csv(contents: Sequence[Plot]) -> str:
    """Return every position of every line of several figures as CSV."""
    rows = []
    for plot in contents:
        for panel in plot.panels:
            for line in panel.lines:
                rows += _line_rows(plot, panel, line)
    return pd.DataFrame(rows, columns=[*COLUMNS]).to_csv(
        index=False, lineterminator="\n"
    )


def _line_rows(plot: Plot, panel: Panel, line: Line) -> list[tuple[Any, ...]]:
    names = (plot.name, panel.title or panel.number, line.label, line.metric)
    published = ("", "", "")
    if line.published:
        published = line.published.name

    curve = line.curve
    positions = zip(curve.x, *curve.band[:3], strict=True)
    return [(*names, *numbers, curve.n, *published) for numbers in positions]


def draw(
    study: str, figure: str | None = None, results: str | Path = "results"
) -> Figure:
    """Return a figure of our medians and bands and of the published curves.

    Without a stored ``curves.csv``, it has the published curves only.

    Args:
        study: name of a study file.
        figure: name of one of its figures; by default the first.
        results: the folder that contains ``<study>/curves.csv``.
    """
    plan = load(study)

    # Find the figure
    names = [str(entry.get("name", "curves")) for entry in plan.figures]
    name = figure or next(iter(names), "")
    if name not in names:
        raise unknown(f"figure of {study}", name, names)
    entry = plan.figures[names.index(name)]

    # Read its rows
    path = Path(results) / plan.name / NAME
    caption = ""
    rows = pd.DataFrame(columns=[*COLUMNS])
    if path.exists():
        caption = str(entry.get("caption", ""))
        rows = load_curves(path)
        rows = rows[rows["figure"] == name]
    elif entry.get("published"):
        # Keep the paper's own epochs
        entry = {**entry, "published": {**entry["published"], "stretch": 1.0}}

    # Draw it without the results of runs
    planned = Results(StudyFolder(plan, path.parent), {}, {})
    panels = [_panel(planned, panel, rows) for panel in plots.checked(planned, entry)]
    with mpl.rc_context(style.RC):
        return figures.figure_of(planned, Plot(name, panels, caption))


def _panel(
    planned: Results, panel: Mapping[str, Any], figure_rows: pd.DataFrame
) -> Panel:
    """Return a panel from the rows of its figure, whose title has the number of runs."""
    title = str(panel.get("title") or panel["number"])
    rows = figure_rows[figure_rows["panel"] == title]
    # A panel without any curve says so
    lines = list(_lines(rows, panel))

    # The title has the source or the number of runs
    if not lines:
        metric = next(iter(panel["y"]))
        lines = [
            _invisible("not run here, no published curve", metric, np.zeros(1), None)
        ]
    elif rows.empty:
        title += " (published; not run here)"
    else:
        fewest = rows["n"].min()
        most = rows["n"].max()
        title += f" (n = {most})" if fewest == most else f" (n = {fewest}–{most})"
    return plots.panel_of(planned, {**panel, "title": title}, lines)


def _lines(rows: pd.DataFrame, panel: Mapping[str, Any]) -> Iterator[Line]:
    # Published curves by label and metric
    published = {}
    for activation in panel["curves"].names:
        for metric, curve_name in panel["y"].items():
            published_curve = panel["curves"].get(
                panel["published"], activation, curve_name
            )
            if published_curve:
                published[label(activation), metric] = published_curve

    # Our lines, with their published curves
    for (name, metric), values in rows.groupby(["line", "metric"], sort=False):
        x, median, low, high = values[["x", "median", "low", "high"]].to_numpy().T
        band = Band(median, low, high, "interval", 1.0)
        curve = Curve(x, band, int(values["n"].max()))
        published_curve = published.pop((str(name), str(metric)), None)
        yield Line(str(name), str(metric), curve, published_curve)

    # Published curves without a line of ours
    for (name, metric), published_curve in published.items():
        yield _invisible(name, metric, published_curve.x, published_curve)


def _invisible(
    name: str, metric: str, x: Any, published: PublishedCurve | None
) -> Line:
    """Return a line without values of ours."""
    nan = np.full(len(x), np.nan)
    return Line(name, metric, Curve(x, Band(nan, nan, nan, "range", 0.0), 0), published)
