"""The contents of a figure before it is drawn: panels and lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from actlab.analysis.curves import Curve


@dataclass(frozen=True)
class Line:
    """A line of a panel.

    Args:
        label: label of the line, such as an activation.
        metric: the metric shown.
        ours: our curve.
        published: x positions and values of the published curve, if there is one.
        published_as: panel, activation and curve as named in the published file.
        own: whether this is an activation of the user, which is drawn strong and on top.
    """

    label: str
    metric: str
    ours: Curve
    published: tuple[Any, Any] | None
    published_as: tuple[str, str, str] | None = None
    own: bool = False

    @property
    def of_training(self) -> bool:
        """Whether the metric is one of training data: ``train/loss``, ``noise/train/loss``."""
        return "train" in self.metric.split("/")[:-1]


@dataclass(frozen=True)
class Panel:
    """The contents of one pair of axes.

    Args:
        number: number in the study's file, from 1 on.
        title: title above the panel.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        over_epochs: whether the x axis shows epochs.
        scale: factor applied to our values.
        ylim: limits of the y axis in drawn units; None determines them from the values.
        lines: at least one.
        read: where runs are read and under which condition, in words; empty for epochs without a condition.
        chosen: selected tuned values in words, by label of the line.
        absent: labels without a line, because no run has the values at which the figure is drawn.
        log: whether the y axis is logarithmic.
    """

    number: int
    title: str
    xlabel: str
    ylabel: str
    over_epochs: bool
    scale: float
    ylim: tuple[float, float] | None
    lines: list[Line]
    read: str
    chosen: dict[str, str]
    absent: tuple[str, ...] = ()
    log: bool = False


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


def limits(panel: Panel) -> tuple[float, float]:
    """Return the limits of the y axis in drawn units.

    A panel without limits of its own extends from 0 to the extremes of its lines. Over epochs, the first tenth
    is ignored because a loss starts high. A logarithmic axis contains all values above 0.
    """
    if panel.ylim:
        return panel.ylim
    if panel.log:
        every = [panel.scale * values for line in panel.lines for values in line.ours.band[:3]]
        for line in panel.lines:
            theirs, values = map(np.asarray, line.published or ((), ()))
            every.append(values[theirs <= line.ours.x[-1]])
        drawn = np.concatenate(every)
        known = drawn[np.isfinite(drawn) & (drawn > 0)]
        low, high = (float(known.min()), float(known.max())) if known.size else (panel.scale, panel.scale)
        return low / 1.5, high * 1.5
    tops = []
    for line in panel.lines:
        x, band = line.ours.x, line.ours.band
        first = x[-1] / 10 if panel.over_epochs else -np.inf
        tops += [panel.scale * values[(x >= first) & np.isfinite(values)] for values in (band.high, band.low)]
        if line.published:
            theirs, values = map(np.asarray, line.published)
            tops.append(values[(theirs >= first) & (theirs <= x[-1]) & np.isfinite(values)])
    known = np.concatenate(tops)
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, panel.scale)
    return min(0.0, 1.08 * low), max(0.0, 1.08 * high) or panel.scale
