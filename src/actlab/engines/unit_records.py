"""Unit statistics of a run: one file per epoch during training, one table at its end.

::

    units/5.npz      after five epochs: widths of the layers, and a float32 array a statistic
    units.parquet    epoch, layer (from 1), unit (from 1 in its layer), and a column a statistic
"""

from __future__ import annotations

import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytorch_lightning as pl

from actlab.callbacks import UnitValues
from actlab.storage.files import DamagedError, regular, replacing
from actlab.studies.rows import Row
from actlab.studies.run_folder import UNITS, UNITS_SO_FAR, RunFolder

Array = npt.NDArray[Any]
_WIDTHS = "widths of layers"  # key in the .npz file


def seen(trainer: pl.Trainer) -> UnitValues | None:
    """Return the unit statistics that a callback measured in this epoch; else None."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        values = getattr(callback, "latest", None)
        if isinstance(values, UnitValues):
            return values
    return None


def append(
    folder: RunFolder, epoch: int, statistics: UnitValues | None, r: int = 0
) -> None:
    """Write the file of an epoch for run ``r`` of a stack, if unit statistics were measured."""
    if statistics is None:
        return

    arrays: dict[str, Array] = {_WIDTHS: np.asarray(statistics.widths)}
    for name, values in statistics.values.items():
        # The order of bytes is stated, because an archive may be read on another
        # machine.
        array = values[r].numpy()
        arrays[name] = array.astype("<f4")
    with replacing(_file(folder, epoch)) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def cut_back(folder: RunFolder, epoch: int) -> None:
    """Delete the files after ``epoch``, the epoch of the resumed checkpoint."""
    for file in (folder.path / UNITS_SO_FAR).glob("*.npz"):
        is_valid = file.stem.isdecimal() and int(file.stem) <= epoch
        if not is_valid:
            file.unlink()


def close(folder: RunFolder, epoch: int, step: int, remedy: str) -> list[Row]:
    """Write the table of all epochs up to ``epoch``; return rows that summarise it over epochs.

    Without files of unit statistics, nothing is written. A DamagedError names a damaged or missing
    file.
    """
    if not epoch or not (folder.path / UNITS_SO_FAR).exists():
        return []

    # Join the files of all epochs
    epochs = []
    for number in range(1, epoch + 1):
        file = _file(folder, number)
        epochs.append(_read(file, remedy))
    widths = epochs[0].pop(_WIDTHS).tolist()
    values = {}
    for name in epochs[0]:
        values[name] = np.stack([arrays[name] for arrays in epochs])
    _write(folder.path / UNITS, widths, values)

    # Summarise them over the epochs
    rows = []
    statistics = over_epochs(widths, values)
    for (name, condition), value in statistics.items():
        row = Row(epoch, step, "units", name, condition, value)
        rows.append(row)
    return rows


def _file(folder: RunFolder, epoch: int) -> Path:
    return folder.path / UNITS_SO_FAR / f"{epoch}.npz"


def _read(path: Path, remedy: str) -> dict[str, Array]:
    try:
        with np.load(regular(path)) as arrays:  # verifies the checksums in the file
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedError(f"{path} is damaged or missing. {remedy}") from error


def _write(path: Path, widths: list[int], values: dict[str, Array]) -> None:
    """Write the table of units from arrays ``(epochs, units)``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Number epochs, layers and units
    first_statistic = next(iter(values.values()))
    number_of_epochs = len(first_statistic)
    epochs = np.arange(1, number_of_epochs + 1, dtype=np.int32)
    layers = np.arange(1, len(widths) + 1, dtype=np.int16)
    units = [np.arange(1, width + 1, dtype=np.int32) for width in widths]

    # Put the units of all layers, epoch after epoch, in rows
    columns = {
        "epoch": np.repeat(epochs, sum(widths)),
        "layer": np.tile(np.repeat(layers, widths), number_of_epochs),
        "unit": np.tile(np.concatenate(units), number_of_epochs),
    }
    for name, array in values.items():
        columns[name] = array.reshape(-1)
    with replacing(path) as partial:
        table = pa.table(columns)
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)


def over_epochs(
    widths: list[int], values: dict[str, Array]
) -> dict[tuple[str, str], float]:
    """Return how unit statistics vary over epochs, by name and condition.

    Both readings of ELU's appendix C, here for the statistic ``median``:

    - ``variance_of_medians``: variance over epochs of each unit's median, averaged over the units
      of a layer.
    - ``variance_of_changes_of_medians``: the same for the changes of the median from epoch to
      epoch.
    - ``always_zero_medians``: share of units in a layer whose median is 0 in every epoch.

    Conditions are ``layer=1``. Quartiles of both variances over the units of a layer have the
    condition ``layer=1,quantile=0.25``.

    Args:
        widths: number of units of each layer.
        values: arrays ``(epochs, units)`` by statistic.
    """
    # Units of all layers are adjoining columns of an array
    results: dict[tuple[str, str], float] = {}
    edges = np.cumsum([0, *widths])
    for name, array in values.items():
        for layer, (start, end) in enumerate(pairwise(edges), 1):
            condition = f"layer={layer}"
            layer_values = array[:, start:end].astype(np.float64)

            # The share of units that are 0 in every epoch
            always_zero = (layer_values == 0).all(0)
            share = float(always_zero.mean())
            results[f"always_zero_{name}s", condition] = share

            # The variance of the values themselves, and of their changes
            changes = np.diff(layer_values, axis=0)
            series = {f"{name}s": layer_values, f"changes_of_{name}s": changes}
            for kind, over_time in series.items():
                if len(over_time) < 2:
                    continue
                metric = f"variance_of_{kind}"
                variances = over_time.var(0, ddof=1)
                mean = float(variances.mean())
                results[metric, condition] = mean
                for q in (0.25, 0.5, 0.75):
                    quantile = float(np.quantile(variances, q))
                    results[metric, f"{condition},quantile={q}"] = quantile
    return results
