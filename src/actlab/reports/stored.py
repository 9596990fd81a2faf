"""Draw a study's figures from its files in ``results/``, or from the published curves alone.

Notebooks and pages draw a paper's figures with it, without run folders::

    stored.draw("gelu_mnist_classifier")

The figure of a study that was not run here shows only the published curves, and its titles say so.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from actlab.config.keys import label
from actlab.errors import unknown
from actlab.reports import curve_table, style
from actlab.reports.canvas import Axes, Figure, mpl
from actlab.reports.published import PublishedCurves, read_curves
from actlab.studies.plan import Study
from actlab.studies.reading import load

_PER_ROW = 3


def draw(study: str, figure: str | None = None, results: str | Path = "results") -> Figure:
    """Return a figure of our medians and bands and the published curves, or only these if nothing was run here.

    Args:
        study: name of a study file.
        figure: name of one of its figures; default: the first.
        results: folder that contains ``<study>/curves.csv`` of the studies that were run.

    Raises:
        ActlabError: for a study or figure that does not exist.
    """
    plan = load(study)
    names = [str(entry.get("name", "curves")) for entry in plan.figures]
    wanted = figure or next(iter(names), "")
    if wanted not in names:
        raise unknown(f"figure of {study}", wanted, names)
    entry = plan.figures[names.index(wanted)]
    path = Path(results) / plan.name / curve_table.NAME
    ours = curve_table.load(path) if path.exists() else None
    if ours is not None:
        ours = ours[ours["figure"] == wanted]
    theirs: dict[str, Any] = dict(entry.get("published") or {})
    if ours is None:  # keep the paper's own epochs
        theirs.pop("stretch", None)
    panels: Sequence[Mapping[str, Any]] = entry.get("panels") or [{}]
    rows = math.ceil(len(panels) / _PER_ROW)
    columns = min(len(panels), _PER_ROW)
    with mpl.rc_context(style.RC):
        drawn = Figure(figsize=(max(5.0, 3.4 * columns), 0.7 + 2.8 * rows), layout="constrained")
        drawn.suptitle(plan.title, x=0.01, ha="left", fontweight="bold")
        grid = list(drawn.subplots(rows, columns, squeeze=False).flat)
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=False), 1):
            shared = {**entry, **panel, "published": panel.get("published")}
            published = read_curves(theirs, wanted)
            _panel(axes, plan, shared, str(panel.get("title") or number), ours, published)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if ours is not None and entry.get("caption"):
            said = textwrap.fill(str(entry["caption"]), int(28 * drawn.get_figwidth()))
            drawn.supxlabel(said, x=0.01, ha="left", fontsize=6.5, color=style.GREY)
    return drawn


def _panel(
    axes: Axes,
    study: Study,
    panel: Mapping[str, Any],
    title: str,
    ours: pd.DataFrame | None,
    published: PublishedCurves,
) -> None:
    scale = 100.0 if panel.get("percent") else 1.0
    lines: dict[str, pd.DataFrame] = {}
    if ours is not None:
        ours = ours[ours["panel"] == title]
        lines = {str(name): rows for name, rows in ours.groupby("line", sort=False)}
    labels = list(dict.fromkeys([*lines, *(label(ours) for ours in published.acts)]))
    colours = style.colours(labels)
    for name, rows in lines.items():
        for metric, values in rows.groupby("metric", sort=False):
            kind = "--" if str(metric).split("/")[-2:-1] == ["train"] else "-"
            dot = "o" if len(values) == 1 else None  # a line with one position would be invisible
            axes.plot(
                values["x"], scale * values["median"], kind, color=colours[name], lw=1.4, marker=dot, ms=3
            )
            finite = values[values["high"] < math.inf]
            axes.fill_between(
                finite["x"],
                scale * finite["low"],
                scale * finite["high"],
                color=colours[name],
                alpha=0.15,
                lw=0,
            )
    theirs = _published(axes, panel, published, colours)
    for name in labels:
        axes.plot([], [], color=colours[name], label=name)
    n = "" if ours is None or ours.empty else f"n = {_number(ours['n'])}"
    said = n + (", published dotted" if theirs and n else "")
    if not n:
        said = "published; not run here" if theirs else "not run here, no published curve"
    axes.set_title(f"{title}\n{said}")
    first = next(iter(panel.get("y") or {study.select.metric: None}))
    what = str(panel.get("label") or first.replace("/", " ").replace("_", " "))
    axes.set(
        xlabel=str(panel.get("xlabel") or panel.get("x", "epoch")), ylabel=what + (" %" if scale > 1 else "")
    )
    if panel.get("log"):
        axes.set_yscale("log")
    if panel.get("ylim"):
        axes.set_ylim(*panel["ylim"])
    if labels:
        axes.legend()


def _number(of_each: pd.Series[int]) -> str:
    """Return the number of runs behind the medians, as a range if it varies."""
    fewest, most = int(of_each.min()), int(of_each.max())
    return str(most) if fewest == most else f"{fewest}–{most}"


def _published(
    axes: Axes, panel: Mapping[str, Any], published: PublishedCurves, colours: Mapping[str, str]
) -> bool:
    """Draw the published curves of a panel; return whether there are any."""
    drawn = False
    for unit in published.acts:
        for curve in (panel.get("y") or {}).values():
            if found := published.get(panel["published"], unit, curve):
                axes.plot(*found, ":", color=colours[label(unit)], lw=1.1)
                drawn = True
    return drawn
