"""What a run records of every unit: a file an epoch while it trains, one table at its end.

::

    units/5.npz      after five epochs: widths of the layers, and an array of float32 for each statistic
    units.parquet    epoch, layer (from 1), unit (from 1 in its layer), and a column for each statistic
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
from actlab.studies.folders import UNITS, UNITS_SO_FAR, Row, RunFolder

Array = npt.NDArray[Any]
_WIDTHS = "widths of layers"  # beside the statistics


def seen(trainer: pl.Trainer) -> UnitValues | None:
    """What a callback has measured of every unit in this epoch; None where none does."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(found := getattr(callback, "latest", None), UnitValues):
            return found
    return None


def append(folder: RunFolder, epoch: int, values: UnitValues | None, r: int = 0) -> None:
    """Write the file of an epoch.

    Args:
        folder: of the run.
        epoch: number of epochs trained.
        values: of the runs that are trained together; None writes nothing.
        r: which of them it is.
    """
    if values is not None:
        arrays = {name: v[r].numpy().astype("<f4") for name, v in values.values.items()}
        with replacing(_file(folder, epoch)) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_WIDTHS: np.asarray(values.widths), **arrays})


def cut_back(folder: RunFolder, epoch: int) -> None:
    """Keep the files up to an epoch, the one that the resumed checkpoint is of."""
    for file in (folder.path / UNITS_SO_FAR).glob("*.npz"):
        if not (file.stem.isdecimal() and int(file.stem) <= epoch):
            file.unlink()


def close(folder: RunFolder, epoch: int, step: int, remedy: str) -> list[Row]:
    """Write the table of the epochs up to one, where there are files of them.

    Args:
        folder: of the run.
        epoch: number of epochs trained well.
        step: number of updates.
        remedy: what helps where a file is damaged.

    Returns:
        What the units show over the whole run, see `over_epochs`.

    Raises:
        DamagedError: for a file that is damaged, or is lacking.
    """
    if not epoch or not (folder.path / UNITS_SO_FAR).exists():
        return []
    epochs = [_read(_file(folder, number), remedy) for number in range(1, epoch + 1)]
    widths = epochs[0].pop(_WIDTHS).tolist()
    values = {name: np.stack([arrays[name] for arrays in epochs]) for name in epochs[0]}
    _write(folder.path / UNITS, widths, values)
    found = over_epochs(widths, values)
    return [Row(epoch, step, "units", name, condition, value) for (name, condition), value in found.items()]


def _file(folder: RunFolder, epoch: int) -> Path:
    return folder.path / UNITS_SO_FAR / f"{epoch}.npz"


def _read(path: Path, remedy: str) -> dict[str, Array]:
    try:
        with np.load(regular(path)) as found:  # compares with the checksums of its parts
            return dict(found)
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
