"""What a run records of every unit: a line an epoch while it trains, one table at its end.

::

    units.jsonl      [epoch, widths of the layers, {statistic: float32 numbers in base64}, checksum]
    units.parquet    epoch, layer (from 1), unit (from 1 in its layer), and a column for each statistic
"""

from __future__ import annotations

import base64
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytorch_lightning as pl

from actlab.callbacks import UnitValues
from actlab.engines import lines
from actlab.engines.folders import UNIT_LINES, UNITS, Row, RunFolder
from actlab.files import DamagedError, replacing

Array = npt.NDArray[Any]


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
        lines.append(folder.path / UNIT_LINES, folder.run.id, [[epoch, list(values.widths), coded]])


def cut_back(folder: RunFolder, epoch: int) -> None:
    """Keep the lines up to an epoch, the one that the resumed checkpoint is of.

    Raises:
        DamagedError: for lines that are not what was written, or are lacking.
    """
    path = folder.path / UNIT_LINES
    if path.exists():
        lines.rewrite(path, folder.run.id, [entry for entry in _entries(folder) if entry[0] <= epoch])


def close(folder: RunFolder, epoch: int, step: int) -> list[Row]:
    """Write the table of the epochs up to one, where there are lines.

    Args:
        folder: of the run.
        epoch: number of epochs trained well.
        step: number of updates.

    Returns:
        What the units show over the whole run, see `over_epochs`.

    Raises:
        DamagedError: for lines that are not what was written, or are lacking.
    """
    if not (folder.path / UNIT_LINES).exists():
        return []
    entries = [entry for entry in _entries(folder) if entry[0] <= epoch]
    if [entry[0] for entry in entries] != list(range(1, epoch + 1)):
        raise DamagedError(f"{folder.path / UNIT_LINES} lacks epochs of {epoch}: {folder.remedy}")
    if not entries:
        return []
    widths = entries[0][1]
    values = {
        name: np.stack([np.frombuffer(base64.b64decode(coded[name]), "<f4") for _, _, coded in entries])
        for name in entries[0][2]
    }
    _write(folder.path / UNITS, widths, values)
    found = over_epochs(widths, values)
    return [Row(epoch, step, "units", name, condition, value) for (name, condition), value in found.items()]


def _write(path: Path, widths: list[int], values: dict[str, Array]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    epochs, number = len(next(iter(values.values()))), sum(widths)
    layers = np.repeat(np.arange(1, len(widths) + 1, dtype=np.int16), widths)
    units = np.concatenate([np.arange(1, width + 1, dtype=np.int32) for width in widths])
    columns = {
        "epoch": np.repeat(np.arange(1, epochs + 1, dtype=np.int32), number),
        "layer": np.tile(layers, epochs),
        "unit": np.tile(units, epochs),
        **{name: array.reshape(-1) for name, array in values.items()},
    }
    with replacing(path) as partial:
        pq.write_table(pa.table(columns), partial, compression="zstd")


def over_epochs(widths: list[int], values: dict[str, Array]) -> dict[tuple[str, str], float]:
    """How what units show varies over the epochs, by name and condition (ELU appendix C, both readings).

    The variance of a unit over epochs, and that of its changes from epoch to epoch: ``variance_of_medians`` and
    ``variance_of_changes_of_medians`` are means over the units of a layer, the share of units whose value is 0
    throughout is ``always_zero_medians``; the same for means. Quartiles over units have ``quantile=0.25``.

    Args:
        widths: units of each layer.
        values: by statistic, ``(epochs, units)``.
    """
    found: dict[tuple[str, str], float] = {}
    edges = np.cumsum([0, *widths])
    for name, array in values.items():
        for layer, (start, end) in enumerate(pairwise(edges), 1):
            of_layer, where = array[:, start:end].astype(np.float64), f"layer={layer}"
            found[f"always_zero_{name}s", where] = float((of_layer == 0).all(0).mean())
            for kind, series in (("", of_layer), ("changes_of_", np.diff(of_layer, axis=0))):
                if len(series) > 1:
                    variances = series.var(0, ddof=1)
                    found[f"variance_of_{kind}{name}s", where] = float(variances.mean())
                    for q in (0.25, 0.5, 0.75):
                        value = float(np.quantile(variances, q))
                        found[f"variance_of_{kind}{name}s", f"{where},quantile={q}"] = value
    return found


def _entries(folder: RunFolder) -> list[tuple[int, list[int], dict[str, str]]]:
    """Epoch, widths and coded numbers of each line."""
    return lines.read(
        folder.path / UNIT_LINES, folder.run.id, tuple[int, list[int], dict[str, str]], folder.remedy
    )
