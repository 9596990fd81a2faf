"""Time series of a run's metrics over epochs, read from parquet files, and their summaries.

Most table columns need only the summaries, which ``result.json`` of a finished run stores. Figures, and columns
that name an epoch, need the series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from actlab.errors import reason
from actlab.storage.files import DamagedError, regular

Array = npt.NDArray[np.float64]
Key = tuple[str, str]
"""Name and condition. The name is ``split/metric``, or only the metric if there is no split."""

_TEXTS = ("split", "metric", "condition")
_READ = ("epoch", "value", *_TEXTS)
_NUMBER = (pa.types.is_floating, pa.types.is_integer)
_TEXT = (
    *(pa.types.is_string, pa.types.is_large_string),
    pa.types.is_null,  # a column without any value
    lambda type: pa.types.is_dictionary(type) and pa.types.is_string(type.value_type),  # pandas' categories
)
# Column → predicates of the allowed types.
_ROW = dict.fromkeys(("epoch", "step", "value"), _NUMBER) | dict.fromkeys(_TEXTS, _TEXT)
_ROW_WORDS = ("numbers", "text")
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
        """Return the last value, the best value or its epoch; a nan counts as the worst value.

        Args:
            at: ``last``, ``best`` or ``best_epoch``. If all values are nan, the best epoch is inf.
            mode: ``min`` or ``max``: whether low or high values are better.

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
    found = values[-1], low[least], epochs[least], high[most], epochs[most]
    return Summary(*map(float, found))


def summaries(recorded: Mapping[Key, Series]) -> dict[Key, Summary]:
    """Return the summary of each series of a run."""
    return {key: summary(*series) for key, series in recorded.items()}


def as_entry(found: Mapping[Key, Summary]) -> dict[str, dict[str, dict[str, float]]]:
    """Return summaries by name and condition, in the format of ``result.json``."""
    entry: dict[str, dict[str, dict[str, float]]] = {}
    for (name, condition), summed in found.items():
        entry.setdefault(name, {})[condition] = summed._asdict()
    return entry


def from_entry(entry: Mapping[str, Mapping[str, Any]]) -> dict[Key, Summary]:
    """Return the summaries in an entry of `as_entry`."""
    return {
        (name, condition): Summary(*(summed[field] for field in Summary._fields))
        for name, by in entry.items()
        for condition, summed in by.items()
    }


def read(file: Path, needed: Sequence[str], prefix: str = "") -> dict[Key, Series]:
    """Read the series in a parquet file of rows; the last of several rows at one epoch counts.

    Args:
        file: path of the parquet file.
        needed: required columns; ``condition`` may be missing, because old files lack it.
        prefix: prefix of the names of the series.

    Returns:
        The series by name and condition, in the order in which the run first recorded them.

    Raises:
        DamagedError: if the file cannot be read, or a column is missing or has a wrong type.
    """
    table = table_of(file, needed)
    keys, numbers = _keys(table, prefix)
    return _series(keys, numbers, _numbers(table, "epoch"), _numbers(table, "value"))


def table_of(file: Path, needed: Sequence[str], columns: Sequence[str] = _READ) -> Any:
    """Read columns of a parquet file of rows and check their types; all such files are read by this function.

    Args:
        file: file that training or a probe recorded.
        needed: required columns, as for `read`.
        columns: columns to return if the file has them.

    Returns:
        A pyarrow table.

    Raises:
        DamagedError: if the file cannot be read, or a column is missing or has a wrong type.
    """
    try:
        with pq.ParquetFile(regular(file)) as opened:
            schema = opened.schema_arrow
            _check(schema, needed)
            table = opened.read([name for name in columns if name in schema.names], use_threads=False)
            table.validate(full=True)
            return table
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DamagedError(f"{file} is damaged ({reason(error)}): {_REMEDY}") from error


def _check(schema: Any, needed: Sequence[str]) -> None:
    """Raise a ValueError if a column is missing, occurs twice or has a wrong type."""
    if missing := [name for name in needed if name not in (*schema.names, "condition")]:
        raise ValueError(f"missing columns {', '.join(missing)}; required are {', '.join(needed)}")
    for name in (name for name in schema.names if name in _ROW):
        field = schema.field(name) if schema.names.count(name) == 1 else None
        if field is None or not any(is_kind(field.type) for is_kind in _ROW[name]):
            found = f"has type {field.type}" if field else "occurs twice"
            raise ValueError(f"the column {name} {found}; it must hold {_ROW_WORDS[name in _TEXTS]}")


def _numbers(table: Any, column: str) -> Array:
    return np.asarray(table[column].cast(pa.float64(), safe=False).to_numpy(), float)


def _keys(table: Any, prefix: str) -> tuple[list[Key], npt.NDArray[np.intp]]:
    """Return the keys in a table, and for each row the index of its key; shape ``[rows]``."""
    codes, words = np.zeros(len(table), np.intp), []
    for column in _TEXTS:
        texts, own = _encoded(table[column]) if column in table.column_names else ([""], 0)
        codes = codes * len(texts) + own
        words.append(texts)
    used, rows = np.unique(codes, return_inverse=True)
    splits, metrics, conditions = np.unravel_index(used, [len(texts) for texts in words])
    named = [
        (prefix + f"{words[0][s]}/{words[1][m]}".removeprefix("/"), words[2][c])
        for s, m, c in zip(splits, metrics, conditions, strict=True)
    ]
    places = {key: place for place, key in enumerate(dict.fromkeys(named))}
    return list(places), np.array([places[key] for key in named], np.intp)[rows]


def _encoded(column: Any) -> tuple[list[str], npt.NDArray[np.intp]]:
    """Return the distinct texts of a column, at least one, and for each row the index of its text."""
    texts = column.cast(pa.string())
    encoded = (texts.fill_null("") if texts.null_count else texts).combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist() or [""], encoded.indices.to_numpy().astype(np.intp)


def _series(
    keys: Sequence[Key], numbers: npt.NDArray[np.intp], epochs: Array, values: Array
) -> dict[Key, Series]:
    """Group rows into series; ``numbers`` holds the index of each row's key."""
    epochs = epochs.round(_DIGITS)
    order = np.lexsort((epochs, numbers))  # stable: rows at one epoch stay in the order of the file
    numbers, epochs = numbers[order], epochs[order]
    other = np.diff(numbers, append=-1) != 0
    kept = np.flatnonzero(other | (np.diff(epochs, append=math.inf) != 0))
    order, numbers, epochs = order[kept], numbers[kept], epochs[kept]
    values = values[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ends = [*starts[1:], len(numbers)]
    first = np.lexsort((order[starts], epochs[starts]))
    return {keys[numbers[s := starts[i]]]: Series(epochs[s : ends[i]], values[s : ends[i]]) for i in first}
