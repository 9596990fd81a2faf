"""Time series of a run's metrics over epochs, and their summaries.

The series are stored in parquet files, the summaries in ``result.json``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from actlab.errors.messages import reason
from actlab.storage.files import DamagedError, regular

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[np.float64]
# Name and condition; the name is ``split/metric``, or only the metric without a split
Key = tuple[str, str]

_TEXTS = ("split", "metric", "condition")
_LOOP = "loop"  # a column that files of actlab's tasks lack


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):  # pandas' categories
        return bool(pa.types.is_string(kind.value_type))
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_string or pa.types.is_null(kind))  # null: a column without any value


# Columns in the order in which messages name them, with the check of their types
_ROW = {
    **dict.fromkeys(("epoch", "step", "value"), _is_number),
    **dict.fromkeys((*_TEXTS, _LOOP), _is_text),
}
_REMEDY = "Delete it, and run the study again."
_DIGITS = 6  # fractions of an epoch come from divisions; rounding makes equal epochs identical


class Series(NamedTuple):
    """Unique epochs in ascending order and the value at each epoch.

    The arrays have shape ``[E]`` with E ≥ 1.
    """

    epochs: Array
    values: Array


class Summary(NamedTuple):
    """Last value of a series, which may be nan, and its extremes with their first epochs.

    A nan counts as inf for the lowest value and as -inf for the highest value.
    """

    last: float
    lowest: float
    lowest_epoch: float
    highest: float
    highest_epoch: float

    def read(self, at: str, mode: str) -> float:
        """Return the ``last`` value, the ``best`` value or its ``best_epoch``.

        A nan counts as the worst value. If all values are nan, the best epoch is inf. The mode is
        ``min`` or ``max``.

        >>> Summary(math.nan, 0.2, 3.0, 0.9, 1.0).read("last", "min")
        inf
        """
        if mode == "max":
            best, best_epoch, worst = self.highest, self.highest_epoch, -math.inf
        else:
            best, best_epoch, worst = self.lowest, self.lowest_epoch, math.inf

        if at == "last":
            return worst if math.isnan(self.last) else self.last
        if at == "best":
            return best
        return math.inf if best == worst else best_epoch


def summary(epochs: Array, values: Array) -> Summary:
    """Return the summary of a series.

    >>> summary(np.array([1.0, 2.0, 3.0]), np.array([0.5, math.nan, 0.4]))
    Summary(last=0.4, lowest=0.4, lowest_epoch=3.0, highest=0.5, highest_epoch=1.0)
    """
    # A nan counts as the worst value
    missing = np.isnan(values)
    low_values = np.where(missing, math.inf, values)
    high_values = np.where(missing, -math.inf, values)

    # The first of equal values
    lowest, highest = int(low_values.argmin()), int(high_values.argmax())
    return Summary(
        last=float(values[-1]),
        lowest=float(low_values[lowest]),
        lowest_epoch=float(epochs[lowest]),
        highest=float(high_values[highest]),
        highest_epoch=float(epochs[highest]),
    )


def summaries(recorded: Mapping[Key, Series]) -> dict[Key, Summary]:
    """Return the summary of each series of a run."""
    return {key: summary(*series) for key, series in recorded.items()}


def as_entry(
    summary_by_key: Mapping[Key, Summary],
) -> dict[str, dict[str, dict[str, float]]]:
    """Return summaries by name and condition, in the format of ``result.json``."""
    entry: dict[str, dict[str, dict[str, float]]] = {}
    for (name, condition), summed in summary_by_key.items():
        entry.setdefault(name, {})[condition] = summed._asdict()
    return entry


def from_entry(entry: Mapping[str, Mapping[str, Any]]) -> dict[Key, Summary]:
    """Return the summaries in an entry of `as_entry`."""
    summary_by_key = {}
    for name, summed_by_condition in entry.items():
        for condition, summed in summed_by_condition.items():
            values = {field: summed[field] for field in Summary._fields}
            summary_by_key[name, condition] = Summary(**values)
    return summary_by_key


def names(logs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the name of what each loop logged: ``loop/name`` if several loops logged the name.

    >>> names([("loss", "train"), ("loss", "val"), ("val_acc", "val")])
    {('loss', 'train'): 'train/loss', ('loss', 'val'): 'val/loss', ('val_acc', 'val'): 'val_acc'}
    """
    distinct = dict.fromkeys(logs)
    shared = Counter(name for name, _ in distinct)
    full_names = {}
    for name, loop in distinct:
        full = name
        if shared[name] > 1 and loop:
            full = f"{loop}/{name}"

        # As a module that logs both `loss` and `val/loss` has it
        while full != name and full in shared:
            full = f"{loop}/{full}"
        full_names[name, loop] = full
    return full_names


