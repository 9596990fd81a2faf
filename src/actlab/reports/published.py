"""Published curves, from a file with the columns ``panel,act,curve,epoch,value``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from actlab.config.keys import same
from actlab.errors import ActlabError, one_line, unknown
from actlab.storage.files import regular
from actlab.storage.resources import is_file, resource

_KEYS = ("file", "names", "stretch")
_NAMES, _NUMBERS = ("panel", "act", "curve"), ("epoch", "value")
_COLUMNS = (*_NAMES, *_NUMBERS)
_NEEDED = f"needed is a CSV file with the columns {', '.join(_COLUMNS)}"


@dataclass(frozen=True)
class PublishedCurves:
    """Curves of a paper.

    Args:
        curves: places on the x axis and values, by panel of the paper, our name and name of the curve.
        panels: those of the file.
        names: the curves' names in the file.
        acts: the file's names of our values.
        figure: whose curves they are, for messages.
    """

    curves: Mapping[tuple[str, str, str], tuple[Any, Any]] = field(default_factory=dict)
    panels: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    acts: Mapping[str, str] = field(default_factory=dict)
    figure: str = ""

    def check(self, panel: str, curve: str | None) -> None:
        """Raise an ActlabError for a panel or a curve that the file lacks."""
        if panel not in self.panels:
            raise unknown("panel of published curves", str(panel), self.panels, f"In figure {self.figure!r}.")
        if curve is not None and curve not in self.names:
            raise unknown("published curve", str(curve), self.names, f"In 'y' of figure {self.figure!r}.")

    def get(self, panel: str | None, value: Any, curve: str | None) -> tuple[Any, Any] | None:
        """The curve of a grid value, such as a unit; None where there is none."""
        found = self._key(panel, value, curve)
        return self.curves[found] if found else None

    def name(self, panel: str | None, value: Any, curve: str | None) -> tuple[str, str, str] | None:
        """Panel, unit and curve of a grid value's curve as the file names them; None where there is none."""
        found = self._key(panel, value, curve)
        return (found[0], self.acts[found[1]], found[2]) if found else None

    def _key(self, panel: str | None, value: Any, curve: str | None) -> tuple[str, str, str] | None:
        keys = (key for key in self.curves if (key[0], key[2]) == (panel, curve))
        return next((key for key in keys if same(key[1], value)), None)


def read_curves(entry: Mapping[str, Any], figure: str) -> PublishedCurves:
    """The curves of a figure's ``published``: a ``file``, and ``names``, which map our values to the file's.

    Their epochs are multiplied by ``stretch``, where an epoch has another number of updates than ours.

    Raises:
        ActlabError: for an unknown key or name, or a file that is missing, no table, without the columns, or
            with a place or value that is no finite number.
    """
    for key in entry:
        if key not in _KEYS:
            raise unknown("key of published curves", str(key), _KEYS)
    if not entry:
        return PublishedCurves(figure=figure)
    if "file" not in entry:
        raise ActlabError(
            f"'published' of figure {figure!r} lacks 'file', such as data/published/gelu_curves.csv"
        )
    frame = _table(str(entry["file"]))
    labels: Mapping[str, str] = entry.get("names", {})
    for theirs in labels.values():
        if theirs not in set(frame["act"]):
            raise unknown("name in published curves", str(theirs), set(frame["act"]), f"In figure {figure!r}.")
    stretch = float(entry.get("stretch", 1.0))
    curves = {
        (str(panel), ours, str(curve)): (stretch * rows["epoch"].to_numpy(), rows["value"].to_numpy())
        for (panel, act, curve), rows in frame.groupby(["panel", "act", "curve"])
        for ours, theirs in labels.items()
        if theirs == act
    }
    return PublishedCurves(curves, frozenset(frame["panel"]), frozenset(frame["curve"]), labels, figure)


def _table(file: str) -> pd.DataFrame:
    try:
        path = Path(file) if is_file(Path(file)) else resource(file)
    except ActlabError:
        raise ActlabError(f"there is no file {file!r} of published curves; {_NEEDED}") from None
    try:
        frame = pd.read_csv(regular(path), dtype=str, keep_default_na=False)  # a panel may be called NA, or 1
    except (OSError, ValueError) as error:
        raise ActlabError(
            f"{file} cannot be read as published curves ({one_line(error)}); {_NEEDED}"
        ) from error
    if missing := [column for column in _COLUMNS if column not in frame]:
        raise ActlabError(f"{file} lacks the columns {', '.join(missing)}; {_NEEDED}")
    for column in _NUMBERS:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        for row in np.flatnonzero(~np.isfinite(numbers)):
            raise ActlabError(
                f"{file}: {column} {frame[column][row]!r} of data row {row + 1} is no finite number; correct "
                "it, or take the row out"
            )
        frame[column] = numbers
    return frame
