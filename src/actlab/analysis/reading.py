"""Read finished runs from disk: recorded series, probe measurements, and how each run ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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
    """The series of one run; their values are read on first access."""

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
    folder: StudyFolder,
) -> tuple[dict[str, Recorded], dict[str, Result], list[str]]:
    """Return series and results of the finished runs of a study by id, and what is left out.

    A damaged run is left out, and measurements of a probe that the study defines differently now.
    Each has a line with the remedy.
    """
    # Digests of what the probes measure now, by probe
    study = folder.study
    requests = probe_files.requests_of(study.probes, study.keep)
    recorded: dict[str, Recorded] = {}
    results: dict[str, Result] = {}
    left_out: list[str] = []
    outdated: Counter[str] = Counter()

    # Read each finished run.
    for run in folder.runs:
        if not run.finished:
            continue
        try:
            result = run.result()
            probed, outdated_probes = _probed(run, result["summary"], requests)
        except DamagedError as error:
            left_out.append(str(error))
            continue
        summaries = series.from_entry(result["summary"]) | series.summaries(probed)
        recorded[run.id] = Recorded(run.metrics, summaries, probed)
        results[result["id"]] = result
        outdated.update(outdated_probes)

    # Name the outdated probes.
    for probe, count in outdated.items():
        left_out.append(
            f"probe {probe}: what it measured in {plural(count, 'run')} is left out, because the "
            "study now asks something else. Run the study again to probe them"
        )
    return recorded, results, left_out


def _probed(
    run: RunFolder, summary: Mapping[str, Any], requests: Mapping[str, str]
) -> tuple[dict[Key, Series], list[str]]:
    """Return the series that probes measured in a run, and the names of its outdated probes."""
    probed: dict[Key, Series] = {}
    outdated = []
    for probe, (request, file) in probe_files.found_in(run.path).items():
        # A probe that the study does not list any more is read.
        if requests.get(probe, request) != request:
            outdated.append(probe)
            continue
        measured = series.read(file, f"{probe}/")
        names = [name for name, _ in measured if name in summary]
        if names:
            raise ActlabError(
                f"{file} holds {min(names)}, which training recorded too. Rename the probe."
            )
        probed.update(measured)
    return probed, outdated
