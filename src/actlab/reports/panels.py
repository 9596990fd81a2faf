"""The contents of a figure before it is drawn: panels, lines and published curves."""

from __future__ import annotations

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

_TEXT_COLUMNS = ("panel", "act", "curve")
_NUMBER_COLUMNS = ("epoch", "value")
_COLUMNS = (*_TEXT_COLUMNS, *_NUMBER_COLUMNS)
_EXPECTED = f"expected a CSV file with the columns {', '.join(_COLUMNS)}"
# Dashes and gaps of the lines of several metrics, unlike the dashes of training and
# published curves
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 1.5, 1, 1.5),
    (9, 2),
    (4, 1, 1, 1, 1, 1),
)
KINDS = ("held out", "training", "learnt", "published")


class PublishedCurve(NamedTuple):
    """A curve of a paper: positions, values, and the panel, activation and curve in the file."""

    x: Any
    values: Any
    name: tuple[str, str, str]


@dataclass(frozen=True)
class Line:
    """A line of a panel: medians over runs, and the published curve next to them."""

    label: str  # such as an activation
    metric: str
    curve: Curve
    published: PublishedCurve | None
    by_user: bool = False  # the user's activations are drawn strong and on top

    @property
    def kind(self) -> str:
        """Training or held-out data, or what an activation learnt."""
        if self.metric == LEARNT or is_parameter(self.metric):
            return "learnt"
        if "train" in self.metric.split("/")[:-1]:
            return "training"
        return "held out"


@dataclass(frozen=True)
class Panel:
    """The contents of one pair of axes."""

    number: int  # in the study's file, from 1 on
    title: str
    lines: list[Line]  # at least one
    xlabel: str
    ylabel: str
    over_epochs: bool = False
    scale: float = 1.0  # factor from stored to drawn values
    # In drawn units; None determines the limits from the values
    ylim: tuple[float, float] | None = None
    # Where runs are read and under which condition; empty for epochs without a
    # condition
    read: str = ""
    # Selected tuned values in words, by label
    selected: Mapping[str, str] = field(default_factory=dict)
    # Labels without a line, because no run has the values of the figure
    absent: tuple[str, ...] = ()
    log: bool = False  # whether the y axis is logarithmic


@dataclass(frozen=True)
class Plot:
    """A figure before it is drawn: name of its files, panels with at least a line, and caption."""

    name: str
    panels: list[Panel]
    caption: str

    @property
    def lines(self) -> list[Line]:
        """The lines of all panels."""
        lines: list[Line] = []
        for panel in self.panels:
            lines += panel.lines
        return lines

    @property
    def users(self) -> set[str]:
        """The labels of the user's activations."""
        return {line.label for line in self.lines if line.by_user}

    @property
    def kinds(self) -> list[str]:
        """The kinds of its lines by `kind_of`, metrics last, and ``published``."""
        kinds: dict[str, None] = {}
        for line in self.lines:
            kinds[self.kind_of(line)] = None
            if line.published:
                kinds["published"] = None

        metrics = [kind for kind in kinds if kind not in KINDS]
        return [kind for kind in KINDS if kind in kinds] + metrics

    @cached_property
    def _shared(self) -> set[str]:
        """The kinds for which a panel has several metrics."""
        shared: set[str] = set()
        for panel in self.panels:
            metric_by_kind: dict[str, str] = {}
            for line in panel.lines:
                if metric_by_kind.setdefault(line.kind, line.metric) != line.metric:
                    shared.add(line.kind)
        return shared

    def kind_of(self, line: Line) -> str:
        """Return the kind of a line, or its metric if a panel has several metrics of this kind."""
        if line.kind in self._shared:
            return line.metric
        return line.kind

    def dash_of(self, kind: str) -> tuple[float, ...]:
        """Return lengths of dashes and gaps of a metric; empty for a solid line or another kind."""
        metrics = [name for name in self.kinds if name not in KINDS]
        if kind not in metrics:
            return ()
        return _DASHES[metrics.index(kind) % len(_DASHES)]


def limits(panel: Panel) -> tuple[float, float]:
    """Return the limits of the y axis in drawn units.

    A panel without limits of its own extends from 0 to the extremes of its lines. Over epochs, the
    first tenth is ignored because a loss starts high. A logarithmic axis contains all values above
    0; the axis of learnt parameters need not contain 0.
    """
    if panel.ylim:
        return panel.ylim

    values = np.concatenate([_drawn_values(line, panel) for line in panel.lines])

    # A logarithmic axis has no 0
    if panel.log:
        values = values[values > 0]
        if not values.size:
            return panel.scale / 1.5, panel.scale * 1.5
        return float(values.min()) / 1.5, float(values.max()) * 1.5

    # Without values, the axis is from 0 to 1 in stored units
    low = 0.0
    high = panel.scale
    if values.size:
        low = float(values.min())
        high = float(values.max())
    if low < high and all(is_parameter(line.metric) for line in panel.lines):
        margin = 0.08 * (high - low)
        return low - margin, high + margin
    return min(0.0, 1.08 * low), max(0.0, 1.08 * high) or panel.scale


