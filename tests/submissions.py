"""What is wrong with a folder of `results/scoreboard/submitted`, in sentences."""

import re
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from actlab.analysis.statistics import median
from actlab.scoreboard import definition
from actlab.scoreboard.tables import TABLE, Table, comparable
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

    The folder has the author's file, and the table of each data set as ``TASK/DATA/table.json``.
    """

    activation: Any  # its value in studies
    code: str  # digest of the file, as its tables have it; empty without a file
    source: str  # who made it: a paper or a person
    licence: str  # an SPDX expression


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a submission, with the place."""
    submission = read_json(folder / SUBMISSION, Submission, "write it again")
    found = []
    if not NAME.fullmatch(folder.name):
        found.append(f"{folder.name} is not a name")
    if folder.name in _names_on_the_scoreboard():
        found.append(f"the scoreboard has an activation called {folder.name}")
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

    # Each data set of the scoreboard has its table
    for task, stated in definition.load().tasks.items():
        for data, data_set in stated.data.items():
            file = folder / task / data / TABLE
            if not file.exists():
                found.append(f"{task}, {data}: no {TABLE}")
                continue
            stored = read_json(resource(data_set.table) / TABLE, Table, "")
            seeds = load(stated.study).stages[-1].seeds
            if data_set.seeds:
                seeds = seed_list(data_set.seeds)
            table = read_json(file, Table, "")
            found += [f"{task}, {data}: {what}" for what in _faults(table, stored, list(seeds), text)]
    return found


def _names_on_the_scoreboard() -> set[str]:
    names = set()
    for task in definition.load().tasks.values():
        for data_set in task.data.values():
            stored = read_json(resource(data_set.table) / TABLE, Table, "")
            names |= {str(row["point"].get(stored["compare"])) for row in stored["rows"]}
    return names


def _faults(table: Table, stored: Table, seeds: list[int], digest: str) -> list[str]:
    """Return what is wrong with a table beside the stored one, which has the reference's rows."""
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
    compared = comparable(rows, stored)
    return [Point(row["point"]).without([stored["compare"]]) for row in compared]
