"""Finished runs as they lie on disk: what training recorded, what probes measured, and how each run ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from actlab.analysis.statistics import Array
from actlab.engines.folders import COSTS, SEAL, Row, RunFolder, seal
from actlab.errors import ActlabError, one_line
from actlab.files import DamagedError, is_regular, read_sealed
from actlab.studies.plan import Run

_REMEDY = "delete it, and run the study again"
Series = dict[tuple[str, str, str], tuple[Array, Array]]
"""Epochs, ascending, and values by run id, name and condition."""


class Read(NamedTuple):
    """What lies on disk.

    Args:
        rows: of every ``metrics.parquet`` and ``probes/*.parquet``, with the further columns ``run`` and
            ``name``: ``split/metric``, or the metric alone where there is no split; in front of it, for a
            probe, the name of its file and a slash.
        results: the ``result.json`` of each run.
        damaged: a line about each run that is left out because a file of it is damaged, with the remedy.
    """

    rows: pd.DataFrame
    results: Sequence[Mapping[str, Any]]
    damaged: list[str]


def read(root: Path, runs: Iterable[Run]) -> Read:
    """The rows and results of the finished runs among ``runs``.

    Args:
        root: the study's folder.
        runs: planned ones, finished or not.

    Raises:
        ActlabError: for a file without the columns of a row, or a probe with a name that training recorded.
    """
    frames, results, damaged = [], [], []
    for folder in (folder for run in runs if (folder := RunFolder(root, run)).finished):
        try:
            result, rows = folder.result(), _rows(folder.path)
        except DamagedError as error:
            damaged.append(str(error))
        else:
            frames.append(rows.assign(run=folder.run.id))
            results.append(result)
    empty = pd.DataFrame(columns=["run", "name", *Row._fields])
    return Read(pd.concat(frames, ignore_index=True) if frames else empty, results, damaged)


def costs(root: Path) -> list[Mapping[str, Any]]:
    """The entries of a study's ``cost.json``, empty without one.

    Raises:
        DamagedError: when it is damaged, or was measured on runs that are not in the study's folder.
    """
    file, remedy = root / COSTS, "delete it; the next run measures anew"
    found = read_sealed(file, remedy) if file.exists() else []
    entries: list[Mapping[str, Any]] = found if isinstance(found, list) else [{"point": None}]
    for entry in entries:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("point", {}), Mapping):
            raise DamagedError(f"{file} is damaged (no list of costs): {remedy}")
        if not (root / str(entry.get("run", ""))).is_dir():
            raise DamagedError(f"{file} was measured on {entry['run']}, which is not there: {remedy}")
    return entries


def series(rows: pd.DataFrame) -> Series:
    """The rows that `read` returns, sorted into series; of several rows at one epoch the last one counts."""
    keys = ["run", "name", "condition"]
    # The thirds of an epoch come from divisions: equal up to rounding must be equal here.
    rows = rows.assign(epoch=rows["epoch"].astype(float).round(6))
    rows = rows.drop_duplicates([*keys, "epoch"], keep="last").sort_values("epoch", kind="stable")
    return {
        (str(run), str(name), str(condition)): (part["epoch"].to_numpy(float), part["value"].to_numpy(float))
        for (run, name, condition), part in rows.groupby(keys, sort=False)
    }


def _rows(folder: Path) -> pd.DataFrame:
    """All rows of one run."""
    recorded = _named(folder / "metrics.parquet", "")
    frames, names = [recorded], set(recorded["name"])
    for file in sorted((folder / "probes").glob("[!.]*.parquet")):
        probed = _named(file, f"{file.stem}/")
        if both := names & set(probed["name"]):
            raise ActlabError(f"{file} holds {min(both)}, which training recorded too; rename the probe")
        frames.append(probed)
    return pd.concat(frames, ignore_index=True)


def _named(file: Path, prefix: str) -> pd.DataFrame:
    """The rows of a file with their names, which begin with ``prefix``."""
    try:
        if not is_regular(file):
            raise OSError("it is no regular file")
        table = pq.read_table(file)
        frame: pd.DataFrame = table.to_pandas()
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DamagedError(f"{file} is damaged ({one_line(error, 100)}): {_REMEDY}") from error
    sealed = (table.schema.metadata or {}).get(SEAL)
    if sealed is not None and sealed.decode() != seal(frame, file.parent.parent.name):
        raise DamagedError(f"{file} is damaged (it is not what was written): {_REMEDY}")
    if "condition" not in frame:  # a run from before rows had conditions
        frame["condition"] = ""
    if missing := [column for column in Row._fields if column not in frame]:
        raise ActlabError(f"{file} lacks the columns {', '.join(missing)}; needed are {', '.join(Row._fields)}")
    frame = frame.fillna({"split": "", "condition": ""})
    names = prefix + (frame["split"] + "/" + frame["metric"]).str.removeprefix("/")
    return frame[list(Row._fields)].assign(name=names)
