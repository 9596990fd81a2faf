"""The columns of a study's table: which metric, read where in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from actlab.analysis.statistics import Array
from actlab.errors import ActlabError, unknown
from actlab.studies.plan import Study

_AT = ("last", "best", "best_epoch", "selected")
_NAMES_AT = {"last": "last", "best": "best", "best_epoch": "epoch of best", "selected": "at selection"}


@dataclass(frozen=True)
class Column:
    """A quantity of the table: a metric and where in the run it is read.

    Args:
        metric: ``split/name``.
        at: ``last``; ``best``, the best value reached; ``best_epoch``, when that was; ``selected``, the value
            at the epoch where the selection metric is best; or an epoch, the value at it or last before it.
        percent: printed in percent; values stay fractions.
        mode: ``min`` or ``max``: which values are good.
    """

    metric: str
    at: str | float = "last"
    percent: bool = False
    mode: str = "min"

    @property
    def name(self) -> str:
        """How tables call it."""
        words = self.metric.replace("/", " ").replace("_", " ") + (" %" if self.in_percent else "")
        return f"{words} ({_NAMES_AT.get(str(self.at), f'epoch {self.at}')})"

    @property
    def in_percent(self) -> bool:
        """Whether the printed value is the value times 100; an epoch never is."""
        return self.percent and self.at != "best_epoch"

    @property
    def worst(self) -> float:
        """The value of a diverged run."""
        return -math.inf if self.mode == "max" and self.at != "best_epoch" else math.inf


def column(entry: Mapping[str, Any], study: Study) -> Column:
    """A column from an entry of the study file's ``table``.

    Raises:
        ActlabError: for an unknown key or a place in the run that is none.
    """
    for key in entry:
        if key not in ("metric", "at", "percent", "mode"):
            raise unknown("key of a table column", str(key), ("metric", "at", "percent", "mode"))
    if "metric" not in entry:
        raise ActlabError(f"table column {dict(entry)!r} lacks 'metric', such as test/error")
    at, metric = entry.get("at", "last"), str(entry["metric"])
    if at not in _AT and not isinstance(at, int | float):
        raise unknown("'at' of a table column", str(at), _AT, "Or give the number of an epoch.")
    guess = "max" if metric.endswith("accuracy") else "min"
    mode = entry.get("mode", study.select.mode if metric == study.select.metric else guess)
    return Column(metric, at, bool(entry.get("percent", False)), mode)


def read_at(epochs: Array, values: Array, at: str | float, column: Column) -> float | None:
    """The value of one course at ``last``, ``best``, ``best_epoch`` or an epoch; a nan counts as the worst."""
    values = np.where(np.isnan(values), column.worst, values)
    best = int(np.argmax(values) if column.mode == "max" else np.argmin(values))
    if at == "last":
        return float(values[-1])
    if at in ("best", "best_epoch"):
        return float(values[best] if at == "best" else epochs[best])
    before = np.flatnonzero(epochs <= float(at) + 1e-6)
    return float(values[before[-1]]) if before.size else None
