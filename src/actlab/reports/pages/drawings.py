"""Figures as plain values, for the script that draws them in a browser."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from actlab.reports import style
from actlab.reports.panels import Line, Panel, Plot, limits


def drawing(plot: Plot) -> dict[str, Any]:
    """A figure: its panels with their lines, and a colour for each label on light and on dark ground."""
    lines = [line for panel in plot.panels for line in panel.lines]
    colours = style.colours(line.label for line in lines)
    kinds = {
        "held out": not all(line.of_training for line in lines),
        "training": any(line.of_training for line in lines),
        "published": any(line.published for line in lines),
        "bands": any(line.ours.n > 1 for line in lines),
    }
    return {
        "name": plot.name,
        "caption": plot.caption,
        "units": [{"label": x, "light": c, "dark": style.on_dark(c)} for x, c in colours.items()],
        "kinds": [kind for kind, drawn in kinds.items() if drawn],
        "panels": [_panel(panel) for panel in plot.panels],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title or panel.ylabel,
        "xlabel": panel.xlabel,
        "ylabel": panel.ylabel,
        "over_epochs": panel.over_epochs,
        "log": panel.log,
        "ylim": [*map(_short, limits(panel))],
        "lines": [_line(line, panel.scale) for line in panel.lines],
    }


def _line(line: Line, scale: float) -> dict[str, Any]:
    band = line.ours.band
    return {
        "label": line.label,
        "metric": line.metric,
        "kind": "training" if line.of_training else "held out",
        "n": line.ours.n,
        "x": _all(line.ours.x),
        "median": _all(band.median * scale),
        "low": _all(band.low * scale),
        "high": _all(band.high * scale),
        "published": [*map(_all, line.published)] if line.published else None,
    }


def _all(values: Iterable[float]) -> list[float | None]:
    return [_short(value) for value in values]


def _short(value: float) -> float | None:
    """A number in six digits, more than a screen shows; None where it is not finite, which JSON lacks."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
