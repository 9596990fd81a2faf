"""The contents of a figure before it is drawn: panels and lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from actlab.analysis.curves import Curve
from actlab.config.metrics import INITIAL, LEARNT, is_parameter

KINDS = ("held out", "training", "learnt", "initial", "published")


class PublishedCurve(NamedTuple):
    """A curve of a paper: positions, values, and its panel, activation and curve as named in the file."""

    x: Any
    values: Any
    name: tuple[str, str, str]


@dataclass(frozen=True)
class Line:
    """A line of a panel."""

    label: str  # such as an activation
    metric: str
    ours: Curve
    published: PublishedCurve | None
    own: bool = False  # whether it is an activation of the user, which is drawn strong and on top

    @property
    def kind(self) -> str:
        """Training or held-out data, or what an activation learnt or began with."""
        if self.metric == INITIAL:
            return "initial"
        if self.metric == LEARNT or is_parameter(self.metric):
            return "learnt"
        return "training" if "train" in self.metric.split("/")[:-1] else "held out"


@dataclass(frozen=True)
class Panel:
    """The contents of one pair of axes."""

    number: int  # in the study's file, from 1 on
    title: str
    lines: list[Line]  # at least one
    xlabel: str
    ylabel: str
    over_epochs: bool = False
    scale: float = 1.0  # factor applied to our values
    ylim: tuple[float, float] | None = None  # in drawn units; None determines the limits from the values
    read: str = ""  # where runs are read and under which condition; empty for epochs without a condition
    chosen: Mapping[str, str] = field(default_factory=dict)  # selected tuned values in words, by label
    absent: tuple[str, ...] = ()  # labels without a line, because no run has the values of the figure
    log: bool = False  # whether the y axis is logarithmic
    seconds: bool = False  # whether epochs are drawn as seconds of their updates


@dataclass(frozen=True)
class Plot:
    """A figure before it is drawn: name of its files, the panels that have any line, and the caption."""

    name: str
    panels: list[Panel]
    caption: str

    @property
    def lines(self) -> list[Line]:
        """The lines of all panels."""
        return [line for panel in self.panels for line in panel.lines]

    @property
    def own(self) -> set[str]:
        """The labels of the user's activations."""
        return {line.label for line in self.lines if line.own}

    @property
    def kinds(self) -> list[str]:
        """What its lines are: the kinds of lines, and ``published``."""
        found = {line.kind for line in self.lines} | {"published" for line in self.lines if line.published}
        return [kind for kind in KINDS if kind in found]


def limits(panel: Panel) -> tuple[float, float]:
    """Return the limits of the y axis in drawn units.

    A panel without limits of its own extends from 0 to the extremes of its lines. Over epochs, the first tenth
    is ignored because a loss starts high. A logarithmic axis contains all values above 0; one of learnt
    parameters need not contain 0.
    """
    if panel.ylim:
        return panel.ylim
    drawn = []
    for line in panel.lines:
        x, band = line.ours.x, line.ours.band
        first = x[-1] / 10 if panel.over_epochs and not panel.log else -np.inf
        ends = (band.median, band.low, band.high) if panel.log else (band.low, band.high)
        drawn += [panel.scale * values[(x >= first) & np.isfinite(values)] for values in ends]
        if line.published:
            theirs, values = map(np.asarray, line.published[:2])
            drawn.append(values[(theirs >= first) & (theirs <= x[-1]) & np.isfinite(values)])
    known = np.concatenate(drawn)
    if panel.log:
        known = known[known > 0]
        low, high = (float(known.min()), float(known.max())) if known.size else (panel.scale, panel.scale)
        return low / 1.5, high * 1.5
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, panel.scale)
    if low < high and all(is_parameter(line.metric) for line in panel.lines):
        return low - 0.08 * (high - low), high + 0.08 * (high - low)
    return min(0.0, 1.08 * low), max(0.0, 1.08 * high) or panel.scale
