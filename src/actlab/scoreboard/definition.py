"""The tasks and data sets of each version of the scoreboard, as its file in ``configs`` says.

A version states its data sets before they have runs. A data set has results as soon as its folder
has a table.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import Field

from actlab.analysis import study_table
from actlab.errors import ActlabError
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import resource
from actlab.studies.schema import Part

FILES = {1: "configs/scoreboard.yaml", 2: "configs/scoreboard_2.yaml"}  # by version
CURRENT = 2  # version that the command and the tests of submissions use by default


class DataSet(Part):
    """A data set of a task: the stored table, and what trains a further activation on it."""

    table: str  # folder of the stored table
    file: str = ""  # in the user's folder of data; empty if the task needs none
    sha256: str = ""  # of this file, if it is a text
    # Digest of its decoded pictures or rows, see `actlab.checks.data_digests`.
    content: str = ""
    chance: float | None = None  # value at chance level, unless the stored table has it
    # Whether settings are selected on it, as on the first data set of a task
    selects: bool = False
    # Of a data set that selects no settings; others have the seeds of the study
    seeds: str = ""
    set: dict[str, Any] = Field(default={})  # config keys of a further data set

    def settings(self, folder: Path | None) -> dict[str, Any]:
        """Return the config keys that train on it, with its file in a folder; None for samples."""
        if folder and self.file:
            return {**self.set, "data.dataset": str(folder / self.file)}
        return self.set

    @property
    def has_table(self) -> bool:
        """Whether its stored table exists."""
        try:
            return resource(f"{self.table}/{study_table.NAME}").is_file()
        except ActlabError:
            return False


class Task(Part):
    """A task. Its study selects settings on the first data set; the others keep these settings.

    A further data set that ``selects`` begins a new group: it and the data sets after it use the
    settings that the study selects on it.
    """

    title: str
    study: str
    data: Annotated[dict[str, DataSet], MinLen(1)]
    points_are_data: bool = False  # whether the points of a table count as data sets
    download: str = ""  # commands that write its data, if one download suffices

    @property
    def groups(self) -> list[list[str]]:
        """The names of the data sets that share settings; the first of a group selects them."""
        groups: list[list[str]] = []
        for name, data_set in self.data.items():
            if data_set.selects or not groups:
                groups.append([])
            groups[-1].append(name)
        return groups


class Definition(Part):
    """The contents of one of `FILES`, with the tasks of the version that it ``includes``."""

    version: int
    stated: date | None = None
    includes: int | None = None
    reference: str  # activation with which the others are compared
    equivalence: float  # ratio up to which activations count as practically equal
    # A run that gains less of the way from chance to the best activation has failed
    least_gain: float
    tasks: dict[str, Task]
    # Data sets that it adds to tasks of the version that it includes, by task
    further: dict[str, dict[str, DataSet]] = Field(default={})

    @property
    def with_tables(self) -> dict[str, Task]:
        """The tasks with the data sets that have stored tables, by name.

        A group whose first data set has none is left out, since its settings are unknown.
        """
        tasks = {}
        for name, task in self.tasks.items():
            # Data sets with a table, in groups whose settings are known
            data = {}
            for group in task.groups:
                if not task.data[group[0]].has_table:
                    continue
                for data_name in group:
                    if task.data[data_name].has_table:
                        data[data_name] = task.data[data_name]

            # A task without any of them has no results
            if data:
                tasks[name] = task.model_copy(update={"data": data})
        return tasks

    @property
    def not_run(self) -> list[str]:
        """The names of tasks, or of their data sets, that are stated and have no results yet."""
        names = []
        with_tables = self.with_tables
        for name, task in self.tasks.items():
            if name not in with_tables:
                names.append(name)
                continue

            missing = task.data.keys() - with_tables[name].data.keys()
            names += [f"{name}: {data}" for data in task.data if data in missing]
        return names


@cache
def load(version: int = CURRENT) -> Definition:
    """Return what the file of a version states."""
    stated = Definition(**read_mapping(resource(FILES[version])))
    if stated.includes is None:
        return stated

    # Its own tasks and data sets come after those of the earlier version
    tasks = load(stated.includes).tasks | stated.tasks
    for name, data in stated.further.items():
        tasks[name] = tasks[name].model_copy(update={"data": tasks[name].data | data})
    return stated.model_copy(update={"tasks": tasks})
