"""Figures as plain values, for the script that draws them in a browser."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from actlab.reports import style
from actlab.reports.panels import Line, Panel, Plot, limits


def drawing(plot: Plot) -> dict[str, Any]:
    """Return a figure: panels with their lines, and a colour per label on light and on dark background."""
    lines, own = plot.lines, plot.own
    colours = style.colours((line.label for line in lines), own)
    bands = ["bands"] if any(line.ours.n > 1 for line in lines) else []
    return {
        "name": plot.name,
        "caption": plot.caption,
        "units": [
            {"label": x, "light": c, "dark": style.on_dark(c), "own": x in own} for x, c in colours.items()
        ],
        "kinds": [*plot.kinds, *bands],
        "panels": [_panel(panel) for panel in plot.panels],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title or panel.ylabel,
        "xlabel": panel.xlabel,
        "ylabel": panel.ylabel,
        "over_epochs": panel.over_epochs,
        "seconds": panel.seconds,
        "log": panel.log,
        "ylim": _rounded(limits(panel)),
        "lines": [_line(line, panel.scale) for line in panel.lines],
    }


def _line(line: Line, scale: float) -> dict[str, Any]:
    band = line.ours.band
    return {
        "label": line.label,
        "metric": line.metric,
        "kind": line.kind,
        "n": line.ours.n,
        "x": _rounded(line.ours.x),
        "median": _rounded(band.median * scale),
        "low": _rounded(band.low * scale),
        "high": _rounded(band.high * scale),
        "published": [*map(_rounded, line.published[:2])] if line.published else None,
    }


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Return numbers with six digits, more than a screen shows; None if not finite, which JSON lacks."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