def read(file: Path, prefix: str = "") -> dict[Key, Series]:
    """Return the series in a parquet file of rows, in the order of their first epochs.

    The last of several rows at one epoch counts. The names of the series begin with ``prefix``.
    """
    # A damaged file may raise any of these errors
    try:
        table = _table(regular(file).read_bytes())
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DamagedError(f"{file} is damaged ({reason(error)}). {_REMEDY}") from error

    # The names, with the loops that logged them
    logs = []
    loops = [""] * len(table)
    if _LOOP in table.column_names:
        loops = table[_LOOP].to_pylist()
    splits, metrics = table["split"].to_pylist(), table["metric"].to_pylist()
    for split, metric, loop in zip(splits, metrics, loops, strict=True):
        name = metric or ""
        if split:
            name = f"{split}/{metric}"
        logs.append((name, loop or ""))
    name_by_log = names(logs)

    # Values by epoch
    epochs = _numbers(table, "epoch").round(_DIGITS).tolist()
    values = _numbers(table, "value").tolist()
    conditions = table["condition"].to_pylist()
    values_by_key: dict[Key, dict[float, float]] = {}
    for epoch, value, log, condition in zip(
        epochs, values, logs, conditions, strict=True
    ):
        key = (prefix + name_by_log[log], condition or "")
        values_by_key.setdefault(key, {})[epoch] = value

    series: dict[Key, Series] = {}
    for key in sorted(values_by_key, key=lambda key: min(values_by_key[key])):
        value_by_epoch = values_by_key[key]
        # Rows of several loops may interleave
        ordered = sorted(value_by_epoch)
        ordered_values = [value_by_epoch[epoch] for epoch in ordered]
        series[key] = Series(np.array(ordered), np.array(ordered_values))
    return series


def write(frame: pd.DataFrame, file: Path) -> None:
    """Write a data frame to a parquet file whose pages have checksums, which `read` verifies."""
    frame.to_parquet(file, index=False, write_page_checksum=True)


def _table(content: bytes) -> Any:
    """Return the checked rows of a parquet file.

    Names, types and number are checked, because no checksum covers them.
    """
    # Columns and their types
    opened = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    # Their order does not matter
    columns = sorted(opened.schema_arrow.names)
    if columns not in (sorted(_ROW), sorted(_ROW.keys() - {_LOOP})):
        listed = ", ".join(opened.schema_arrow.names)[:100]
        raise ValueError(
            f"expected the columns {', '.join(_ROW)}, got {listed or 'none'}"
        )

    # Any type of numbers, or of text, is accepted
    for field in opened.schema_arrow:
        is_allowed = _ROW[field.name]
        if not is_allowed(field.type):
            content_kind = "text" if is_allowed is _is_text else "numbers"
            raise ValueError(
                f"column {field.name}: expected {content_kind}, got {field.type}"
            )

    # Rows
    table = opened.read(use_threads=False)
    table.validate(full=True)
    if len(table) != opened.metadata.num_rows:
        raise ValueError(f"expected {opened.metadata.num_rows} rows, got {len(table)}")
    return table


def _numbers(table: Any, column: str) -> Array:
    return np.asarray(table[column].cast(pa.float64(), safe=False).to_numpy(), float)
