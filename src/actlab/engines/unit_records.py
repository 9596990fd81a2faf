"""Unit statistics of a run: one file per epoch during training, one table at its end.

::

    units/5.npz      after five epochs: widths of the layers, and an array of float32 for each
    statistic units.parquet    epoch, layer (from 1), unit (from 1 in its layer), and a column for
    each statistic
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
    """Return the unit statistics that a callback measured in this epoch; None if no callback does."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(values := getattr(callback, "latest", None), UnitValues):
            return values
    return None


def append(folder: RunFolder, epoch: int, values: UnitValues | None, r: int = 0) -> None:
    """Write the file of an epoch for run ``r`` of a stack, if unit statistics were measured."""
    if values is not None:
        # The order of bytes is stated, because an archive may be read on another machine.
        arrays = {name: v[r].numpy().astype("<f4") for name, v in values.values.items()}
        with replacing(_file(folder, epoch)) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_WIDTHS: np.asarray(values.widths), **arrays})


def cut_back(folder: RunFolder, epoch: int) -> None:
    """Delete the files after ``epoch``, the epoch of the resumed checkpoint."""
    for file in (folder.path / UNITS_SO_FAR).glob("*.npz"):
        if not (file.stem.isdecimal() and int(file.stem) <= epoch):
            file.unlink()


def close(folder: RunFolder, epoch: int, step: int, remedy: str) -> list[Row]:
    """Write the table of all epochs up to ``epoch``, and return rows with the statistics of the whole run.

    Without files of unit statistics, nothing is written. A DamagedError names a damaged or missing
    file.
    """
    if not epoch or not (folder.path / UNITS_SO_FAR).exists():
        return []
    epochs = [_read(_file(folder, number), remedy) for number in range(1, epoch + 1)]
    widths = epochs[0].pop(_WIDTHS).tolist()
    values = {name: np.stack([arrays[name] for arrays in epochs]) for name in epochs[0]}
    _write(folder.path / UNITS, widths, values)
    varied = over_epochs(widths, values)
    return [
        Row(epoch, step, "units", name, condition, value)
        for (name, condition), value in varied.items()
    ]


def _file(folder: RunFolder, epoch: int) -> Path:
    return folder.path / UNITS_SO_FAR / f"{epoch}.npz"


def _read(path: Path, remedy: str) -> dict[str, Array]:
    try:
        with np.load(regular(path)) as arrays:  # verifies the checksums in the file
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedError(f"{path} is damaged or missing: {remedy}") from error


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
        pq.write_table(pa.table(columns), partial, compression="zstd", write_page_checksum=True)


def over_epochs(widths: list[int], values: dict[str, Array]) -> dict[tuple[str, str], float]:
    """Return how unit statistics vary over epochs (ELU appendix C, both readings), by name and condition.

    - ``variance_of_medians``: variance over epochs of each unit's median, averaged over the units
        of a layer.
    - ``variance_of_changes_of_medians``: the same for the changes of the median from epoch to
        epoch.
    - ``always_zero_medians``: share of units in a layer whose median is 0 in every epoch.

    The same for each other statistic, such as ``mean``. Conditions are ``layer=1``; quartiles of
    both variances over the units of a layer have ``layer=1,quantile=0.25``. ``values`` are arrays
    ``(epochs, units)``.
    """
    varied: dict[tuple[str, str], float] = {}
    edges = np.cumsum([0, *widths])
    for name, array in values.items():
        for layer, (start, end) in enumerate(pairwise(edges), 1):
            of_layer, where = array[:, start:end].astype(np.float64), f"layer={layer}"
            varied[f"always_zero_{name}s", where] = float((of_layer == 0).all(0).mean())
            for kind, series in (("", of_layer), ("changes_of_", np.diff(of_layer, axis=0))):
                if len(series) > 1:
                    variances = series.var(0, ddof=1)
                    varied[f"variance_of_{kind}{name}s", where] = float(variances.mean())
                    for q in (0.25, 0.5, 0.75):
                        value = float(np.quantile(variances, q))
                        varied[f"variance_of_{kind}{name}s", f"{where},quantile={q}"] = value
    return varied
