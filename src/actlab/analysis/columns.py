"""The columns of a study's table: metric, condition, and where in a run the value is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from actlab.analysis.statistics import sampling_error
from actlab.analysis.wording import digits
from actlab.config import metrics
from actlab.config.metrics import is_parameter, logged
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage.series import Array, summary
from actlab.studies.plan import Study

_AT = {
    "last": "last",
    "best": "best",
    "best_epoch": "epoch of best",
    "selected": "at selection",
}
_BEST_OF = re.compile(r"best (?P<metric>\S+)")
_AGGREGATE = re.compile(r"mean(?: (?P<first>\d+)-(?P<last>\d+))?|below (?P<level>\d+(?:\.\d+)?)")
SUMMED = ("last", "best", "best_epoch")  # values contained in the summary of a series
_RELATIVE = re.compile(r"(\d+(?:\.\d+)?) ?%")


@dataclass(frozen=True)
class Column:
    """A table column: a metric, and where in a run its value is read.

    ``at`` is ``last``; ``best``, the best value reached; ``best_epoch``, the epoch of the best
    value; ``selected``, the value at the epoch with the best selection metric, or the last one in a
    study that selects by last values; ``best val/error``, the value at the epoch with the best
    val/error; an epoch, the value at that epoch or the last one before; ``mean`` of all values, or
    ``mean 5-50`` of the values of epochs 5 to 50; ``below 0.1``, the first epoch with a value below
    0.1, inf without such an epoch.
    """

    metric: str  # ``split/metric``, or ``probe/split/metric``
    at: str | int | float = "last"
    percent: bool = False  # whether to print percent; values stay fractions
    # ``min`` or ``max`` is good; "" if that is unknown, of a column that needs no direction
    mode: str = "min"
    condition: str = ""  # such as ``noise=0.5``; empty for values measured without a condition
    ranked: bool = (
        True  # whether it may rank activations across studies; a table's first such column does
    )
    chance: float | None = (
        None  # value of random guessing, such as an error of 0.9 with ten classes, if known
    )
    samples: int | None = (
        None  # number of samples that a share was measured on, where runs did not record it
    )
    margin: float | None = (
        None  # largest difference that counts as equivalent, fixed before the runs
    )
    relative: bool = False  # whether the margin is a fraction of the reference's median
    loop: str = (
        ""  # ``train``, ``val`` or ``test``, which logged the metric, in runs that recorded it
    )
    scale: str = ""  # ``log``: compared by ratios; ``decibels``: divided as mean squared errors

    @property
    def name(self) -> str:
        """The column in words, for the header of a table."""
        words = self.metric.replace("/", " ").replace("_", " ") + (" %" if self.in_percent else "")
        condition = f"{self.condition}, " if self.condition else ""
        return f"{words} ({condition}{place(self.at)})"

    @property
    def key(self) -> str:
        """The column in files: ``test/error@last``, ``noise/test/error[noise=0.5]@last``."""
        return f"{logged(self.metric, self.condition)}@{self.at}"

    @property
    def is_epoch(self) -> bool:
        """Whether the value is an epoch."""
        return self.at == "best_epoch" or str(self.at).startswith("below ")

    @property
    def in_percent(self) -> bool:
        """Whether the value is printed times 100; an epoch never is."""
        return self.percent and not self.is_epoch

    def text(self, value: float, signed: bool = False) -> str:
        """Return a finite value as printed: percent with 2 decimals, epochs with 1, others with 3 digits.

        A difference, which is ``signed``, is on the scale ``log`` printed as a ratio.
        """
        if signed and self.by_ratio:
            return f"×{ratio_text(value)}"
        sign = "+" if signed else ""
        if self.in_percent:
            return f"{100 * value:{sign}.2f}"
        return f"{value:{sign}.1f}" if self.is_epoch else digits(value, sign)

    def size(self, difference: float) -> str:
        """Return the size of a difference with its unit: ``0.31 points``, ``a ratio of 1.05``."""
        if self.by_ratio:
            return f"a ratio of {ratio_text(abs(difference))}"
        unit = " points" if self.in_percent else " epochs" if self.is_epoch else ""
        return self.text(abs(difference)) + unit

    def signed(self, difference: float) -> str:
        """Return a difference with its sign and unit: ``−0.31 points``, ``×1.05``."""
        if self.by_ratio:
            return self.text(difference, signed=True)
        return f"{'−' if difference < 0 else '+'}{self.size(difference)}"

    def in_units(self, size: float) -> float:
        """Return the difference of `compared` values of a size: in points, a ratio, or the metric's unit."""
        return abs(math.log(size)) if self.by_ratio else size / 100 if self.in_percent else size

    @property
    def by_ratio(self) -> bool:
        """Whether values are compared by ratios: their differences are those of logarithms."""
        return self.scale == "log"

    @property
    def is_parameter(self) -> bool:
        """Whether it is a learnt parameter of activations: such values are neither good nor bad."""
        # A user's metric may be called activation/…
        return is_parameter(self.metric) and bool(self.condition)

    @property
    def is_neutral(self) -> bool:
        """Whether its values are neither good nor bad, so that a diverged run has none."""
        return self.is_parameter or not self.mode

    @property
    def tests(self) -> bool:
        """Whether verdicts are given on the column: it ranks activations and is measured on test samples."""
        return self.ranked and self.split == "test"

    @property
    def scored_on(self) -> str:
        """``val`` or ``test`` if the value may be a share of its samples, an error or accuracy; else ""."""
        *parts, quantity = self.metric.split("/")
        if (
            quantity not in ("error", "accuracy")
            or self.is_epoch
            or str(self.at).startswith("mean")
        ):
            return ""
        return next((part for part in parts if part in ("val", "test")), "")

    @property
    def split(self) -> str:
        """``train``, ``val`` or ``test``: the loop that logged the metric; "" if nothing says it."""
        return metrics.loop_of(self.metric) or self.loop

    def failed(self, value: float | None, samples: int | None = None) -> bool:
        """Return whether a run failed: its value is not finite, as of one that diverged, or at chance.

        At chance is what is not better than chance by two sampling errors of a share of
        ``samples``.
        """
        if value is None or not math.isfinite(value):
            return value is not None
        if self.chance is None or self.is_epoch:
            return False
        # Recorded values are float32.
        ours, chance = np.float32(value), np.float32(self.chance)
        apart = 2 * (sampling_error(self.chance, samples) or 0.0)
        return bool(ours - apart <= chance if self.mode == "max" else ours + apart >= chance)

    @property
    def goal(self) -> str:
        """``min`` or ``max`` of the values is good, "" if unknown: the earliest of epochs, of any metric."""
        return "min" if self.mode and self.is_epoch else self.mode

    @property
    def worst(self) -> float:
        """The value that a diverged run counts as."""
        return -math.inf if self.goal == "max" else math.inf

    def compared(self, values: Iterable[float]) -> list[float]:
        """Return values of which differences are taken: on the scale ``log`` their logarithms.

        Raises:
            ActlabError: for a value on that scale that is not positive.
        """
        listed = [*values]
        if not self.by_ratio:
            return listed
        if wrong := [value for value in listed if value <= 0]:
            raise ActlabError(
                f"{self.key} is {wrong[0]:g} in a run, but 'scale: log' compares positive values"
            )
        return [math.log(value) if math.isfinite(value) else value for value in listed]

    def divided(self, value: float, by: float) -> float:
        """Return ``value ÷ by``; below 1 is good, and infinite is the value of a run that failed."""
        if not math.isfinite(value):
            return math.inf
        if self.scale == "decibels":
            return 10 ** ((by - value) / 10)
        return by / value if self.goal == "max" else value / by

    def ranked_as(self, values: Iterable[float], samples: int | None = None) -> list[float]:
        """Return the values with `worst` for runs that failed: these tie behind all others."""
        return [self.worst if self.failed(value, samples) else value for value in values]


