"""An activation and its values on the board's tasks as files that a pull request adds; the check of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actlab.analysis import board
from actlab.analysis.board import DataSet, Submission
from actlab.analysis.scoreboard import TABLE, KeptCell, KeptRow, Table
from actlab.analysis.statistics import median
from actlab.errors import ActlabError, unknown
from actlab.storage import contents
from actlab.storage.files import read_json, regular, write_json
from actlab.storage.resources import resource
from actlab.studies.points import Point
from actlab.studies.reading import load

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_SPDX = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def check_request(folder: Path, activations: list[Any], licence: str | None) -> None:
    """Raise an ActlabError before training for what cannot be submitted."""
    if licence is None or not _SPDX.fullmatch(licence):
        raise ActlabError(
            f"--licence {licence}: give the SPDX name of the licence of your code, such as Apache-2.0"
        )
    if len(activations) != 1:
        raise ActlabError(f"--submit with {len(activations)} activations: give one --activation")
    text = _text(activations[0])
    if ":" in text and not _file(text):
        raise ActlabError(f"--submit of {text}: give a file of your own, ./file.py:Name, which can import it")
    if len(files := contents.code_files(text, False)) > 1:
        others = ", ".join(file.name for file in files[1:])
        raise ActlabError(f"--submit of {text}, which imports {others}: put all of it into one file")
    if folder.exists() and any(folder.iterdir()):
        raise ActlabError(f"--submit {folder}: it has files already; give a new folder, or delete them")
    _check_name(folder.name)


def write(folder: Path, activation: Any, licence: str, tables: Mapping[tuple[str, str], Table]) -> None:
    """Write a submission into a new folder, and check it."""
    text, by_task = _text(activation), dict[str, dict[str, Table]]()
    for (task, data), table in tables.items():
        by_task.setdefault(task, {})[data] = table
    digest = ""
    folder.mkdir(parents=True, exist_ok=True)
    if file := _file(text):
        digest = contents.content_of(text, False) or ""
        shutil.copy(regular(file), folder / file.name)
        text = f"{file.name}:{text.rpartition(':')[2]}"
    shown = {**activation, "name": text} if isinstance(activation, Mapping) else text
    content = Submission(activation=shown, code=digest, licence=licence, tables=by_task)
    write_json(folder / board.SUBMISSION, content)
    check(folder)


def check(folder: Path) -> None:
    """Raise an ActlabError for a submission that does not follow the board's protocol, or contradicts itself.

    Checked are name and licence, that the file is that of the runs, and of each table the points, seeds and
    columns, that no run is missing, and the medians, from the values.
    """
    submission = board.submission(folder)
    text = _text(submission["activation"])
    _check_name(folder.name)
    if not _SPDX.fullmatch(submission["licence"]):
        raise _wrong(folder, f"licence {submission['licence']!r} is not of the SPDX list's form")
    if file := _file(text):
        digest = contents.content_of(f"{folder / file.name}:{text.rpartition(':')[2]}", False)
        if digest is None or digest != submission["code"]:
            raise _wrong(folder, f"{file.name} is not the code of the runs")
    if not submission["tables"]:
        raise _wrong(folder, "it has no table")
    tasks = board.board_file()["tasks"]
    for task, by_data in submission["tables"].items():
        if task not in tasks:
            raise unknown("task", task, tasks)
        for data, table in by_data.items():
            of = tasks[task]
            if data not in (known := board.data_of(of)):
                raise unknown("data set", data, known)
            seeds = load(of["study"]).stages[-1].seeds if data in of["data"] else board.seeds_of(of, data)
            _check_table(folder, f"{task}, {data}", table, submission["code"], _kept(known[data]), [*seeds])


def _kept(data: DataSet) -> Table:
    return read_json(resource(str(Path("results", data["table"]))) / TABLE, Table, "reinstall actlab")


def _check_table(folder: Path, name: str, table: Table, digest: str, kept: Table, seeds: list[int]) -> None:
    if digest and digest not in table.get("sources", {}).values():
        raise _wrong(folder, f"{name}: its runs are of other code than the file")
    if table["samples"] or table["cut"]:
        raise _wrong(folder, f"{name}: its runs are not of whole data and length")
    theirs = [row for row in kept["rows"] if row["point"].get(kept["compare"]) == kept["reference"]]
    if table["compare"] != kept["compare"] or _points(table["rows"], kept) != _points(theirs, kept):
        raise _wrong(folder, f"{name}: its rows are not those of one activation on the board")
    for row in table["rows"]:
        cells = {_column(cell): cell for cell in row["columns"]}  # an activation may learn more of them
        for column in map(_column, theirs[0]["columns"]):
            if (cell := cells.get(column)) is None:
                raise _wrong(folder, f"{name}: it has no column {' '.join(column)}")
            if [*map(int, cell["values"])] != seeds:
                raise _wrong(folder, f"{name}: seeds {', '.join(cell['values'])}, not {seeds}")
            lost = float("-inf" if cell["mode"] == "max" else "inf")
            middle = median([lost if value is None else value for value in cell["values"].values()])
            if middle != (lost if cell["median"] is None else cell["median"]):
                raise _wrong(folder, f"{name}: the median of {column[0]} is {middle:g}, not {cell['median']}")


def _column(cell: KeptCell) -> tuple[str, str, str]:
    return cell["metric"], str(cell["at"]), cell["condition"]


def _points(rows: Sequence[KeptRow], kept: Table) -> list[Point]:
    """Return what rows are of, but for the activation."""
    return [Point(row["point"]).without([kept["compare"]]) for row in board.comparable(rows, kept)]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        form = "give a letter, then up to 39 of A-Z a-z 0-9 _ . -"
        raise ActlabError(f"submission {name!r}: its folder names it on the board; {form}")
    tasks = board.board_file()["tasks"].values()
    kept = (_kept(data) for task in tasks for data in board.data_of(task).values())
    if any(row["point"].get(table["compare"]) == name for table in kept for row in table["rows"]):
        raise ActlabError(f"submission {name!r}: the board has an activation of this name; give another")


def _text(activation: Any) -> str:
    return str(activation["name"] if isinstance(activation, Mapping) else activation)


def _file(text: str) -> Path | None:
    head = text.rpartition(":")[0]
    return Path(head) if head.endswith(".py") else None


def _wrong(folder: Path, what: str) -> ActlabError:
    return ActlabError(f"submission {folder.name}: {what}; write it again by actlab scoreboard --submit")
