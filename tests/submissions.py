"""What is wrong with a folder of `results/scoreboard/submitted`, in sentences."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from actlab.analysis import study_table
from actlab.analysis.statistics import median
from actlab.analysis.study_table import NAME as TABLE
from actlab.analysis.study_table import Cell, Row, StudyTable
from actlab.scoreboard import definition, selections
from actlab.scoreboard.tables import comparable
from actlab.storage import contents
from actlab.storage.json_files import read_json
from actlab.storage.resources import resource
from actlab.studies.points import Point
from actlab.studies.reading import load
from actlab.studies.seeds import seed_list

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
SUBMISSION = "submission.json"
SPDX = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


class Submission(TypedDict):
    """An activation that its author put on the scoreboard, in a folder of its name.

    The folder has the author's file, the table of each data set as ``TASK/DATA/table.json``, and
    the runs that selected settings on a data set as ``TASK/DATA/choose/values.csv``.
    """

    activation: Any  # its value in studies
    code: str  # digest of the file, as its tables have it; empty without a file
    source: str  # who made it: a paper or a person
    licence: str  # an SPDX expression


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a submission, with the place."""
    submission = read_json(folder / SUBMISSION, Submission, "Write it again.")
    found = _faults_of_fields(folder.name, submission)

    # The file is the code of the runs
    name = submission["activation"]
    text = ""
    if isinstance(name, dict):
        name = name["name"]
    if name.rpartition(":")[0].endswith(".py"):
        text = contents.content_of(str(folder / name), False) or ""
        if text != submission["code"]:
            found.append(f"{name} is not the code of the runs")

    # Each data set of the scoreboard has its table, and the runs that selected settings on it
    for task, stated in definition.load().with_tables.items():
        for group in stated.groups:
            if not (folder / task / group[0] / selections.FILE).exists():
                found.append(f"{task}, {group[0]}: no {selections.FILE}")
        for data, data_set in stated.data.items():
            file = folder / task / data / TABLE
            if not file.exists():
                found.append(f"{task}, {data}: no {TABLE}")
                continue
            stored = study_table.read(resource(data_set.table) / TABLE)
            seeds = load(stated.study).stages[-1].seeds
            if data_set.seeds:
                seeds = seed_list(data_set.seeds)
            table = study_table.read(file)
            found += [
                f"{task}, {data}: {what}" for what in _faults(table, stored, list(seeds), text)
            ]
    return found


def _faults_of_fields(name: str, submission: Submission) -> list[str]:
    """Return what is wrong with a submission's name, licence and source."""
    found = []
    if not NAME.fullmatch(name):
        found.append(f"{name} is not a name")
    if name in _names_on_the_scoreboard():
        found.append(f"the scoreboard has an activation called {name}")
    if not SPDX.fullmatch(submission["licence"]):
        found.append(f"licence {submission['licence']!r} is not of SPDX's form")
    if not submission["source"]:
        found.append("no source")
    return found


def _names_on_the_scoreboard() -> set[str]:
    names = set()
    for task in definition.load().with_tables.values():
        for data_set in task.data.values():
            stored = study_table.read(resource(data_set.table) / TABLE)
            names |= {str(row.point.get(stored.compare)) for row in stored.rows}
    return names


def _faults(table: StudyTable, stored: StudyTable, seeds: list[int], digest: str) -> list[str]:
    """Return what is wrong with a table beside the stored one, which has the reference's rows."""
    found = []
    if digest and digest not in table.sources.values():
        found.append("the runs are of other code than the file")
    if table.samples or table.cut:
        found.append("the runs are not of whole data and length")

    reference = [row for row in stored.rows if row.point.get(stored.compare) == stored.reference]
    if _points(table.rows, stored) != _points(reference, stored):
        found.append("the rows are not those of one activation")
    for row in table.rows:
        cells = {cell.key: cell for cell in row.columns}
        for cell in reference[0].columns:
            if cell.key not in cells:
                found.append(f"no column {cell.metric}")
                continue
            found += _faults_of_cell(cells[cell.key], seeds)
    return found


def _faults_of_cell(cell: Cell, seeds: list[int]) -> list[str]:
    found = []
    if [*cell.values] != seeds:
        found.append(f"seeds {', '.join(map(str, cell.values))}, not {seeds}")
    middle = median(cell.values.values())
    if middle != cell.median:
        found.append(f"the median of {cell.metric} is {middle}, not {cell.median}")
    return found


def _points(rows: Sequence[Row], stored: StudyTable) -> list[Point]:
    """Return the points of rows without the activation."""
    return [row.point.without([stored.compare]) for row in comparable(rows, stored)]
