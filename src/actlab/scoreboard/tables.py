"""The tables that studies write, ``table.json``, and the tables of the scoreboard's data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actlab.analysis import study_table
from actlab.analysis.study_table import Row, StudyTable
from actlab.config.labels import printer
from actlab.config.values import value_key
from actlab.scoreboard import definition
from actlab.storage.files import DamagedError
from actlab.storage.resources import resource
from actlab.studies.plan import BLOCK

SUBMITTED = "results/scoreboard/submitted"  # tables of users, as ``NAME/TASK/DATA/table.json``

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


def of_scoreboard(user_tables: Mapping[DataName, StudyTable]) -> dict[DataName, StudyTable]:
    """Return the table of each data set: stored rows, rows of submissions, and the user's."""
    tables = {}
    for task_name, task in definition.load().tasks.items():
        for data_name, data_set in task.data.items():
            # Read the stored table and submissions
            file = resource(data_set.table) / study_table.NAME
            table = study_table.read(file, "reinstall actlab")
            rows = [*table.rows, *submitted_rows(task_name, data_name)]
            users: tuple[str, ...] = ()

            # Add the user's rows
            user_table = user_tables.get((task_name, data_name))
            if user_table:
                rows += user_table.rows
                users = user_table.own

            tables[task_name, data_name] = replace(table, rows=comparable(rows, table), own=users)
    return tables


def submitted_rows(task: str, data: str) -> list[Row]:
    """Return the rows of users' submissions on a data set, each under the name of its folder."""
    rows = []
    root = resource(SUBMITTED)
    for file in sorted(root.glob(f"*/{task}/{data}/{study_table.NAME}")):
        table = study_table.read(file, "copy it again from the folder of the runs")
        name = file.relative_to(root).parts[0]
        for row in table.rows:
            rows.append(replace(row, point=row.point | {table.compare: name}))
    return rows


def comparable(rows: Sequence[Row], stored: StudyTable) -> tuple[Row, ...]:
    """Return rows at the points of a stored table, without the key ``block`` of a single block."""
    blocks = {row.point.get(BLOCK) for row in stored.rows}
    if len(blocks) > 1:
        return tuple(rows)
    return tuple(replace(row, point=row.point.without([BLOCK])) for row in rows)
