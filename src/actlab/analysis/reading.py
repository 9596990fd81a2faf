"""Read finished runs from disk: recorded series, probe measurements, and how each run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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
    """The series of one run; their values are read lazily, on first access."""

    metrics: Path  # file of the series recorded in training
    summaries: Mapping[Key, Summary]  # of all series, by name and condition
    probed: Mapping[Key, Series]  # series measured by probes

    @cached_property
    def trained(self) -> Mapping[Key, Series]:
        """The series recorded in training."""
        return series.read(self.metrics)

    def __getitem__(self, key: Key) -> Series:
        return self.probed[key] if key in self.probed else self.trained[key]


def read(
    root: Path, runs: Iterable[Run], wanted: Mapping[str, str]
) -> tuple[dict[str, Recorded], dict[str, Result], list[str]]:
    """Return series and results of the finished runs among ``runs`` by id, and a line for what is left out.

    The name of a series is ``split/metric``, or the metric alone if it has no split; a probe's has the probe's
    name and a slash in front. ``wanted`` has the current definition of each probe, by name; measurements with
    another one are left out, and so are damaged runs.
    """
    recorded, results, left_out = dict[str, Recorded](), dict[str, Result](), list[str]()
    outdated: Counter[str] = Counter()
    for folder in (RunFolder(root, run) for run in runs):
        if folder.finished:
            try:
                result = folder.result()
                recorded[folder.run.id], old = _recorded(folder, result["summary"], wanted)
            except DamagedError as error:
                left_out.append(str(error))
                continue
            results[result["id"]] = result
            outdated.update(old)
    left_out += (
        f"probe {name}: what it measured in {count} runs is left out, for the study asks something else now: "
        "run it again, and they are probed again"
        for name, count in outdated.items()
    )
    return recorded, results, left_out


def _recorded(
    folder: RunFolder, summary: Mapping[str, Any], wanted: Mapping[str, str]
) -> tuple[Recorded, list[str]]:
    """Return what a run recorded, and the names of its probes whose measurements answer another request."""
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
    """Return the entries of a study's ``cost.json`` whose runs still exist; empty without the file."""
    file, remedy = root / COSTS, "delete it; the next run measures the costs again"
    entries = read_json(file, list[Cost], remedy) if file.exists() else []
    return [entry for entry in entries if (root / entry["run"]).is_dir()]


def timed_together(costs: Iterable[Cost]) -> list[list[Cost]]:
    """Return the entries of each measurement, the last one first: only times taken in turns can be compared."""
    found: dict[str | None, list[Cost]] = {}
    for cost in costs:
        found.setdefault(cost.get("measured"), []).append(cost)
    return [*found.values()][::-1]
