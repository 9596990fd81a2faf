"""The folder of a study: the folders of its runs, and the files that they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from actlab.storage.json_files import stored_json, write_json
from actlab.studies import opened
from actlab.studies.formats import Chosen, Cost
from actlab.studies.groups import Group, by_key, groups
from actlab.studies.plan import Study
from actlab.studies.run_folder import RESULT, RunFolder

T = TypeVar("T")
COSTS = "cost.json"
SELECTION = "selection.json"
RESELECT = "Delete it. The settings of later stages are then selected again."
VALUES = "values.csv"  # written together with the figures


@dataclass(frozen=True)
class StudyFolder:
    """A study, or a stage as a study, with the folder of its runs and of the files that they share.

    It reads and writes the shared files. A `RunFolder` has the files of a single run.
    """

    study: Study
    path: Path

    def with_study(self, study: Study) -> StudyFolder:
        """Return the same folder with another study: a stage, or the trials of a search."""
        return StudyFolder(study, self.path)

    @cached_property
    def runs(self) -> list[RunFolder]:
        """The folders of the study's runs, in its order."""
        return [RunFolder(self.path, run) for run in self.study.runs()]

    @cached_property
    def groups(self) -> list[Group]:
        """The study's groups, in the order of its file."""
        return groups(self.study)

    @property
    def with_opened_files(self) -> StudyFolder:
        """The study with the files that users' code opens, which its folder stores."""
        remedy = "Delete it. The next start writes it again."
        # Found out by a worker that builds the runs; plans only read it
        files = self.stored(opened.FILE, dict[str, list[str]], remedy)
        return self.with_study(replace(self.study, opened_files=files))

    @property
    def costs(self) -> list[Cost]:
        """The entries of ``cost.json`` whose runs still exist; empty without the file."""
        entries = self.stored(
            COSTS, list[Cost], "Delete it. The next run measures the costs again."
        )
        # A damaged name may be longer than a path
        names = {folder.name for folder in self.path.glob("[!.]*/")}
        return [entry for entry in entries if entry["run"] in names]

    @property
    def selection(self) -> dict[str, Chosen]:
        """The stored selections of later stages, by stage and grid point; may be empty."""
        return self.stored(SELECTION, dict[str, Chosen], RESELECT)

    def stored(self, name: str, kind: type[T], remedy: str) -> T:
        """Return the checked content of a JSON file that the runs share; empty without the file."""
        return stored_json(self.path / name, kind, remedy)

    def store(self, name: str, content: Any) -> None:
        """Write a JSON file that the runs share."""
        write_json(self.path / name, content)

    def finished(self) -> list[str]:
        """Return the names of the finished runs, of any plan."""
        return [result.parent.name for result in self.path.glob(f"[!.]*/{RESULT}")]


def timed_together(costs: Iterable[Cost]) -> list[list[Cost]]:
    """Return the entries of each measurement, the last one first.

    Only times that were taken in turns can be compared.
    """
    measurements = by_key((cost.get("measured"), cost) for cost in costs)
    return list(reversed(measurements.values()))
