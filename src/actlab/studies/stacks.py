"""The stacks of a study that have begun: ``stacks/ID/stack.json`` stands beside a stack's checkpoint.

A stack without a checkpoint binds nobody: the next start arranges its runs. A stack that was split names its
parts, halves or runs alone, which start from scratch; its checkpoint is deleted.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from actlab.storage.files import DamagedError, read_json, write_json

FOLDER, FILE, CHECKPOINT = "stacks", "stack.json", "last.ckpt"
Threads = Annotated[int, Field(ge=0, le=10_000)]


class _Stored(TypedDict):
    members: list[str]
    threads: Threads
    parts: NotRequired[list[list[str]]]


class Stack(NamedTuple):
    """A stack that has begun."""

    folder: Path
    members: list[str]  # ids of its runs, in the order of the run axis
    threads: int  # of torch
    parts: list[list[str]]  # ids of the runs that are trained together instead, if the stack was split


def id_of(members: Iterable[str]) -> str:
    """Return the id of a stack, which names its folder: a digest of its runs' ids."""
    return hashlib.sha256("\n".join(members).encode()).hexdigest()[:12]


def begun(root: Path) -> list[Stack]:
    """Return the stacks that have a checkpoint or were split; a `DamagedError` if a record is damaged."""
    known = []
    for path in sorted((root / FOLDER).glob(f"[!.]*/{FILE}")):
        remedy = f"delete {path.parent}; its runs start from scratch"
        record = read_json(path, _Stored, remedy)
        members, parts = record["members"], record.get("parts", [])
        if id_of(members) != path.parent.name or not {*itertools.chain(*parts)} <= {*members}:
            raise DamagedError(f"{path} is damaged (it has runs that its folder is not named after): {remedy}")
        if parts or (path.parent / CHECKPOINT).exists():
            known.append(Stack(path.parent, members, record["threads"], parts))
    return known


def begin(folder: Path, members: Sequence[str], threads: int) -> None:
    """Write the record of a stack before its first checkpoint."""
    write_json(folder / FILE, {"members": [*members], "threads": threads})


def split(folder: Path, parts: Sequence[Sequence[str]]) -> None:
    """Replace a stack by its parts, in one step."""
    record = read_json(folder / FILE, _Stored, f"delete {folder}; its runs start from scratch")
    write_json(folder / FILE, {**record, "parts": [[*part] for part in parts]})


def end(root: Path, finished: Iterable[str]) -> None:
    """Delete what is left of the stacks all of whose runs are among ``finished``."""
    done = {*finished}
    for path in (root / FOLDER).glob(f"[!.]*/{FILE}"):
        if done.issuperset(read_json(path, _Stored, "delete it")["members"]):
            shutil.rmtree(path.parent, ignore_errors=True)