def _drawn_values(line: Line, panel: Panel) -> Any:
    """Return the finite values of a line that the y axis should contain, in drawn units."""
    x = line.curve.x
    band = line.curve.band

    # Ignore the first tenth of epochs
    begin = -np.inf
    if panel.over_epochs and not panel.log:
        begin = x[-1] / 10

    # A logarithmic axis also contains medians whose band extends below 0
    curves = [band.low, band.high]
    if panel.log:
        curves.append(band.median)
    drawn = [
        panel.scale * values[(x >= begin) & np.isfinite(values)] for values in curves
    ]

    # Published values as far as our line goes
    if line.published:
        published_x = np.asarray(line.published.x)
        values = np.asarray(line.published.values)
        inside = (published_x >= begin) & (published_x <= x[-1])
        drawn.append(values[inside & np.isfinite(values)])
    return np.concatenate(drawn)


@dataclass(frozen=True)
class PublishedCurves:
    """Curves of a paper."""

    figure: str  # its name, for messages
    names: Mapping[str, str]  # of activations in the file, by our grid value as text
    # By panel, activation and curve of the file
    curves: Mapping[tuple[str, str, str], PublishedCurve]

    def check(self, panel: str, curve: str | None) -> None:
        """Raise an ActlabError for a panel or curve that the file lacks."""
        panels = set()
        curves = set()
        for panel_name, _, curve_name in self.curves:
            panels.add(panel_name)
            curves.add(curve_name)

        if panel not in panels:
            location = f"In figure {self.figure!r}."
            raise unknown("panel of published curves", str(panel), panels, location)
        if curve is not None and curve not in curves:
            location = f"In 'y' of figure {self.figure!r}."
            raise unknown("published curve", str(curve), curves, location)

    def get(
        self, panel: str | None, value: Any, curve: str | None
    ) -> PublishedCurve | None:
        """Return the curve of a grid value, such as an activation; None without a curve."""
        for text, name in self.names.items():
            if same(named(text, [value]), value):
                key: Any = (panel, name, curve)  # panel and curve may be None
                return self.curves.get(key)
        return None


def read_curves(entry: Mapping[str, Any], figure: str) -> PublishedCurves:
    """Read the curves of a figure's ``published`` entry.

    Args:
        entry: a ``file``; ``names``, from our names to those in the file; ``stretch``, a factor
            for the epochs of a paper whose epochs have another number of updates than ours.
            May be empty.
        figure: name of the figure, for messages.

    Raises:
        ActlabError: for a file that is missing or malformed, and for a name that it lacks.
    """
    # A figure without published curves
    if not entry:
        return PublishedCurves(figure, {}, {})

    frame = _table(entry["file"])

    # Check the names of activations
    names: Mapping[str, str] = entry.get("names", {})
    file_names = set(frame["act"])
    for name in names.values():
        if name not in file_names:
            location = f"In figure {figure!r}."
            raise unknown("name in published curves", str(name), file_names, location)

    # Curves by panel, activation and curve
    stretch = float(entry.get("stretch", 1.0))
    curves = {}
    for key, rows in frame.groupby([*_TEXT_COLUMNS]):
        panel, act, curve = map(str, key)
        x = stretch * rows["epoch"].to_numpy()
        values = rows["value"].to_numpy()
        curves[panel, act, curve] = PublishedCurve(x, values, (panel, act, curve))
    return PublishedCurves(figure, names, curves)


def _table(file: str) -> pd.DataFrame:
    # A file in the working directory comes before one that ships with actlab
    path = Path(file)
    if not is_file(path):
        try:
            path = resource(file)
        except ActlabError:
            text = f"published.file: {_EXPECTED}, got {file!r}, which does not exist"
            raise ActlabError(text) from None

    # Columns with checked types
    types = dict.fromkeys(_TEXT_COLUMNS, str) | dict.fromkeys(_NUMBER_COLUMNS, float)
    try:
        # A panel may be called NA, or 1
        frame = pd.read_csv(regular(path), dtype=types, keep_default_na=False)
    except (OSError, ValueError) as error:
        text = f"published.file: {_EXPECTED}, got {file} ({one_line(error)})"
        raise ActlabError(text) from error

    # Reject missing columns and numbers
    missing = [column for column in _COLUMNS if column not in frame]
    if missing:
        text = f"published.file: {_EXPECTED}, got {file} without {', '.join(missing)}"
        raise ActlabError(text)
    if not np.isfinite(frame[[*_NUMBER_COLUMNS]]).all(axis=None):
        raise ActlabError(
            f"{file} has numbers that are not finite. Correct them, or delete their rows."
        )
    return frame
