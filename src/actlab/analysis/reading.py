"""Read finished runs from disk: recorded series, probe measurements, and how each run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from actlab.analysis.wording import plural
from actlab.errors import ActlabError
from actlab.storage import series
from actlab.storage.files import DamagedError
from actlab.storage.series import Key, Series, Summary
from actlab.studies import probe_files
from actlab.studies.formats import Result
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import StudyFolder


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


def read(study: StudyFolder) -> tuple[dict[str, Recorded], dict[str, Result], list[str]]:
    """Return series and results of the finished runs of a study by id, and a line for what is left out.

    What a probe measured by another definition than the study's is left out.
    """
    wanted = probe_files.wanted(study.study.probes, study.study.keep)
    recorded, results, left_out = dict[str, Recorded](), dict[str, Result](), list[str]()
    outdated: Counter[str] = Counter()
    for folder in study.runs:
        if folder.finished:
            try:
                result = folder.result()
                recorded[folder.id], old = _recorded(folder, result, wanted)
            except DamagedError as error:
                left_out.append(str(error))
                continue
            results[result["id"]] = result
            outdated.update(old)
    left_out += (
        f"probe {name}: what it measured in {plural(count, 'run')} is left out, for the study asks "
        "something else now: run it again, and they are probed again"
        for name, count in outdated.items()
    )
    return recorded, results, left_out


def _recorded(
    folder: RunFolder, result: Result, wanted: Mapping[str, str]
) -> tuple[Recorded, list[str]]:
    """Return what a run recorded, and the names of its probes whose measurements answer another request."""
    summary, probed, old = result["summary"], dict[Key, Series](), []
    for probe, (question, file) in probe_files.found_in(folder.path).items():
        if wanted.get(probe, question) != question:
            old.append(probe)
            continue
        measured = series.read(file, f"{probe}/")
        if both := [name for name, _ in measured if name in summary]:
            raise ActlabError(
                f"{file} holds {min(both)}, which training recorded too; rename the probe"
            )
        probed.update(measured)
    return Recorded(
        folder.metrics, series.from_entry(summary) | series.summaries(probed), probed
    ), old
