"""The columns of a study's table: metric, condition, and where in a run the value is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from actlab.analysis.statistics import sampling_error
from actlab.analysis.wording import digits, with_minus
from actlab.config import metrics
from actlab.config.metrics import is_parameter, logged
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage.series import Key
from actlab.studies.plan import Study

_AT = {
    "last": "last",
    "best": "best",
    "best_epoch": "epoch of best",
    "selected": "at selection",
}
_BEST_OF = re.compile(r"best (?P<metric>\S+)")
AGGREGATE = re.compile(
    r"mean(?: (?P<first>\d+)-(?P<last>\d+))?|below (?P<level>\d+(?:\.\d+)?)"
)
SUMMED = ("last", "best", "best_epoch")  # values contained in the summary of a series
_RELATIVE = re.compile(r"(\d+(?:\.\d+)?) ?%")


@dataclass(frozen=True)
class Column:
    """A table column: a metric, and where in a run its value is read.

    A column also knows how its values are compared and printed: their direction, scale, unit and
    margin. It reads no runs; `actlab.analysis.results` does.

    ``at`` is one of these:

    - ``last``: the last value
    - ``best``: the best value reached
    - ``best_epoch``: the epoch of the best value
    - ``selected``: the value at the epoch with the best selection metric; the last value in a study
      that selects by last values
    - ``best val/error``: the value at the epoch with the best val/error
    - an epoch: the value at this epoch, or the last value before it
    - ``mean``: the mean of all values; ``mean 5-50``: of the values of epochs 5 to 50
    - ``below 0.1``: the first epoch with a value below 0.1; inf without such an epoch
    """

    metric: str  # ``split/metric``, or ``probe/split/metric``
    at: str | int | float = "last"
    percent: bool = False  # whether to print percent; values stay fractions
    # ``min`` or ``max`` is good; "" in a column that needs no direction, if it is
    # unknown
    mode: str = "min"
    # Such as ``noise=0.5``; empty for values measured without a condition.
    condition: str = ""
    # Whether it may rank activations across studies; a table's first such column does
    ranked: bool = True
    # Value of random guessing, such as an error of 0.9 with ten classes, if known
    chance: float | None = None
    # Number of samples that a share was measured on, if runs did not record it
    samples: int | None = None
    # Largest difference that counts as equivalent, fixed before the runs
    margin: float | None = None
    relative: bool = False  # whether the margin is a fraction of the reference's median
    # ``train``, ``val`` or ``test``, which logged the metric, in runs that recorded it
    loop: str = ""
    # ``log``: compared by ratios; ``decibels``: divided as mean squared errors.
    scale: str = ""

    @property
    def name(self) -> str:
        """The column in words, for the header of a table."""
        words = _in_words(self.metric)
        if self.in_percent:
            words += " %"
        details = place(self.at)
        if self.condition:
            details = f"{self.condition}, {details}"
        return f"{words} ({details})"

    @property
    def series_key(self) -> Key:
        """The key of the series that its values are read from."""
        return self.metric, self.condition

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
        """Return a finite value as printed.

        Percent have 2 decimals, epochs 1, and other values 3 digits. A difference is ``signed``: on
        the scale ``log`` it is printed as a ratio.
        """
        if signed and self.by_ratio:
            return f"×{ratio_text(value)}"
        sign = "+" if signed else ""
        if self.in_percent:
            return with_minus(f"{100 * value:{sign}.2f}")
        if self.is_epoch:
            return with_minus(f"{value:{sign}.1f}")
        return digits(value, sign)

    def size(self, difference: float) -> str:
        """Return the size of a difference with its unit: ``0.31 points``, ``a ratio of 1.05``."""
        if self.by_ratio:
            return f"a ratio of {ratio_text(abs(difference))}"
        text = self.text(abs(difference))
        if self.in_percent:
            return f"{text} points"
        if self.is_epoch:
            return f"{text} epochs"
        return text

    def signed(self, difference: float) -> str:
        """Return a difference with its sign and unit: ``−0.31 points``, ``×1.05``."""
        if self.by_ratio:
            return self.text(difference, signed=True)
        sign = "−" if difference < 0 else "+"
        return f"{sign}{self.size(difference)}"

    def in_units(self, size: float) -> float:
        """Return the difference of `compared` values that has a printed size.

        The size is in points, a ratio, or in the metric's unit.
        """
        if self.by_ratio:
            return abs(math.log(size))
        if self.in_percent:
            return size / 100
        return size

    @property
    def by_ratio(self) -> bool:
        """Whether values are compared by ratios: differences are taken of their logarithms."""
        return self.scale == "log"

    @property
    def is_parameter(self) -> bool:
        """Whether it is a learnt parameter of activations; its values are neither good nor bad."""
        # A user's metric may be called activation/…
        return is_parameter(self.metric) and bool(self.condition)

    @property
    def is_neutral(self) -> bool:
        """Whether its values are neither good nor bad, so that a diverged run has none."""
        return self.is_parameter or not self.mode

    @property
    def tests(self) -> bool:
        """Whether the column has verdicts: it ranks activations and is measured on test samples."""
        return self.ranked and self.split == "test"

    @property
    def scored_on(self) -> str:
        """``val`` or ``test`` if the value may be a share of its samples; else "".

        Such a value is an error or accuracy.
        """
        *parts, quantity = self.metric.split("/")
        if quantity not in ("error", "accuracy"):
            return ""
        if self.is_epoch or str(self.at).startswith("mean"):
            return ""
        for part in parts:
            if part in ("val", "test"):
                return part
        return ""

    @property
    def split(self) -> str:
        """The loop that logged the metric: ``train``, ``val`` or ``test``; "" if unknown."""
        return metrics.loop_of(self.metric) or self.loop

    def failed(self, value: float | None, samples: int | None = None) -> bool:
        """Return whether a run failed: its value is at chance, or not finite.

        A value is at chance unless it is better than chance by two sampling errors of a share of
        ``samples``.
        """
        if value is None:
            return False
        if not math.isfinite(value):
            return True
        if self.chance is None or self.is_epoch:
            return False

        # Recorded values are float32.
        recorded = np.float32(value)
        chance = np.float32(self.chance)
        tolerance = 2 * (sampling_error(self.chance, samples) or 0.0)
        if self.mode == "max":
            return bool(recorded - tolerance <= chance)
        return bool(recorded + tolerance >= chance)

    @property
    def goal(self) -> str:
        """Whether ``min`` or ``max`` is good, "" if unknown; an early epoch is always good."""
        if self.mode and self.is_epoch:
            return "min"
        return self.mode

    @property
    def worst(self) -> float:
        """The value that a diverged run counts as."""
        return -math.inf if self.goal == "max" else math.inf

    def compared(self, values: Iterable[float]) -> list[float]:
        """Return the numbers whose differences compare values: on the scale ``log`` logarithms.

        Raises:
            ActlabError: for a value on the scale ``log`` that is not positive.
        """
        numbers = list(values)
        if not self.by_ratio:
            return numbers

        logarithms = []
        for value in numbers:
            if value <= 0:
                raise ActlabError(
                    f"{self.key} is {value:g} in a run, but 'scale: log' compares positive values"
                )
            # The logarithm of inf is inf; nan stays nan.
            logarithms.append(math.log(value))
        return logarithms

    def divided(self, value: float, by: float) -> float:
        """Return ``value ÷ by``: below 1 is good, and a run that failed has inf."""
        if not math.isfinite(value):
            return math.inf
        if self.scale == "decibels":
            return 10 ** ((by - value) / 10)
        if self.goal == "max":
            return by / value
        return value / by

    def ranked_as(
        self, values: Iterable[float], samples: int | None = None
    ) -> list[float]:
        """Return the values with `worst` for runs that failed, which tie behind all other runs."""
        ranked = []
        for value in values:
            if self.failed(value, samples):
                value = self.worst
            ranked.append(value)
        return ranked


def ratio_text(difference: float) -> str:
    """Return the ratio of two values from the difference of their logarithms, with 3 digits."""
    return digits(math.exp(difference))


def place(at: str | float) -> str:
    """Return where in a run a value is read, in words.

    >>> place("best_epoch"), place(5), place("mean 5-50")
    ('epoch of best', 'epoch 5', 'mean of epochs 5-50')
    >>> place("below 0.1"), place("best val/error")
    ('first epoch below 0.1', 'at best val error')
    """
    best = _BEST_OF.fullmatch(str(at))
    if best:
        return f"at best {_in_words(best['metric'])}"
    aggregate = AGGREGATE.fullmatch(str(at))
    if not aggregate:
        return _AT.get(str(at), f"epoch {at}")

    # The value is taken over several epochs.
    if aggregate["level"]:
        return f"first epoch {at}"
    if aggregate["first"]:
        return f"mean of epochs {aggregate['first']}-{aggregate['last']}"
    return "mean of all epochs"


def _in_words(metric: str) -> str:
    return metric.replace("/", " ").replace("_", " ")


def last_epoch(at: str | float) -> float | None:
    """Return the epoch to which a run must be trained for a value at ``at``.

    None if a run of any length has a value.
    """
    if isinstance(at, int | float):
        return float(at)
    aggregate = AGGREGATE.fullmatch(at)
    if not aggregate or not aggregate["last"]:
        return None
    return float(aggregate["last"])


def read_where(at: str | float, study: Study) -> str | float:
    """Return where in a run a value is read.

    A study that selects by last values reads ``selected`` values at ``last``.
    """
    if at == "selected" and study.select.at == "last":
        return "last"
    return at


def watched(column: Column, study: Study) -> Column | None:
    """Return the column whose value is the epoch at which a run is read.

    None unless ``at`` names a metric, as ``best val/error`` and ``selected`` do.
    """
    best = _BEST_OF.fullmatch(str(column.at))
    if best:
        metric = best["metric"]
    elif column.at == "selected":
        metric = study.select.metric
    else:
        return None
    return Column(metric, "best_epoch", mode=study.mode_of(metric))


def columns_of(study: Study) -> list[Column]:
    """Return the columns that a study's file lists."""
    return [column(entry, study) for entry in study.table]


