"""The tables that studies write, ``table.json``, and the tables of the scoreboard's data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from actlab.analysis import study_table
from actlab.analysis.study_table import Row, StudyTable
from actlab.config.labels import printer
from actlab.config.values import value_key
from actlab.scoreboard import selections
from actlab.scoreboard.definition import DataSet, Definition
from actlab.storage.files import DamagedError
from actlab.storage.resources import resource
from actlab.studies.plan import BLOCK
from actlab.studies.points import Point
from actlab.studies.reading import load

# Tables of users, as ``NAME/TASK/DATA/table.json``; the runs that selected settings beside them.
SUBMITTED = "results/scoreboard/submitted"

DataName = tuple[str, str]  # task and data set


@dataclass(frozen=True)
class StoredTable:
    """The most recently written table of a study."""

    folder: Path  # of the study
    table: StudyTable


@dataclass(frozen=True)
class Tables:
    """The readable tables of several studies, and a line with the remedy for each damaged one."""

    records: list[StoredTable]
    left_out: list[str]


def read(runs: Path) -> Tables:
    """Read the tables of all studies with a folder in ``runs``, in the order of their names."""
    tables = Tables([], [])
    for file in sorted(runs.glob(f"*/{study_table.NAME}")):
        try:
            tables.records.append(StoredTable(file.parent, study_table.read(file)))
        except DamagedError as error:
            tables.left_out.append(str(error))
    return tables


def labels_of(tables: Iterable[StudyTable]) -> dict[str, str]:
    """Return the label of each compared value by its key, however the tables spell it."""
    spellings: dict[str, Any] = {}
    for table in tables:
        for value in table.values:
            spellings.setdefault(value_key(value), value)
    write = printer(spellings.values())
    return {key: write(value) for key, value in spellings.items()}


@dataclass(frozen=True)
class ScoredTable:
    """The table of a data set, with the rows of all activations."""

    table: StudyTable
    selected_on: str  # data set of the task that selected its settings
    # Variance of the effect over selections of the settings; empty on data that
    # selected none
    variances: Mapping[Point, float]


class _Source(NamedTuple):
    """A table with some of the activations on a data set."""

    table: StudyTable
    # File of the runs that selected its settings; it may be missing.
    selecting: Path | None
    name: str = ""  # that the scoreboard shows, in place of the activation's
    users: tuple[str, ...] = ()  # the user's activations


def of_scoreboard(
    stated: Definition,
    user_tables: Mapping[DataName, StudyTable],
    user_runs: Mapping[DataName, Path],
) -> dict[DataName, ScoredTable]:
    """Return the table of each data set: stored rows, rows of submissions, and the user's.

    Args:
        stated: the version of the scoreboard.
        user_tables: the user's tables.
        user_runs: files of the user's runs that selected settings, by the data set that they used.
    """
    tables = {}
    for task_name, task in stated.with_tables.items():
        for group in task.groups:
            for data_name in group:
                name = (task_name, data_name)
                sources = _sources(
                    name, task.data[data_name], user_tables.get(name), user_runs
                )

                # Only the first data set of a group selects settings
                if data_name != group[0]:
                    sources = [source._replace(selecting=None) for source in sources]
                tables[name] = _merged(sources, group[0], task.study)
    return tables


def _sources(
    name: DataName,
    data_set: DataSet,
    user_table: StudyTable | None,
    user_runs: Mapping[DataName, Path],
) -> list[_Source]:
    """Return the stored table of a data set, the tables of submissions, and the user's."""
    folder = resource(data_set.table)
    stored = study_table.read(folder / study_table.NAME, "reinstall actlab")
    sources = [_Source(stored, folder / selections.FILE), *_submitted(*name)]
    # The user's table comes last
    if user_table:
        runs = user_runs.get(name)
        sources.append(_Source(user_table, runs, users=user_table.own))
    return sources


def _merged(sources: Sequence[_Source], selected_on: str, study: str) -> ScoredTable:
    """Return the rows of all tables of a data set as one table; the first one is the stored."""
    stored = sources[0].table
    users: tuple[str, ...] = ()
    rows: list[Row] = []
    variances: dict[Point, float] = {}
    for source in sources:
        # Read the runs that selected the settings of this table
        users += source.users
        runs = None
        if source.selecting and source.selecting.is_file():
            runs = selections.read(source.selecting, load(study).select)

        # Show a submission under its name
        for row in comparable(source.table.rows, stored):
            source_row = row
            if source.name:
                point = row.point | {stored.compare: source.name}
                source_row = replace(row, point=point)
            rows.append(source_row)
            if runs:
                variances[source_row.point] = runs.variance(row, source.table)
    table = replace(stored, rows=tuple(rows), own=users)
    return ScoredTable(table, selected_on, variances)


def _submitted(task: str, data: str) -> list[_Source]:
    """Return the tables of users' submissions on a data set, each with the name of its folder."""
    sources = []
    root = resource(SUBMITTED)
    for file in sorted(root.glob(f"*/{task}/{data}/{study_table.NAME}")):
        table = study_table.read(file, "copy it again from the folder of the runs")
        name = file.relative_to(root).parts[0]
        sources.append(_Source(table, file.parent / selections.FILE, name))
    return sources


def comparable(rows: Sequence[Row], stored: StudyTable) -> tuple[Row, ...]:
    """Return rows at the points of a stored table, without the key ``block`` of a single block."""
    blocks = {row.point.get(BLOCK) for row in stored.rows}
    if len(blocks) > 1:
        return tuple(rows)
    return tuple(replace(row, point=row.point.without([BLOCK])) for row in rows)
