"""Time series of a run's metrics over epochs, in parquet files, and their summaries, in ``result.json``."""

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
_NUMBER = (pa.types.is_floating, pa.types.is_integer)
_TEXT = (
    *(pa.types.is_string, pa.types.is_large_string),
    pa.types.is_null,  # a column without any value
    # pandas' categories
    lambda type: pa.types.is_dictionary(type) and pa.types.is_string(type.value_type),
)
# Column → predicates of the allowed types.
_ROW = dict.fromkeys(("epoch", "step", "value"), _NUMBER) | dict.fromkeys((*_TEXTS, _LOOP), _TEXT)
_REMEDY = "delete it, and run the study again"
_DIGITS = 6  # fractions of an epoch come from divisions; rounding makes equal epochs identical


class Series(NamedTuple):
    """Unique epochs in ascending order and the value at each epoch; arrays of shape ``[E]`` with E ≥ 1."""

    epochs: Array
    values: Array


class Summary(NamedTuple):
    """Last value of a series, which may be nan, and its extremes with the first epochs that reach them.

    A nan counts as inf for the lowest value and as -inf for the highest value.
    """

    last: float
    lowest: float
    lowest_epoch: float
    highest: float
    highest_epoch: float

    def read(self, at: str, mode: str) -> float:
        """Return the ``last`` value, the ``best`` value or its ``best_epoch``; a nan counts as the worst value.

        If all values are nan, the best epoch is inf. The mode is ``min`` or ``max``.

        >>> Summary(math.nan, 0.2, 3.0, 0.9, 1.0).read("last", "min")
        inf
        """
        high = mode == "max"
        if at == "last":
            return (-math.inf if high else math.inf) if math.isnan(self.last) else self.last
        if at == "best":
            return self.highest if high else self.lowest
        if (self.highest if high else self.lowest) == (-math.inf if high else math.inf):
            return math.inf
        return self.highest_epoch if high else self.lowest_epoch


def summary(epochs: Array, values: Array) -> Summary:
    """Return the summary of a series.

    >>> summary(np.array([1.0, 2.0, 3.0]), np.array([0.5, math.nan, 0.4]))
    Summary(last=0.4, lowest=0.4, lowest_epoch=3.0, highest=0.5, highest_epoch=1.0)
    """
    missing = np.isnan(values)
    low, high = np.where(missing, math.inf, values), np.where(missing, -math.inf, values)
    least, most = int(low.argmin()), int(high.argmax())
    numbers = values[-1], low[least], epochs[least], high[most], epochs[most]
    return Summary(*map(float, numbers))


def summaries(recorded: Mapping[Key, Series]) -> dict[Key, Summary]:
    """Return the summary of each series of a run."""
    return {key: summary(*series) for key, series in recorded.items()}


def as_entry(by_key: Mapping[Key, Summary]) -> dict[str, dict[str, dict[str, float]]]:
    """Return summaries by name and condition, in the format of ``result.json``."""
    entry: dict[str, dict[str, dict[str, float]]] = {}
    for (name, condition), summed in by_key.items():
        entry.setdefault(name, {})[condition] = summed._asdict()
    return entry


def from_entry(entry: Mapping[str, Mapping[str, Any]]) -> dict[Key, Summary]:
    """Return the summaries in an entry of `as_entry`."""
    return {
        (name, condition): Summary(*(summed[field] for field in Summary._fields))
        for name, by in entry.items()
        for condition, summed in by.items()
    }


def names(logs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the name of what each loop logged: ``loop/name`` where several loops logged one name.

    >>> names([("loss", "train"), ("loss", "val"), ("val_acc", "val")])
    {('loss', 'train'): 'train/loss', ('loss', 'val'): 'val/loss', ('val_acc', 'val'): 'val_acc'}
    """
    distinct = dict.fromkeys(logs)
    shared = Counter(name for name, _ in distinct)
    full_names = {}
    for name, loop in distinct:
        full = f"{loop}/{name}" if shared[name] > 1 and loop else name
        # As a module that logs both `loss` and `val/loss` has it
        while full != name and full in shared:
            full = f"{loop}/{full}"
        full_names[name, loop] = full
    return full_names


def read(file: Path, prefix: str = "") -> dict[Key, Series]:
    """Return the series in a parquet file of rows, in the order in which the run first recorded them.

    The last of several rows at one epoch counts. The names of the series begin with ``prefix``.
    """
    try:
        table = _table(regular(file).read_bytes())
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DamagedError(f"{file} is damaged ({reason(error)}): {_REMEDY}") from error
    epochs, values = (
        _numbers(table, "epoch").round(_DIGITS).tolist(),
        _numbers(table, "value").tolist(),
    )
    splits, metrics, conditions = (table[column].to_pylist() for column in _TEXTS)
    loops = table[_LOOP].to_pylist() if _LOOP in table.column_names else [""] * len(table)
    plain = (f"{s}/{m}" if s else m or "" for s, m in zip(splits, metrics, strict=True))
    logs = [(name, loop or "") for name, loop in zip(plain, loops, strict=True)]
    named = names(logs)
    values_of: dict[Key, dict[float, float]] = {}
    for epoch, value, log, condition in zip(epochs, values, logs, conditions, strict=True):
        values_of.setdefault((prefix + named[log], condition or ""), {})[epoch] = value
    series: dict[Key, Series] = {}
    for key, by_epoch in sorted(values_of.items(), key=lambda item: min(item[1])):
        at, numbers = zip(*sorted(by_epoch.items(), key=lambda item: item[0]), strict=True)
        series[key] = Series(np.array(at), np.array(numbers))
    return series


def write(frame: pd.DataFrame, file: Path) -> None:
    """Write a data frame to a parquet file whose pages have checksums, which `read` verifies."""
    frame.to_parquet(file, index=False, write_page_checksum=True)


def _table(content: bytes) -> Any:
    """Return the rows of a parquet file; names, types and number are checked, which no checksum covers."""
    opened = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    columns = sorted(opened.schema_arrow.names)
    if columns not in (sorted(_ROW), sorted(_ROW.keys() - {_LOOP})):
        names = ", ".join(opened.schema_arrow.names)[:100]
        raise ValueError(f"the columns are {names or 'missing'}; they must be {', '.join(_ROW)}")
    for field in opened.schema_arrow:
        if not any(is_kind(field.type) for is_kind in _ROW[field.name]):
            words = "text" if field.name in (*_TEXTS, _LOOP) else "numbers"
            raise ValueError(f"the column {field.name} has type {field.type}; it must hold {words}")
    table = opened.read(use_threads=False)
    table.validate(full=True)
    if len(table) != opened.metadata.num_rows:
        raise ValueError(f"{len(table)} rows, not {opened.metadata.num_rows}")
    return table


def _numbers(table: Any, column: str) -> Array:
    return np.asarray(table[column].cast(pa.float64(), safe=False).to_numpy(), float)
