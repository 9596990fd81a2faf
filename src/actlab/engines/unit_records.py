"""What a run records of every unit: a line an epoch while it trains, one table at its end.

::

    units.jsonl      [epoch, widths of the layers, {statistic: float32 numbers in base64}, checksum]
    units.parquet    epoch, layer (from 1), unit (from 1 in its layer), and a column for each statistic
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytorch_lightning as pl

from actlab.callbacks import UnitValues
from actlab.engines.folders import UNIT_LINES, UNITS, RunFolder
from actlab.files import DamagedError, is_regular, replacing, write_atomically


def seen(trainer: pl.Trainer) -> UnitValues | None:
    """What a callback has measured of every unit in this epoch; None where none does."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(found := getattr(callback, "latest", None), UnitValues):
            return found
    return None


def append(folder: RunFolder, epoch: int, values: UnitValues | None, r: int = 0) -> None:
    """Add a line at the end of an epoch.

    Args:
        folder: of the run.
        epoch: number of epochs trained.
        values: of the runs that are trained together; None adds nothing.
        r: which of them it is.
    """
    if values is not None:
        numbers = {name: v[r].numpy().astype("<f4").tobytes() for name, v in values.values.items()}
        coded = {name: base64.b64encode(content).decode() for name, content in numbers.items()}
        with (folder.path / UNIT_LINES).open("a", encoding="utf-8") as file:
            file.write(_line(folder, [epoch, list(values.widths), coded]))


def cut_back(folder: RunFolder, epoch: int) -> None:
    """Keep the lines up to an epoch, the one that the resumed checkpoint is of.

    Raises:
        DamagedError: for lines that are not what was written, or are lacking.
    """
    path = folder.path / UNIT_LINES
    if path.exists():
        lines = [
            json.dumps([*entry, _checksum(folder, entry)]) for entry in _entries(folder) if entry[0] <= epoch
        ]
        write_atomically(path, "".join(line + "\n" for line in lines))


def close(folder: RunFolder, epoch: int) -> None:
    """Write the table of the epochs up to one, where there are lines.

    Raises:
        DamagedError: for lines that are not what was written, or are lacking.
    """
    if not (folder.path / UNIT_LINES).exists():
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    entries = [entry for entry in _entries(folder) if entry[0] <= epoch]
    if [entry[0] for entry in entries] != list(range(1, epoch + 1)):
        raise DamagedError(f"{folder.path / UNIT_LINES} lacks epochs of {epoch}: {folder.remedy}")
    columns: dict[str, Any] = {name: [] for name in ("epoch", "layer", "unit")}
    for number, widths, coded in entries:
        columns["epoch"].append(np.full(sum(widths), number, np.int32))
        columns["layer"].append(np.repeat(np.arange(1, len(widths) + 1, dtype=np.int16), widths))
        columns["unit"].append(np.concatenate([np.arange(1, n + 1, dtype=np.int32) for n in widths]))
        for name, text in coded.items():
            columns.setdefault(name, []).append(np.frombuffer(base64.b64decode(text), "<f4"))
    if entries:
        table = pa.table({name: np.concatenate(parts) for name, parts in columns.items()})
        with replacing(folder.path / UNITS) as partial:
            pq.write_table(table, partial, compression="zstd")


def _entries(folder: RunFolder) -> list[list[Any]]:
    """Epoch, widths and coded numbers of each line; a last one that a kill cut short is left out.

    Raises:
        DamagedError: for a line that is not what was written.
    """
    path = folder.path / UNIT_LINES
    if not is_regular(path):
        raise DamagedError(f"{path} is no regular file: {folder.remedy}")
    *lines, _ = path.read_bytes().split(b"\n")
    found: list[list[Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            *entry, checksum = json.loads(line)
            whole = len(entry) == 3 and checksum == _checksum(folder, entry)
        except (ValueError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise DamagedError(f"{path} is damaged in line {number}: {folder.remedy}")
        found.append(entry)
    return found


def _line(folder: RunFolder, entry: list[Any]) -> str:
    return json.dumps([*entry, _checksum(folder, entry)]) + "\n"


def _checksum(folder: RunFolder, entry: list[Any]) -> str:
    return f"{zlib.crc32(json.dumps([folder.run.id, *entry]).encode()):08x}"
