"""The columns of a study's table: which metric, measured under which condition, read where in a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from actlab.config.keys import mode_of
from actlab.errors import ActlabError, unknown
from actlab.storage.series import Array, summary
from actlab.studies.plan import Study

_AT = {"last": "last", "best": "best", "best_epoch": "epoch of best", "selected": "at selection"}
_WHERE = re.compile(r"best (?P<metric>\S+)")
_OVER = re.compile(r"mean(?: (?P<first>\d+)-(?P<last>\d+))?|below (?P<level>\d+(?:\.\d+)?)")
SUMMED = ("last", "best", "best_epoch")  # what the summary of a series says
_KEYS = ("metric", "at", "condition", "percent", "mode", "ranked", "chance")


@dataclass(frozen=True)
class Column:
    """A quantity: a metric, and where in a run its value is read.

    Args:
        metric: ``split/metric``, or ``probe/split/metric``.
        at: ``last``; ``best``, the best value reached; ``best_epoch``, when it was reached; ``selected``, the
            value at the epoch where the selection metric is best; ``best val/error``, where that one is; an
            epoch, the value then or last before; ``mean`` of all values, or ``mean 5-50`` of those of some
            epochs; ``below 0.1``, the first epoch with a value below it, inf where there is none.
        percent: printed in percent; values stay fractions.
        mode: ``min`` or ``max``: whether low or high values are good.
        condition: such as ``noise=0.5``; empty for what was measured under none.
        ranked: whether units may be ranked by it over studies; the first such column of a table is.
        chance: what guessing gives, such as an error of 0.9 with ten classes; a unit that is no better has no
            rank. None where that is not known.
    """

    metric: str
    at: str | float = "last"
    percent: bool = False
    mode: str = "min"
    condition: str = ""
    ranked: bool = True
    chance: float | None = None

    @property
    def name(self) -> str:
        """The column in words, for the head of a table.

        >>> Column("noise/test/error", percent=True, condition="noise=0.5").name
        'noise test error % (noise=0.5, last)'
        """
        words = self.metric.replace("/", " ").replace("_", " ") + (" %" if self.in_percent else "")
        condition = f"{self.condition}, " if self.condition else ""
        return f"{words} ({condition}{place(self.at)})"

    @property
    def key(self) -> str:
        """The column in files: ``test/error@last``, ``noise/test/error[noise=0.5]@last``."""
        return f"{self.metric}{f'[{self.condition}]' if self.condition else ''}@{self.at}"

    @property
    def is_epoch(self) -> bool:
        """Whether the value is an epoch."""
        return is_epoch(self.at)

    @property
    def in_percent(self) -> bool:
        """Whether the printed value is the value times 100; an epoch never is."""
        return self.percent and not self.is_epoch

    def guesses(self, value: float) -> bool:
        """Whether a value is no better than chance, in the precision in which runs record values.

        >>> [Column("test/error", chance=0.9).guesses(value) for value in (0.89, float(np.float32(0.9)), 0.93)]
        [False, True, True]
        """
        if self.chance is None:
            return False
        ours, chance = np.float32(value), np.float32(self.chance)
        return bool(ours <= chance if self.mode == "max" else ours >= chance)

    @property
    def worst(self) -> float:
        """The value of a diverged run."""
        return -math.inf if self.mode == "max" and not self.is_epoch else math.inf


def place(at: str | float) -> str:
    """Where in a run a value is read, in words.

    >>> [place(at) for at in ("best_epoch", 5, "mean 5-50", "below 0.1", "best val/error")]
    ['epoch of best', 'epoch 5', 'mean of epochs 5-50', 'first epoch below 0.1', 'at best val error']
    """
    if found := _WHERE.fullmatch(str(at)):
        return f"at best {found['metric'].replace('/', ' ').replace('_', ' ')}"
    if found := _OVER.fullmatch(str(at)):
        few = f" of epochs {found['first']}-{found['last']}" if found["first"] else " of all epochs"
        return f"first epoch {at}" if found["level"] else f"mean{few}"
    return _AT.get(str(at), f"epoch {at}")


def last_epoch(at: str | float) -> float | None:
    """The epoch that a run must have been trained to for its value to be read there; None where any will do."""
    if isinstance(at, int | float):
        return float(at)
    found = _OVER.fullmatch(at)
    return float(found["last"]) if found and found["last"] else None


def is_epoch(at: str | float) -> bool:
    """Whether what is read there is an epoch."""
    return at == "best_epoch" or str(at).startswith("below ")


def watched(at: str | float, study: Study) -> Column | None:
    """The column whose best epoch says where a run is read; None where ``at`` names no metric."""
    if at == "selected":
        return Column(study.select.metric, "best_epoch", mode=study.select.mode)
    found = _WHERE.fullmatch(str(at))
    return Column(found["metric"], "best_epoch", mode=mode_of(found["metric"], study.modes)) if found else None


def column(entry: Mapping[str, Any], study: Study) -> Column:
    """A column from an entry of the study file's ``table``.

    Without ``mode`` it is as the selection or another column says of this metric, or of one with the same last
    part, such as ``f1`` of ``test/f1``; else high values are good of an accuracy alone.

    Raises:
        ActlabError: for an unknown key, mode or place in the run, or without a metric.
    """
    for key in entry:
        if key not in _KEYS:
            raise unknown("key of a table column", str(key), _KEYS)
    if "metric" not in entry:
        raise ActlabError(f"table column {dict(entry)!r} lacks 'metric', such as test/error")
    at, metric = entry.get("at", "last"), str(entry["metric"])
    where = watched(at, study)
    if not (at in _AT or isinstance(at, int | float) or _OVER.fullmatch(str(at)) or where):
        remedy = "Or give the number of an epoch, 'mean', 'mean 5-50', 'below 0.1' or 'best val/error'."
        raise unknown("value of 'at'", str(at), _AT, remedy)
    if where and not where.metric.startswith("val/"):
        raise ActlabError(f"'at: {at}': no run is read where a {where.metric} is best; give one of val/…")
    mode = entry.get("mode") or mode_of(metric, study.modes)
    if mode not in ("min", "max"):
        raise unknown(f"mode of {metric}", str(mode), ("min", "max"))
    condition, percent = str(entry.get("condition") or ""), bool(entry.get("percent", False))
    chance = None if entry.get("chance") is None else float(entry["chance"])
    return Column(metric, at, percent, mode, condition, bool(entry.get("ranked", True)), chance)


def read_at(epochs: Array, values: Array, at: str | float, column: Column) -> float | None:
    """One number from the values of one run; a nan counts as the worst value.

    Args:
        epochs: shape ``[E]``, ascending.
        values: shape ``[E]``.
        at: as in a `Column`, but for ``selected``.
        column: says which values are good.

    Returns:
        None at an epoch before the first one.

    >>> epochs, values = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.2, 0.4])
    >>> [read_at(epochs, values, at, Column("test/error")) for at in ("last", "best", "best_epoch", 1.5)]
    [0.4, 0.2, 2.0, 0.5]
    >>> [read_at(epochs, values, at, Column("test/error")) for at in ("mean 2-3", "below 0.3", "below 0.1")]
    [0.30000000000000004, 2.0, inf]
    """
    if found := _OVER.fullmatch(str(at)):
        if found["level"]:
            below = np.flatnonzero(values < float(found["level"]))
            return float(epochs[below[0]]) if below.size else math.inf
        first, last = (float(found[k] or limit) for k, limit in (("first", 0), ("last", math.inf)))
        within = values[(epochs >= first - 1e-6) & (epochs <= last + 1e-6)]
        mean = float(within.mean()) if within.size else None
        return column.worst if mean is not None and math.isnan(mean) else mean
    if at in SUMMED:
        return summary(epochs, values).read(str(at), column.mode)
    before = np.flatnonzero(epochs <= float(at) + 1e-6)
    return summary(epochs[before], values[before]).read("last", column.mode) if before.size else None
