"""Rows as a checkpoint stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from actlab.config.metrics import logged
from actlab.studies.rows import Row, split_name

_TYPES = {"epoch": torch.float64, "step": torch.int64, "value": torch.float64}


def packed(rows: Sequence[Row]) -> dict[str, Any]:
    """Return rows as tensors, with their names numbered in the order of their first rows."""
    # Number the names
    numbers: dict[tuple[str, ...], int] = {}
    column = []
    for row in rows:
        number = numbers.setdefault(_name(row), len(numbers))
        column.append(number)

    # Store each field as a tensor
    record: dict[str, Any] = {"names": list(numbers)}
    record["name"] = torch.tensor(column, dtype=torch.int64)
    for field, dtype in _TYPES.items():
        values = [getattr(row, field) for row in rows]
        record[field] = torch.tensor(values, dtype=dtype)
    return record


def unpacked(record: Mapping[str, Any]) -> list[Row]:
    """Return the rows from the output of `packed`."""
    names = [_parts(name) for name in record["names"]]
    columns = [record[field].tolist() for field in ("name", *_TYPES)]

    rows = []
    for number, epoch, step, value in zip(*columns, strict=True):
        split, metric, condition, loop = names[number]
        row = Row(epoch, step, split, metric, condition, value, loop)
        rows.append(row)
    return rows


def _name(row: Row) -> tuple[str, ...]:
    """Return the name of a row: in four parts with a loop, else in two."""
    if row.loop:
        return row.split, row.metric, row.condition, row.loop
    return row.split, logged(row.metric, row.condition)


def _parts(name: Sequence[str]) -> Sequence[str]:
    """Return split, metric, condition and loop of the output of `_name`."""
    if len(name) == 4:
        return name
    split, metric = name
    if split:
        metric = f"{split}/{metric}"
    return *split_name(metric), ""
