"""Read finished runs from disk: recorded series, probe measurements, and how each run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from actlab.errors import ActlabError
from actlab.storage import series
from actlab.storage.files import DamagedError, read_json
from actlab.storage.series import Key, Series, Summary
from actlab.studies import probe_files
from actlab.studies.folders import COSTS, Row, RunFolder
from actlab.studies.formats import Cost, Result
from actlab.studies.plan import Run


@dataclass
class Recorded:
    """The series of one run.

    Args:
        rows: file of the series recorded in training; read lazily, on first access to such a series.
        probed: series measured by probes.
        summaries: summaries of all series.
    """

    rows: Path
    probed: Mapping[Key, Series]
    summaries: Mapping[Key, Summary]

    @cached_property
    def trained(self) -> Mapping[Key, Series]:
        """The series recorded in training."""
        return series.read(self.rows, Row._fields)

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
        return isinstance(key, tuple) and key[0] in self.runs and key[1:] in self.runs[key[0]].summaries

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return ((run, *key) for run, recorded in self.runs.items() for key in recorded.summaries)

    def __len__(self) -> int:
        return sum(len(recorded.summaries) for recorded in self.runs.values())

    def summary(self, run: str, name: str, condition: str) -> Summary | None:
        """Return the summary of a series; None if there is no such series."""
        return self.runs[run].summaries.get((name, condition)) if run in self.runs else None


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


def read(root: Path, runs: Iterable[Run], asked: Mapping[str, Sequence[Any]]) -> Read:
    """Return the series and results of the finished runs among ``runs``.

    Args:
        root: the study's folder.
        runs: planned runs, finished or not.
        asked: the current definition of each probe, by name; measurements made with another definition are left
            out.

    Raises:
        ActlabError: for a file that lacks the columns of a row, or a probe that measured a name recorded in
            training.
    """
    recorded, results, left_out = {}, [], []
    outdated: Counter[str] = Counter()
    for folder in (folder for run in runs if (folder := RunFolder(root, run)).finished):
        try:
            result = folder.result()
            old = {
                name
                for name in asked
                if probe_files.is_outdated(probe_files.file_of(folder.path, name), asked[name])
            }
            recorded[folder.run.id] = _recorded(folder, result.pop("summary", None), old)
        except DamagedError as error:
            left_out.append(str(error))
        else:
            results.append(result)
            outdated.update(old)
    left_out += (
        f"probe {name}: what it measured in {number} runs is left out, for the study asks something else now: "
        "run it again, and they are probed anew"
        for name, number in outdated.items()
    )
    return Read(AllSeries(recorded), results, left_out)


def costs(root: Path) -> list[Cost]:
    """Return the entries of a study's ``cost.json`` whose runs still exist; empty without the file.

    Raises:
        DamagedError: if the file is damaged.
    """
    file, remedy = root / COSTS, "delete it; the next run measures the costs again"
    entries = read_json(file, list[Cost], remedy) if file.exists() else []
    runs = {path.name for path in root.iterdir() if path.is_dir()} if entries else set()
    return [entry for entry in entries if entry["run"] in runs]


def timed_together(costs: Iterable[Cost]) -> list[list[Cost]]:
    """Return the entries of each measurement, the last one first: only times taken in turns can be compared."""
    found: dict[str | None, list[Cost]] = {}
    for cost in costs:
        found.setdefault(cost.get("measured"), []).append(cost)
    return [*found.values()][::-1]


def _recorded(folder: RunFolder, entry: Mapping[str, Any] | None, outdated: Container[str]) -> Recorded:
    """Return the series of a run; read its rows only if its result is too old to contain summaries."""
    found = Recorded(folder.metrics, {}, {})
    trained = series.summaries(found.trained) if entry is None else series.from_entry(entry)
    found.probed = dict(_probed(folder.path, {name for name, _ in trained}, outdated))
    found.summaries = trained | series.summaries(found.probed)
    return found


def _probed(folder: Path, trained: Container[str], outdated: Container[str]) -> Iterator[tuple[Key, Series]]:
    """Yield the series that probes measured in a run, without outdated probes.

    Raises:
        ActlabError: if a series has a name recorded in training.
    """
    for name in sorted(record.stem for record in (folder / "probes").glob("[!.]*.json")):
        if name in outdated:
            continue
        file = probe_files.file_of(folder, name)
        found = probe_files.read(file, f"{name}/")
        if both := [name for name, _ in found if name in trained]:
            raise ActlabError(f"{file} holds {min(both)}, which training recorded too; rename the probe")
        yield from found.items()
