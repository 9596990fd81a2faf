"""What is wrong with a folder of `results/board/submitted`, in sentences."""

import re
from pathlib import Path

from actlab.analysis import board
from actlab.analysis.scoreboard import TABLE, Table
from actlab.analysis.statistics import median
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
            stored = read_json(resource(f"results/{entry['table']}") / TABLE, Table, "")
            seeds = load(of_task["study"]).stages[-1].seeds
            if data not in of_task["data"]:
                seeds = board.seeds_of(of_task, data)
            table = read_json(file, Table, "")
            found += [f"{task}, {data}: {what}" for what in _faults(table, stored, list(seeds), text)]
    return found


def _names_of_the_board() -> set[str]:
    names = set()
    for of_task in board.board_file()["tasks"].values():
        for entry in board.data_of(of_task).values():
            stored = read_json(resource(f"results/{entry['table']}") / TABLE, Table, "")
            names |= {str(row["point"].get(stored["compare"])) for row in stored["rows"]}
    return names


def _faults(table: Table, stored: Table, seeds: list[int], digest: str) -> list[str]:
    """Return what is wrong with a table beside the one of the board, which has the reference's rows."""
    found = []
    if digest and digest not in table["sources"].values():
        found.append("the runs are of other code than the file")
    if table["samples"] or table["cut"]:
        found.append("the runs are not of whole data and length")

    reference = [row for row in stored["rows"] if row["point"].get(stored["compare"]) == stored["reference"]]
    if _points(table["rows"], stored) != _points(reference, stored):
        found.append("the rows are not those of one activation")
    for row in table["rows"]:
        cells = {(cell["metric"], str(cell["at"]), cell["condition"]): cell for cell in row["columns"]}
        for cell in reference[0]["columns"]:
            key = (cell["metric"], str(cell["at"]), cell["condition"])
            if key not in cells:
                found.append(f"no column {key[0]}")
                continue
            found += _faults_of_cell(cells[key], seeds)
    return found


def _faults_of_cell(cell, seeds: list[int]) -> list[str]:
    found = []
    if [int(seed) for seed in cell["values"]] != seeds:
        found.append(f"seeds {', '.join(cell['values'])}, not {seeds}")

    # A run that diverged has no value
    worst = float("-inf") if cell["mode"] == "max" else float("inf")
    values = [worst if value is None else value for value in cell["values"].values()]
    stated = worst if cell["median"] is None else cell["median"]
    if median(values) != stated:
        found.append(f"the median of {cell['metric']} is {median(values)}, not {stated}")
    return found


def _points(rows, stored: Table) -> list[Point]:
    """Return the points of rows without the activation."""
    comparable = board.comparable(rows, stored)
    return [Point(row["point"]).without([stored["compare"]]) for row in comparable]
