"""Finished runs as they lie on disk: what training recorded, what probes measured, and how each run ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from actlab.analysis.statistics import Array
from actlab.engines.folders import Row, RunFolder
from actlab.errors import ActlabError
from actlab.studies.plan import Run

Series = dict[tuple[str, str, str], tuple[Array, Array]]
"""Epochs, ascending, and values by run id, name and condition."""


def read(root: Path, runs: Iterable[Run]) -> tuple[pd.DataFrame, list[Mapping[str, Any]]]:
    """The rows and results of the finished runs among ``runs``.

    Args:
        root: the study's folder.
        runs: planned ones, finished or not.

    Returns:
        The rows of every ``metrics.parquet`` and ``probes/*.parquet``, with the further columns ``run`` and
        ``name``: ``split/metric``, or the metric alone where there is no split; in front of it, for a probe,
        the name of its file and a slash. And the ``result.json`` of each run.

    Raises:
        ActlabError: for a file without the columns of a row, or a probe with a name that training recorded.
    """
    frames, results = [], []
    for run in runs:
        folder = RunFolder(root, run)
        if folder.finished:
            frames.append(_rows(folder.path).assign(run=run.id))
            results.append(json.loads((folder.path / "result.json").read_text(encoding="utf-8")))
    empty = pd.DataFrame(columns=["run", "name", *Row._fields])
    return (pd.concat(frames, ignore_index=True) if frames else empty), results


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
    frame = pd.read_parquet(file)
    if "condition" not in frame:  # a run from before rows had conditions
        frame["condition"] = ""
    if missing := [column for column in Row._fields if column not in frame]:
        raise ActlabError(f"{file} lacks the columns {', '.join(missing)}; needed are {', '.join(Row._fields)}")
    frame = frame.fillna({"split": "", "condition": ""})
    names = prefix + (frame["split"] + "/" + frame["metric"]).str.removeprefix("/")
    return frame[list(Row._fields)].assign(name=names)
