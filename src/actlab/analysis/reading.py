"""Read finished runs from disk: recorded series, probe measurements, and how each run ended."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from actlab.errors import ActlabError
from actlab.storage import series
from actlab.storage.files import DamagedError, read_json
from actlab.storage.series import Key, Series, Summary
from actlab.studies import probe_files
from actlab.studies.folders import COSTS, RunFolder
from actlab.studies.formats import Cost, Result
from actlab.studies.plan import Run


@dataclass
class Recorded:
    """The series of one run; their values are read lazily, on first access.

    Args:
        metrics: file of the series recorded in training.
        summaries: the summary of each series, by name and condition.
        probed: the series measured by probes.
    """

    metrics: Path
    summaries: Mapping[Key, Summary]
    probed: Mapping[Key, Series]

    @cached_property
    def trained(self) -> Mapping[Key, Series]:
        """The series recorded in training.

        Raises:
            DamagedError: if their file is damaged.
        """
        return series.read(self.metrics)

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
        recorded = self.runs.get(run)
        return recorded.summaries.get((name, condition)) if recorded else None

    @property
    def names(self) -> Iterable[Key]:
        """Every name and condition that a run recorded, in the order in which they were first recorded."""
        return dict.fromkeys(key for recorded in self.runs.values() for key in recorded.summaries)

    def damaged(self) -> dict[str, DamagedError]:
        """Read the rows of all runs; return the error for each run whose file is damaged."""
        found = {}
        for run, recorded in self.runs.items():
            try:
                recorded.trained  # noqa: B018 (read and kept)
            except DamagedError as error:
                found[run] = error
        return found


class Read(NamedTuple):
    """The finished runs found on disk.

    Args:
        series: series of training and probes. A name is ``split/metric``, or the metric alone if it has no
            split; for a probe, the name is prefixed with the name of the probe's file and a slash.
        results: ``result.json`` of each run.
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
        ActlabError: for a probe that measured a name recorded in training.
    """
    wanted = {name: probe_files.digest_of(questions)[:16] for name, questions in asked.items()}
    recorded, results, left_out = dict[str, Recorded](), list[Result](), list[str]()
    outdated: Counter[str] = Counter()
    for folder in (RunFolder(root, run) for run in runs):
        if folder.finished:
            try:
                result = folder.result()
                recorded[folder.run.id], old = _recorded(folder, result["summary"], wanted)
            except DamagedError as error:
                left_out.append(str(error))
                continue
            results.append(result)
            outdated.update(old)
    left_out += (
        f"probe {name}: what it measured in {count} runs is left out, for the study asks something else now: "
        "run it again, and they are probed again"
        for name, count in outdated.items()
    )
    return Read(AllSeries(recorded), results, left_out)


def _recorded(
    folder: RunFolder, summary: Mapping[str, Any], wanted: Mapping[str, str]
) -> tuple[Recorded, list[str]]:
    """Return what a run recorded, and the names of its probes whose measurements answer another request.

    Raises:
        DamagedError: if a file is damaged.
        ActlabError: if a probe measured a name recorded in training.
    """
    trained = series.from_entry(summary)
    names = {name for name, _ in trained}
    probed, old = dict[Key, Series](), []
    for probe, (question, file) in probe_files.found_in(folder.path).items():
        if wanted.get(probe, question) != question:
            old.append(probe)
            continue
        found = series.read(file, f"{probe}/")
        if both := [name for name, _ in found if name in names]:
            raise ActlabError(f"{file} holds {min(both)}, which training recorded too; rename the probe")
        probed.update(found)
    return Recorded(folder.metrics, trained | series.summaries(probed), probed), old


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
