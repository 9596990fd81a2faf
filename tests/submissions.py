"""What is wrong with a folder of `results/board/submitted`, in sentences."""

import re
from collections.abc import Sequence
from pathlib import Path

from actlab.analysis import board, study_table
from actlab.analysis.statistics import median
from actlab.analysis.study_table import NAME as TABLE
from actlab.analysis.study_table import Cell, Row, StudyTable
from actlab.storage import contents
from actlab.storage.files import read_json
from actlab.storage.resources import resource
from actlab.studies.points import Point
from actlab.studies.reading import load

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
SPDX = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a submission, with the place."""
    submission = read_json(folder / board.SUBMISSION, board.Submission, "write it again")
    found = []
    if not NAME.fullmatch(folder.name):
        found.append(f"{folder.name} is not a name")
    if folder.name in _names_of_the_board():
        found.append(f"the board has an activation called {folder.name}")
    if not SPDX.fullmatch(submission["licence"]):
        found.append(f"licence {submission['licence']!r} is not of SPDX's form")
    if not submission["source"]:
        found.append("no source")

    # The file is the code of the runs
    name, text = submission["activation"], ""
    if isinstance(name, dict):
        name = name["name"]
    if name.rpartition(":")[0].endswith(".py"):
        text = contents.content_of(str(folder / name), False) or ""
        if text != submission["code"]:
            found.append(f"{name} is not the code of the runs")

    # Each data set of the board has its table
    for task, of_task in board.board_file()["tasks"].items():
        for data, entry in board.data_of(of_task).items():
            file = folder / task / data / TABLE
            if not file.exists():
                found.append(f"{task}, {data}: no {TABLE}")
                continue
            stored = study_table.read(resource(f"results/{entry['table']}") / TABLE)
            seeds = load(of_task["study"]).stages[-1].seeds
            if data not in of_task["data"]:
                seeds = board.seeds_of(of_task, data)
            table = study_table.read(file)
            found += [f"{task}, {data}: {what}" for what in _faults(table, stored, list(seeds), text)]
    return found


def _names_of_the_board() -> set[str]:
    names = set()
    for of_task in board.board_file()["tasks"].values():
        for entry in board.data_of(of_task).values():
            stored = study_table.read(resource(f"results/{entry['table']}") / TABLE)
            names |= {str(row.point.get(stored.compare)) for row in stored.rows}
    return names


def _faults(table: StudyTable, stored: StudyTable, seeds: list[int], digest: str) -> list[str]:
    """Return what is wrong with a table beside the one of the board, which has the reference's rows."""
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
    comparable = board.comparable(rows, stored)
    return [row.point.without([stored.compare]) for row in comparable]
