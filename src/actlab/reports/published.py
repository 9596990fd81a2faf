"""Published curves, from a file with the columns ``panel,act,curve,epoch,value``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from actlab.config.values import named, same
from actlab.errors import ActlabError, one_line, unknown
from actlab.reports.panels import PublishedCurve
from actlab.storage.files import regular
from actlab.storage.resources import is_file, resource

_NAMES, _NUMBERS = ("panel", "act", "curve"), ("epoch", "value")
_COLUMNS = (*_NAMES, *_NUMBERS)
_EXPECTED = f"expected a CSV file with the columns {', '.join(_COLUMNS)}"


@dataclass(frozen=True)
class PublishedCurves:
    """Curves of a paper."""

    curves: Mapping[str, Sequence[PublishedCurve]] = field(default_factory=dict)  # by our grid value, as text
    panels: frozenset[str] = frozenset()  # in the file
    names: frozenset[str] = frozenset()  # of the curves in the file
    figure: str = ""  # name of the figure, for messages

    def check(self, panel: str, curve: str | None) -> None:
        """Raise an ActlabError for a panel or curve that the file lacks."""
        if panel not in self.panels:
            raise unknown("panel of published curves", str(panel), self.panels, f"In figure {self.figure!r}.")
        if curve is not None and curve not in self.names:
            raise unknown("published curve", str(curve), self.names, f"In 'y' of figure {self.figure!r}.")

    def get(self, panel: str | None, value: Any, curve: str | None) -> PublishedCurve | None:
        """Return the curve of a grid value, such as an activation; None without a curve."""
        ours = (found for text, found in self.curves.items() if same(named(text, [value]), value))
        fits = (one for found in ours for one in found if (one.name[0], one.name[2]) == (panel, curve))
        return next(fits, None)


def read_curves(entry: Mapping[str, Any], figure: str) -> PublishedCurves:
    """Read the curves of a figure's ``published`` entry.

    The entry has a ``file``, and ``names``, which map our names to the file's. ``stretch`` multiplies the
    epochs, for a paper whose epochs have another number of updates than ours.
    """
    if not entry:
        return PublishedCurves(figure=figure)
    frame = _table(entry["file"])
    labels: Mapping[str, str] = entry.get("names", {})
    for theirs in labels.values():
        if theirs not in set(frame["act"]):
            raise unknown("name in published curves", str(theirs), set(frame["act"]), f"In figure {figure!r}.")
    stretch = float(entry.get("stretch", 1.0))
    by_act: dict[str, list[PublishedCurve]] = {}
    for of, rows in frame.groupby(["panel", "act", "curve"]):
        panel, act, curve = map(str, of)
        x, values = stretch * rows["epoch"].to_numpy(), rows["value"].to_numpy()
        by_act.setdefault(act, []).append(PublishedCurve(x, values, (panel, act, curve)))
    curves = {ours: by_act[theirs] for ours, theirs in labels.items()}
    return PublishedCurves(curves, frozenset(frame["panel"]), frozenset(frame["curve"]), figure)


def _table(file: str) -> pd.DataFrame:
    try:
        path = Path(file) if is_file(Path(file)) else resource(file)
    except ActlabError:
        raise ActlabError(f"file of published curves not found: {file!r}; {_EXPECTED}") from None
    types = dict.fromkeys(_NAMES, str) | dict.fromkeys(_NUMBERS, float)
    try:
        frame = pd.read_csv(regular(path), dtype=types, keep_default_na=False)  # a panel may be called NA, or 1
    except (OSError, ValueError) as error:
        raise ActlabError(
            f"{file} cannot be read as published curves ({one_line(error)}); {_EXPECTED}"
        ) from error
    if missing := [column for column in _COLUMNS if column not in frame]:
        raise ActlabError(f"{file} lacks the columns {', '.join(missing)}; {_EXPECTED}")
    if not np.isfinite(frame[[*_NUMBERS]]).all(axis=None):
        raise ActlabError(f"{file} has numbers that are not finite: correct them or delete their rows")
    return frame
