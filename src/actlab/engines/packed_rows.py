"""Rows as a checkpoint stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from actlab.config.metrics import logged
from actlab.studies.folders import Row, split_name


def packed(rows: Sequence[Row]) -> dict[str, Any]:
    """Return rows as tensors, and their names, in four parts with a loop and in two without."""
    names: list[tuple[str, ...]] = []
    for row in rows:
        if row.loop:
            names.append((row.split, row.metric, row.condition, row.loop))
        else:
            names.append((row.split, logged(row.metric, row.condition)))

    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return {
        "names": list(numbers),
        "name": torch.tensor([numbers[name] for name in names], dtype=torch.int64),
        "epoch": torch.tensor([row.epoch for row in rows], dtype=torch.float64),
        "step": torch.tensor([row.step for row in rows], dtype=torch.int64),
        "value": torch.tensor([row.value for row in rows], dtype=torch.float64),
    }


def unpacked(record: Mapping[str, Any]) -> list[Row]:
    """Return the rows from the output of `packed`."""
    names: list[tuple[str, ...]] = []
    for parts in record["names"]:
        if len(parts) == 4:
            names.append(parts)
        else:
            name = "/".join(filter(None, parts))
            names.append((*split_name(name), ""))

    rows = []
    columns = [record[key].tolist() for key in ("name", "epoch", "step", "value")]
    for number, epoch, step, value in zip(*columns, strict=True):
        split, metric, condition, loop = names[number]
        rows.append(Row(epoch, step, split, metric, condition, value, loop))
    return rows