def learnt(
    conditions: Mapping[str, Iterable[str]], planned: list[Column]
) -> list[Column]:
    """Return a column for each layer of the learnt parameters that ``planned`` columns lack."""
    planned_keys = {column.key for column in planned}
    columns = []
    for metric in conditions:
        if not is_parameter(metric):
            continue
        # Shorter names first: layer=10 comes after layer=9.
        layers = filter(None, conditions[metric])
        for layer in sorted(layers, key=lambda layer: (len(layer), layer)):
            column = Column(metric, mode="", condition=layer, ranked=False)
            if column.key not in planned_keys:
                columns.append(column)
    return columns


def primary(study: Study, planned: list[Column]) -> Column | None:
    """Return the column that answers a study's question: the stated one, else the first ranked one.

    Raises:
        ActlabError: if the stated column is not a ranked column of the table.
    """
    # Only ranked columns can answer the question
    ranked = [column for column in planned if column.ranked]
    if not study.primary:
        return ranked[0] if ranked else None

    # Find the stated column in the table.
    stated = Column(**{"metric": "", "at": "last", "condition": ""} | study.primary)
    for column in planned:
        if (column.series_key, column.at) == (stated.series_key, stated.at):
            if not column.ranked:
                break
            return column

    # The stated column is missing or not ranked
    remedy = "Set 'primary' to the metric, at and condition of a ranked column."
    raise unknown(
        "primary column", stated.key, [column.key for column in ranked], remedy
    )


