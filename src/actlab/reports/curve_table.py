"""The figures of a study as numbers: ``curves.csv``, one row per x position of each line.

A panel without a title has its number, from 1 on. Errors are fractions, ``inf`` is a diverged run. The last
three columns name the published curve drawn with the line, as in the published file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from actlab.analysis.results import Results
from actlab.errors import one_line
from actlab.reports.panels import Plot
from actlab.reports.plots import read
from actlab.storage.files import DamagedError, regular, write_atomically

NAME = "curves.csv"
_WORDS, _NUMBERS = ("figure", "panel", "line", "metric"), ("x", "median", "low", "high", "n")
_PUBLISHED = ("published_panel", "published_act", "published_curve")
COLUMNS = (*_WORDS, *_NUMBERS, *_PUBLISHED)


def write(results: Results, folder: Path) -> Path:
    """Write ``curves.csv`` and return its path; the folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / NAME, to_csv(read(results)))
    return folder / NAME


def load(path: Path) -> pd.DataFrame:
    """Return the rows of a ``curves.csv``; text stays text, such as a line called None."""
    types = dict.fromkeys((*_WORDS, *_PUBLISHED), str) | dict.fromkeys(_NUMBERS, float) | {"n": int}
    try:
        frame = pd.read_csv(regular(path), dtype=types, keep_default_na=False)
        if missing := [name for name in (*_WORDS, *_NUMBERS) if name not in frame]:
            raise ValueError(f"it lacks the columns {', '.join(missing)}")
    except (OSError, ValueError) as error:
        raise DamagedError(
            f"{path} is damaged ({one_line(error, 100)}): let `actlab study report` write it again"
        ) from error
    return frame


def to_csv(plots: Sequence[Plot]) -> str:
    """Return every position of every line of several figures as CSV."""
    rows = []
    for plot in plots:
        for panel in plot.panels:
            for line in panel.lines:
                names = plot.name, panel.title or panel.number, line.label, line.metric
                ours, theirs = line.ours, line.published.name if line.published else ("", "", "")
                places = zip(ours.x, *ours.band[:3], strict=True)
                rows += [(*names, *place, ours.n, *theirs) for place in places]
    return pd.DataFrame(rows, columns=[*COLUMNS]).to_csv(index=False, lineterminator="\n")