def ratio_text(difference: float) -> str:
    """Return the ratio that a difference of logarithms stands for, with 3 digits."""
    return digits(math.exp(difference))


def place(at: str | float) -> str:
    """Return where in a run a value is read, in words.

    >>> [place(at) for at in ("best_epoch", 5, "mean 5-50", "below 0.1", "best val/error")]
    ['epoch of best', 'epoch 5', 'mean of epochs 5-50', 'first epoch below 0.1', 'at best val error']
    """
    if best := _BEST_OF.fullmatch(str(at)):
        return f"at best {best['metric'].replace('/', ' ').replace('_', ' ')}"
    if aggregate := _AGGREGATE.fullmatch(str(at)):
        few = (
            f" of epochs {aggregate['first']}-{aggregate['last']}"
            if aggregate["first"]
            else " of all epochs"
        )
        return f"first epoch {at}" if aggregate["level"] else f"mean{few}"
    return _AT.get(str(at), f"epoch {at}")


def last_epoch(at: str | float) -> float | None:
    """Return the epoch to which a run must be trained for a value at ``at``; None if any length will do."""
    if isinstance(at, int | float):
        return float(at)
    aggregate = _AGGREGATE.fullmatch(at)
    return float(aggregate["last"]) if aggregate and aggregate["last"] else None


def read_where(at: str | float, study: Study) -> str | float:
    """Return where a value is read: at ``last`` for ``selected`` in a study that selects by last values."""
    return "last" if at == "selected" and study.select.at == "last" else at


def watched(column: Column, study: Study) -> Column | None:
    """Return the column whose best epoch says where a run is read; None unless ``at`` names a metric."""
    best = _BEST_OF.fullmatch(str(column.at))
    metric = study.select.metric if column.at == "selected" else ""
    if best:
        metric = best["metric"]
    return Column(metric, "best_epoch", mode=study.mode_of(metric)) if metric else None


