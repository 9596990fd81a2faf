"""The columns of a study's table: which metric, measured under which condition, read where in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from actlab.errors import ActlabError, unknown
from actlab.series import Array, summary
from actlab.studies.plan import Study

_AT = {"last": "last", "best": "best", "best_epoch": "epoch of best", "selected": "at selection"}
SUMMED = ("last", "best", "best_epoch")  # what the summary of a series says
_KEYS = ("metric", "at", "condition", "percent", "mode")


@dataclass(frozen=True)
class Column:
    """A quantity: a metric, and where in a run its value is read.

    Args:
        metric: ``split/metric``, or ``probe/split/metric``.
        at: ``last``; ``best``, the best value reached; ``best_epoch``, when it was reached; ``selected``, the
            value at the epoch where the selection metric is best; or an epoch, the value then or last before.
        percent: printed in percent; values stay fractions.
        mode: ``min`` or ``max``: whether low or high values are good.
        condition: such as ``noise=0.5``; empty for what was measured under none.
    """

    metric: str
    at: str | float = "last"
    percent: bool = False
    mode: str = "min"
    condition: str = ""

    @property
    def name(self) -> str:
        """The column in words, for the head of a table.

        >>> Column("noise/test/error", percent=True, condition="noise=0.5").name
        'noise test error % (noise=0.5, last)'
        """
        words = self.metric.replace("/", " ").replace("_", " ") + (" %" if self.in_percent else "")
        condition = f"{self.condition}, " if self.condition else ""
        return f"{words} ({condition}{_AT.get(str(self.at), f'epoch {self.at}')})"

    @property
    def key(self) -> str:
        """The column in files: ``test/error@last``, ``noise/test/error[noise=0.5]@last``."""
        return f"{self.metric}{f'[{self.condition}]' if self.condition else ''}@{self.at}"

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

    Without ``mode``, high values of the selection metric are good as ``select`` says, and of any other metric
    when its name ends with "accuracy".

    Raises:
        ActlabError: for an unknown key, mode or place in the run, or without a metric.
    """
    for key in entry:
        if key not in _KEYS:
            raise unknown("key of a table column", str(key), _KEYS)
    if "metric" not in entry:
        raise ActlabError(f"table column {dict(entry)!r} lacks 'metric', such as test/error")
    at, metric = entry.get("at", "last"), str(entry["metric"])
    if at not in _AT and not isinstance(at, int | float):
        raise unknown("value of 'at'", str(at), _AT, "Or give the number of an epoch.")
    guess = "max" if metric.endswith("accuracy") else "min"
    mode = entry.get("mode", study.select.mode if metric == study.select.metric else guess)
    if mode not in ("min", "max"):
        raise unknown(f"mode of {metric}", str(mode), ("min", "max"))
    return Column(metric, at, bool(entry.get("percent", False)), mode, str(entry.get("condition") or ""))


def read_at(epochs: Array, values: Array, at: str | float, column: Column) -> float | None:
    """One number from the values of one run; a nan counts as the worst value.

    Args:
        epochs: shape ``[E]``, ascending.
        values: shape ``[E]``.
        at: ``last``, ``best``, ``best_epoch`` or an epoch.
        column: says which values are good.

    Returns:
        None at an epoch before the first one.

    >>> epochs, values = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.2, 0.4])
    >>> [read_at(epochs, values, at, Column("test/error")) for at in ("last", "best", "best_epoch", 1.5)]
    [0.4, 0.2, 2.0, 0.5]
    """
    if at in SUMMED:
        return summary(epochs, values).read(str(at), column.mode)
    before = np.flatnonzero(epochs <= float(at) + 1e-6)
    return summary(epochs[before], values[before]).read("last", column.mode) if before.size else None
