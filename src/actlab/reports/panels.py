"""The contents of a figure before it is drawn: panels, lines, and published curves from their file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from actlab.analysis.curves import Curve
from actlab.config.metrics import LEARNT, is_parameter
from actlab.config.values import named, same
from actlab.errors import ActlabError
from actlab.errors.messages import one_line, unknown
from actlab.storage.files import regular
from actlab.storage.resources import is_file, resource

_NAMES, _NUMBERS = ("panel", "act", "curve"), ("epoch", "value")
_COLUMNS = (*_NAMES, *_NUMBERS)
_EXPECTED = f"expected a CSV file with the columns {', '.join(_COLUMNS)}"
# Dashes and gaps of the lines of several metrics, unlike those of training and published curves
_DASHES: tuple[tuple[float, ...], ...] = ((), (6, 1.5, 1, 1.5), (9, 2), (4, 1, 1, 1, 1, 1))
KINDS = ("held out", "training", "learnt", "published")


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
    by_user: bool = (
        False  # whether it is an activation of the user, which is drawn strong and on top
    )

    @property
    def kind(self) -> str:
        """Training or held-out data, or what an activation learnt."""
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
    ylim: tuple[float, float] | None = (
        None  # in drawn units; None determines the limits from the values
    )
    read: str = (
        ""  # where runs are read and under which condition; empty for epochs without a condition
    )
    # Selected tuned values in words, by label
    chosen: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[
        str, ...
    ] = ()  # labels without a line, because no run has the values of the figure
    log: bool = False  # whether the y axis is logarithmic


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
    def users(self) -> set[str]:
        """The labels of the user's activations."""
        return {line.label for line in self.lines if line.by_user}

    @property
    def kinds(self) -> list[str]:
        """What its lines are: the kinds of lines by `kind_of`, metrics last, and ``published``."""
        kinds = dict.fromkeys(self.kind_of(line) for line in self.lines)
        if any(line.published for line in self.lines):
            kinds["published"] = None
        return [
            *(kind for kind in KINDS if kind in kinds),
            *(kind for kind in kinds if kind not in KINDS),
        ]

    @cached_property
    def _shared(self) -> set[str]:
        """The kinds of which a panel has several metrics."""
        metrics = {
            (panel.number, line.kind, line.metric) for panel in self.panels for line in panel.lines
        }
        count = Counter((number, kind) for number, kind, _ in metrics)
        return {kind for (_, kind), several in count.items() if several > 1}

    def kind_of(self, line: Line) -> str:
        """Return the kind of a line, or its metric if a panel has several metrics of this kind."""
        return line.metric if line.kind in self._shared else line.kind

    def dash_of(self, kind: str) -> tuple[float, ...]:
        """Return lengths of dashes and gaps of a metric; empty for a solid line, and for any other kind."""
        metrics = [name for name in self.kinds if name not in KINDS]
        return _DASHES[metrics.index(kind) % len(_DASHES)] if kind in metrics else ()


def limits(panel: Panel) -> tuple[float, float]:
    """Return the limits of the y axis in drawn units.

    A panel without limits of its own extends from 0 to the extremes of its lines. Over epochs, the
    first tenth is ignored because a loss starts high. A logarithmic axis contains all values above
    0; one of learnt parameters need not contain 0.
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
    known = known[known > 0] if panel.log else known
    nothing = panel.scale if panel.log else 0.0, panel.scale
    low, high = (float(known.min()), float(known.max())) if known.size else nothing
    if panel.log:
        return low / 1.5, high * 1.5
    if low < high and all(is_parameter(line.metric) for line in panel.lines):
        return low - 0.08 * (high - low), high + 0.08 * (high - low)
    return min(0.0, 1.08 * low), max(0.0, 1.08 * high) or panel.scale


@dataclass(frozen=True)
class PublishedCurves:
    """Curves of a paper."""

    figure: str  # its name, for messages
    names: Mapping[str, str]  # of activations in the file, by our grid value as text
    # By panel, activation and curve of the file
    curves: Mapping[tuple[str, str, str], PublishedCurve]

    def check(self, panel: str, curve: str | None) -> None:
        """Raise an ActlabError for a panel or curve that the file lacks."""
        panels, curves = {panel for panel, *_ in self.curves}, {curve for *_, curve in self.curves}
        if panel not in panels:
            raise unknown(
                "panel of published curves", str(panel), panels, f"In figure {self.figure!r}."
            )
        if curve is not None and curve not in curves:
            raise unknown(
                "published curve", str(curve), curves, f"In 'y' of figure {self.figure!r}."
            )

    def get(self, panel: str | None, value: Any, curve: str | None) -> PublishedCurve | None:
        """Return the curve of a grid value, such as an activation; None without a curve."""
        of_value = (name for text, name in self.names.items() if same(named(text, [value]), value))
        key: Any = (panel, next(of_value, None), curve)  # where any is None, there is no curve
        return self.curves.get(key)


def read_curves(entry: Mapping[str, Any], figure: str) -> PublishedCurves:
    """Read the curves of a figure's ``published`` entry.

    The entry has a ``file``, and ``names``, which map our names to the file's. ``stretch``
    multiplies the epochs, for a paper whose epochs have another number of updates than ours.
    """
    if not entry:
        return PublishedCurves(figure, {}, {})
    frame = _table(entry["file"])
    names: Mapping[str, str] = entry.get("names", {})
    known, stretch = set(frame["act"]), float(entry.get("stretch", 1.0))
    for name in names.values():
        if name not in known:
            raise unknown("name in published curves", str(name), known, f"In figure {figure!r}.")
    curves = {}
    for of_curve, rows in frame.groupby([*_NAMES]):
        panel, act, curve = map(str, of_curve)
        x, values = stretch * rows["epoch"].to_numpy(), rows["value"].to_numpy()
        curves[panel, act, curve] = PublishedCurve(x, values, (panel, act, curve))
    return PublishedCurves(figure, names, curves)


def _table(file: str) -> pd.DataFrame:
    try:
        path = Path(file) if is_file(Path(file)) else resource(file)
    except ActlabError:
        raise ActlabError(f"file of published curves not found: {file!r}; {_EXPECTED}") from None
    types = dict.fromkeys(_NAMES, str) | dict.fromkeys(_NUMBERS, float)
    try:
        # A panel may be called NA, or 1
        frame = pd.read_csv(regular(path), dtype=types, keep_default_na=False)
    except (OSError, ValueError) as error:
        text = f"{file} cannot be read as published curves ({one_line(error)}); {_EXPECTED}"
        raise ActlabError(text) from error
    if missing := [column for column in _COLUMNS if column not in frame]:
        raise ActlabError(f"{file} lacks the columns {', '.join(missing)}; {_EXPECTED}")
    if not np.isfinite(frame[[*_NUMBERS]]).all(axis=None):
        raise ActlabError(
            f"{file} has numbers that are not finite: correct them or delete their rows"
        )
    return frame