def columns_of(study: Study) -> list[Column]:
    """Return the columns of a study's table, as its file gives them."""
    return [column(entry, study) for entry in study.table]


def learnt(conditions: Mapping[str, Iterable[str]], planned: list[Column]) -> list[Column]:
    """Return columns of the learnt parameters of activations that ``planned`` has not, of each layer."""
    known = {column.key for column in planned}
    columns = []
    for metric in filter(is_parameter, conditions):
        for layer in sorted(
            filter(None, conditions[metric]), key=lambda layer: (len(layer), layer)
        ):
            column = Column(metric, mode="", condition=layer, ranked=False)
            if column.key not in known:
                columns.append(column)
    return columns


def primary(study: Study, planned: list[Column]) -> Column | None:
    """Return the column that answers a study's question: the stated one, else the first that is ranked."""
    if not study.primary:
        return next((column for column in planned if column.ranked), None)
    where = {"metric": "", "at": "last", "condition": ""} | study.primary
    fits = [c for c in planned if all(getattr(c, key) == value for key, value in where.items())]
    if not fits or not fits[0].ranked:
        shown = [Column(**where).key, *(column.key for column in planned if column.ranked)]
        remedy = "'primary' gives metric, at and condition of a ranked column of the table."
        raise unknown("primary column", shown[0], shown[1:], remedy)
    return fits[0]


def undirected(study: Study, columns: list[Column]) -> list[str]:
    """Return the metrics whose direction is unknown, although a column ranks them or something is selected."""
    read = [*columns, *filter(None, (watched(shown, study) for shown in columns))]
    directed = [shown for shown in read if shown.ranked or shown.at in ("best", "best_epoch")]
    metrics = [shown.metric for shown in directed if not shown.mode]
    chooses = study.select.tune or study.keep.best or any(stage.search for stage in study.stages)
    if chooses and not study.select.mode:
        metrics.append(study.select.metric)
    return [*dict.fromkeys(metrics)]


def column(entry: Mapping[str, Any], study: Study) -> Column:
    """Return the column of an entry of the study file's ``table``; one without ``mode`` has `Study.mode_of`."""
    at, metric = entry.get("at", "last"), entry["metric"]
    mode = entry.get("mode") or study.mode_of(metric)
    margin, relative = _margin(entry.get("margin"), metric, is_ratio=entry.get("scale") == "log")
    optional = ("percent", "condition", "ranked", "chance", "samples", "scale")
    given = {key: entry[key] for key in optional if entry.get(key) is not None}
    stated = Column(metric, at, mode=mode, margin=margin, relative=relative, **given)
    if not stated.is_parameter:
        return stated
    if given.get("ranked"):
        why = "a learnt parameter is neither good nor bad"
        raise ActlabError(f"column {stated.key} cannot be ranked: {why}. Leave 'ranked' out")
    return replace(stated, ranked=False)


def _margin(given: Any, metric: str, is_ratio: bool) -> tuple[float | None, bool]:
    """Return a margin, of logarithms if ``is_ratio``, and whether it is a fraction of the median."""
    if given is None:
        return None, False
    percentage = _RELATIVE.fullmatch(str(given))
    number = float(percentage[1]) / 100 if percentage else given
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ActlabError(
            f"margin {given!r} of {metric}: give a number above 0, or a percentage such as '5 %'"
        )
    if is_ratio and percentage is None:
        raise ActlabError(
            f"margin {given!r} of {metric}: on the scale log give a percentage such as '5 %'"
        )
    return (math.log1p(number), False) if is_ratio else (float(number), percentage is not None)


def read_at(epochs: Array, values: Array, at: str | float, column: Column) -> float | None:
    """Return one number from the values of one run at ascending epochs; nan counts as the worst value.

    ``at`` is as in `Column`, except ``selected`` and ``best <metric>``. None without a value up
    to the epoch, or within the range of epochs, given by ``at``.
    """
    if aggregate := _AGGREGATE.fullmatch(str(at)):
        if aggregate["level"]:
            below = np.flatnonzero(values < float(aggregate["level"]))
            return float(epochs[below[0]]) if below.size else math.inf
        first, last = float(aggregate["first"] or 0), float(aggregate["last"] or math.inf)
        within = values[(epochs >= first - 1e-6) & (epochs <= last + 1e-6)]
        mean = float(within.mean()) if within.size else None
        return column.worst if mean is not None and math.isnan(mean) else mean
    if at not in SUMMED:
        before = np.flatnonzero(epochs <= float(at) + 1e-6)
        if not before.size:
            return None
        epochs, values, at = epochs[before], values[before], "last"
    return summary(epochs, values).read(str(at), column.mode)
