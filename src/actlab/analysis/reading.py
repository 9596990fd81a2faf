"""Read finished runs from disk: recorded series, probe measurements, and how each run ended."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from actlab.errors import ActlabError
from actlab.storage import series
from actlab.storage.collection import uncollected
from actlab.storage.files import DamagedError, parsed, read_json
from actlab.storage.series import Array, Key, Series, Summary
from actlab.studies import ended, probe_files
from actlab.studies.folders import COSTS, METRICS, SUMMARY, Row, RunFolder
from actlab.studies.formats import Cost, Result
from actlab.studies.plan import Run

_ALIKE = ("versions", "hardware", "sources", "revisions")  # entries of results that most runs have in common


@dataclass
class Recorded:
    """The series of one run; their values are read lazily, on first access to such a series.

    Args:
        folder: the run's folder.
        places: index of each series in ``summed``, by name and condition.
        summed: the summary of each series, shape ``[series, 5]``.
        outdated: probes whose measurements are left out.
    """

    folder: str
    places: Mapping[Key, int]
    summed: Array
    outdated: frozenset[str] = frozenset()

    @property
    def summaries(self) -> dict[Key, Summary]:
        """The summary of each series."""
        return {key: self.summary(key) for key in self.places}

    def summary(self, key: Key) -> Summary:
        """Return the summary of a series."""
        return Summary(*self.summed[self.places[key]].tolist())

    @cached_property
    def trained(self) -> Mapping[Key, Series]:
        """The series recorded in training."""
        return series.read(Path(self.folder) / METRICS, Row._fields)

    @cached_property
    def probed(self) -> Mapping[Key, Series]:
        """The series measured by probes."""
        return dict(_probed(Path(self.folder), (), self.outdated))

    def __getitem__(self, key: Key) -> Series:
        return self.probed[key] if key in self.probed else self.trained[key]


class AllSeries(Mapping[tuple[str, str, str], Series]):
    """The series of all runs by run id, name and condition; listing the keys reads no series."""

    def __init__(self, runs: Mapping[str, Recorded]) -> None:
        self.runs = runs

    def __getitem__(self, key: tuple[str, str, str]) -> Series:
        run, name, condition = key
        return self.runs[run][name, condition]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and key[0] in self.runs and key[1:] in self.runs[key[0]].places

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return ((run, *key) for run, recorded in self.runs.items() for key in recorded.places)

    def __len__(self) -> int:
        return sum(len(recorded.places) for recorded in self.runs.values())

    def summary(self, run: str, name: str, condition: str) -> Summary | None:
        """Return the summary of a series; None if there is no such series."""
        recorded, key = self.runs.get(run), (name, condition)
        return recorded.summary(key) if recorded and key in recorded.places else None

    @property
    def names(self) -> Iterator[Key]:
        """Every name and condition that a run recorded, in the order in which they were first recorded."""
        alike = {id(recorded.places): recorded.places for recorded in self.runs.values()}
        return iter(dict.fromkeys(key for places in alike.values() for key in places))


class Read(NamedTuple):
    """The finished runs found on disk.

    Args:
        series: series of training and probes. A name is ``split/metric``, or the metric alone if it has no
            split; for a probe, the name is prefixed with the name of the probe's file and a slash.
        results: ``result.json`` of each run, without the summaries.
        left_out: one line, with the remedy, for each run that is left out because of a damaged file, and for
            each probe whose definition has changed.
    """

    series: AllSeries
    results: Sequence[Result]
    left_out: list[str]


@uncollected()
def read(root: Path, runs: Iterable[Run], asked: Mapping[str, Sequence[Any]]) -> Read:
    """Return the series and results of the finished runs among ``runs``.

    A run's own files are read and their digests checked unless `actlab.studies.ended` holds an entry for files
    of these sizes and times, whose digests were checked then. Only a file that was changed without a change of
    its size and time would thus be missed; `RunFolder.result` checks every file each time.

    Args:
        root: the study's folder.
        runs: planned runs, finished or not.
        asked: the current definition of each probe, by name; measurements made with another definition are left
            out.

    Raises:
        ActlabError: for a file that lacks the columns of a row, or a probe that measured a name recorded in
            training.
    """
    known, fresh, now = ended.read(root), dict[str, ended.Entry](), time.time()
    entries: dict[str, tuple[Run, ended.Entry, frozenset[str]]] = {}
    left_out: list[str] = []
    for run in runs:
        if (stamp := ended.stamp_of(f"{root}/{run.id}", run.identity)) is None:
            continue
        entry, old = known.get(run.id), frozenset[str]()
        if entry is None or entry.stamp != stamp or probe_files.outdated(_shared(entry.shared)[0], asked):
            try:
                entry, old = _entry(RunFolder(root, run), stamp, asked)
            except DamagedError as error:
                left_out.append(str(error))
                continue
            if not old and ended.is_settled(stamp, now):
                fresh[run.id] = entry
        entries[run.id] = run, entry, old
    if len(fresh) >= ended.LEAST:
        others = {name: entry for name, entry in known.items() if name in entries or (root / name).is_dir()}
        ended.write(root, {**others, **fresh})
    number = Counter(name for _, _, old in entries.values() for name in old)
    left_out += (
        f"probe {name}: what it measured in {count} runs is left out, for the study asks something else now: "
        "run it again, and they are probed anew"
        for name, count in number.items()
    )
    return _decoded(root, entries.values(), left_out)


def _decoded(
    root: Path, entries: Collection[tuple[Run, ended.Entry, frozenset[str]]], left_out: list[str]
) -> Read:
    """Return what entries hold; the runs share what is equal."""
    recorded, results = {}, []
    alike: dict[Any, Any] = {}
    found = ended.results_of([entry for _, entry, _ in entries])
    for (run, entry, old), result in zip(entries, found, strict=True):
        for key in (key for key in _ALIKE if key in result):
            value = result[key]
            result[key] = alike.setdefault(value if isinstance(value, str) else tuple(value.items()), value)
        if result.get("point") == run.point:
            result["point"] = run.point
        recorded[run.id] = Recorded(f"{root}/{run.id}", _shared(entry.shared)[1], entry.values, old)
        results.append(result)
    return Read(AllSeries(recorded), results, left_out)


@lru_cache(maxsize=64)
def _shared(text: str) -> tuple[dict[str, str], dict[Key, int]]:
    """Return the definitions of probes in an entry, and the place of each series; never changed."""
    found = parsed(text)
    return found["asked"], {(name, condition): place for place, (name, condition) in enumerate(found["series"])}


def costs(root: Path) -> list[Cost]:
    """Return the entries of a study's ``cost.json`` whose runs still exist; empty without the file.

    Raises:
        DamagedError: if the file is damaged.
    """
    file, remedy = root / COSTS, "delete it; the next run measures the costs again"
    entries = read_json(file, list[Cost], remedy) if file.exists() else []
    if not entries:
        return []
    with os.scandir(root) as found:
        runs = {entry.name for entry in found if entry.is_dir()}
    return [entry for entry in entries if entry["run"] in runs]


def timed_together(costs: Iterable[Cost]) -> list[list[Cost]]:
    """Return the entries of each measurement, the last one first: only times taken in turns can be compared."""
    found: dict[str | None, list[Cost]] = {}
    for cost in costs:
        found.setdefault(cost.get("measured"), []).append(cost)
    return [*found.values()][::-1]


def _entry(
    folder: RunFolder, stamp: str, asked: Mapping[str, Sequence[Any]]
) -> tuple[ended.Entry, frozenset[str]]:
    """Return the entry of a run from its own files, and the names of its outdated probes.

    The rows are read only if the result is too old to contain summaries.

    Raises:
        DamagedError: if a file is damaged.
    """
    result = folder.result()
    found = probe_files.asked_in(folder.path)
    old = frozenset(probe_files.outdated(found, asked))
    summary = result.pop(SUMMARY, None)
    trained = (
        series.summaries(series.read(folder.metrics, Row._fields))
        if summary is None
        else series.from_entry(summary)
    )
    probed = series.summaries(dict(_probed(folder.path, {name for name, _ in trained}, old)))
    summed = trained | probed
    shared = json.dumps({"asked": found, "series": [*summed]})
    values = np.array([*summed.values()], float).reshape(-1, len(Summary._fields))
    return ended.Entry(stamp, json.dumps(result), shared, values), old


def _probed(folder: Path, trained: Container[str], outdated: Container[str]) -> Iterator[tuple[Key, Series]]:
    """Yield the series that probes measured in a run, without outdated probes.

    Raises:
        ActlabError: if a series has a name recorded in training.
    """
    for name in sorted(record.stem for record in (folder / ended.PROBES).glob("[!.]*.json")):
        if name in outdated:
            continue
        file = probe_files.file_of(folder, name)
        found = probe_files.read(file, f"{name}/")
        if both := [name for name, _ in found if name in trained]:
            raise ActlabError(f"{file} holds {min(both)}, which training recorded too; rename the probe")
        yield from found.items()
