"""``stacks.json``: which runs of a study are trained together; written once and read by every process."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from actlab.storage.files import read_json, regular, write_json

FILE = "stacks.json"
Threads = Annotated[int, Field(ge=0, le=10_000)]
Name = Annotated[str, Field(pattern="^[0-9a-f]+$")]  # hexadecimal, so that no path leaves the folder


class Stack(TypedDict):
    """An entry of ``stacks.json``. The halves of a stack keep its lock."""

    id: Name
    members: list[str]
    threads: Threads
    lock: NotRequired[Name]


def read(root: Path) -> list[Stack]:
    """Return the stacks in a study's folder.

    Raises:
        DamagedError: if the file is damaged.
    """
    path, remedy = root / FILE, "delete it; finished runs stay, unfinished stacks start from scratch"
    return read_json(path, list[Stack], remedy) if path.exists() else []


def write(root: Path, new: Iterable[Stack], without: Collection[str] = ()) -> None:
    """Add stacks that are not there yet, and delete those with the ids ``without``."""
    known = [entry for entry in read(root) if entry["id"] not in without]
    ids = {entry["id"] for entry in known}
    write_json(root / FILE, [*known, *(entry for entry in new if entry["id"] not in ids)])


def locks(root: Path, runs: Iterable[str]) -> list[str]:
    """Return the names of the locks of some runs: one for a stack, the run's id for a run outside stacks."""
    path = root / FILE
    try:
        with regular(path).open("rb") as file:  # network file systems show the newest version after opening
            found = os.fstat(file.fileno())
    except FileNotFoundError:
        return list(dict.fromkeys(runs))
    known = _locks(root, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return list(dict.fromkeys(known.get(run, run) for run in runs))


@lru_cache(maxsize=4)
def _locks(root: Path, version: tuple[int, ...]) -> dict[str, str]:
    """Return the lock of each run in a stack; ``version`` identifies the content of the file."""
    return {member: entry.get("lock", entry["id"]) for entry in read(root) for member in entry["members"]}