def undirected(study: Study, columns: list[Column]) -> list[str]:
    """Return the metrics whose direction is unknown but needed, to rank or to select."""
    metrics: dict[str, None] = {}

    # Ranks and best values need a direction, in columns and in the columns that they
    # watch.
    watched_columns = filter(None, [watched(column, study) for column in columns])
    for column in [*columns, *watched_columns]:
        directed = column.ranked or column.at in ("best", "best_epoch")
        if directed and not column.mode:
            metrics[column.metric] = None

    # A selection needs a direction.
    searches = any(stage.search for stage in study.stages)
    selects = study.select.tune or study.keep.best or searches
    if selects and not study.select.mode:
        metrics[study.select.metric] = None
    return list(metrics)


def column(entry: Mapping[str, Any], study: Study) -> Column:
    """Return the column of an entry of the study file's ``table``.

    Its mode is `Study.mode_of` unless the entry has one.

    Raises:
        ActlabError: if the margin is invalid, or if a learnt parameter is ranked.
    """
    # On the log scale a margin is a ratio
    metric = entry["metric"]
    margin, relative = _margin(
        entry.get("margin"), metric, is_ratio=entry.get("scale") == "log"
    )

    # Absent entries leave the defaults of `Column`
    optional = ("percent", "condition", "ranked", "chance", "samples", "scale")
    stated = {key: entry[key] for key in optional if entry.get(key) is not None}
    column = Column(
        metric,
        at=entry.get("at", "last"),
        mode=entry.get("mode") or study.mode_of(metric),
        margin=margin,
        relative=relative,
        **stated,
    )

    # Learnt parameters are not ranked.
    if not column.is_parameter:
        return column
    if stated.get("ranked"):
        reason = "a learnt parameter is neither good nor bad"
        raise ActlabError(
            f"column {column.key} cannot be ranked: {reason}. Leave 'ranked' out"
        )
    return replace(column, ranked=False)


def _margin(stated: Any, metric: str, is_ratio: bool) -> tuple[float | None, bool]:
    """Return a margin, and whether it is a fraction of the median; of logarithms for ratios."""
    if stated is None:
        return None, False

    # Read a number, or a percentage.
    number = stated
    percentage = _RELATIVE.fullmatch(str(stated))
    if percentage:
        number = float(percentage[1]) / 100
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not 0 < number < math.inf
    ):
        raise ActlabError(
            f"margin of {metric}: expected a number above 0, or a percentage such as '5 %', got "
            f"{stated!r}"
        )

    # A ratio is stated in percent.
    if is_ratio and percentage is None:
        raise ActlabError(
            f"margin of {metric}: expected a percentage such as '5 %' on the scale log, got "
            f"{stated!r}"
        )
    if is_ratio:
        return math.log1p(number), False
    return float(number), percentage is not None
