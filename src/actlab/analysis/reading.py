"""Finished runs as they lie on disk: what training recorded, what probes measured, and how each run ended."""

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
    """What one run recorded.

    Args:
        rows: the file of what training recorded, which is read when a series of it is asked for.
        probed: what probes measured.
        summaries: of all of it.
    """

    rows: Path
    probed: Mapping[Key, Series]
    summaries: Mapping[Key, Summary]

    @cached_property
    def trained(self) -> Mapping[Key, Series]:
        """What training recorded."""
        return series.read(self.rows, Row._fields)

    def __getitem__(self, key: Key) -> Series:
        return self.probed[key] if key in self.probed else self.trained[key]


class AllSeries(Mapping[tuple[str, str, str], Series]):
    """The series of all runs by run id, name and condition; which there are is known without reading any."""

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
        """What sums up a series; None where there is none."""
        return self.runs[run].summaries.get((name, condition)) if run in self.runs else None


class Read(NamedTuple):
    """What lies on disk.

    Args:
        series: what training and probes recorded. A name is ``split/metric``, or the metric alone where there
            is no split; in front of it, for a probe, the name of its file and a slash.
        results: the ``result.json`` of each run, without the summaries.
        left_out: a line about each run that is left out because a file of it is damaged, and about each probe
            that asks something else now, with the remedy.
    """

    series: AllSeries
    results: Sequence[Result]
    left_out: list[str]


def read(root: Path, runs: Iterable[Run], asked: Mapping[str, Sequence[Any]]) -> Read:
    """The series and results of the finished runs among ``runs``.

    Args:
        root: the study's folder.
        runs: planned ones, finished or not.
        asked: what the study's probes ask, by name; what they measured when they asked otherwise is left out.

    Raises:
        ActlabError: for a file without the columns of a row, or a probe with a name that training recorded.
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
    """The entries of a study's ``cost.json``, empty without one; those of runs that are gone are left out.

    Raises:
        DamagedError: when it is damaged.
    """
    file, remedy = root / COSTS, "delete it; the next run measures anew"
    entries = read_json(file, list[Cost], remedy) if file.exists() else []
    runs = {path.name for path in root.iterdir() if path.is_dir()} if entries else set()
    return [entry for entry in entries if entry["run"] in runs]


def _recorded(folder: RunFolder, entry: Mapping[str, Any] | None, outdated: Container[str]) -> Recorded:
    """What a run recorded, its rows unread where its result sums them up; those from before do not."""
    found = Recorded(folder.metrics, {}, {})
    trained = series.summaries(found.trained) if entry is None else series.from_entry(entry)
    found.probed = dict(_probed(folder.path, {name for name, _ in trained}, outdated))
    found.summaries = trained | series.summaries(found.probed)
    return found


def _probed(folder: Path, trained: Container[str], outdated: Container[str]) -> Iterator[tuple[Key, Series]]:
    """What probes measured in a run, whose training recorded other names; without outdated ones."""
    for name in sorted(record.stem for record in (folder / "probes").glob("[!.]*.json")):
        if name in outdated:
            continue
        file = probe_files.file_of(folder, name)
        found = probe_files.read(file, f"{name}/")
        if both := [name for name, _ in found if name in trained]:
            raise ActlabError(f"{file} holds {min(both)}, which training recorded too; rename the probe")
        yield from found.items()
