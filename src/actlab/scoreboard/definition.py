"""The tasks and data sets of the scoreboard, as ``configs/scoreboard.yaml`` states them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import Field

from actlab.storage.mappings import read_mapping
from actlab.storage.resources import resource
from actlab.studies.schema import Part

FILE = "configs/scoreboard.yaml"


class DataSet(Part):
    """A data set of a task: the stored table, and what trains a further activation on it."""

    table: str  # folder of the stored table
    file: str = ""  # in the user's folder of data; empty if the task needs none
    sha256: str = ""  # of this file, if it is a text
    # Digest of its decoded pictures, see `actlab.checks.data_digests`.
    content: str = ""
    chance: float | None = None  # value at chance level, unless the stored table has it
    seeds: str = ""  # of a further data set; the first one has the seeds of the study
    set: dict[str, Any] = Field(default={})  # config keys of a further data set

    def settings(self, folder: Path | None) -> dict[str, Any]:
        """Return the config keys that train on it, with its file in a folder; None for samples."""
        if folder and self.file:
            return {**self.set, "data.dataset": str(folder / self.file)}
        return self.set


class Task(Part):
    """A task. Its study selects settings on the first data set; the others keep these settings."""

    title: str
    study: str
    data: Annotated[dict[str, DataSet], MinLen(1)]
    points_are_data: bool = False  # whether the points of a table count as data sets


class Definition(Part):
    """The contents of `FILE`."""

    reference: str  # activation with which the others are compared
    equivalence: float  # ratio up to which activations count as practically equal
    # A run that gains less of the way from chance to the best activation has failed
    least_gain: float
    tasks: dict[str, Task]


@cache
def load() -> Definition:
    """Return what `FILE` states."""
    return Definition(**read_mapping(resource(FILE)))
