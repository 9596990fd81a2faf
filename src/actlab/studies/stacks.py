"""The stacks of a study that have begun.

``stacks/ID/members.json`` is stored next to the checkpoint of a stack.

Members share a checkpoint, so a stack that has begun keeps them. No other run is bound to a stack:
each start packs the rest again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from typing_extensions import TypedDict

from actlab.storage.files import DamagedError
from actlab.storage.json_files import read_json, write_json

# Not the names that earlier versions used, whose checkpoints have the digits of other
# stacks.
FOLDER, FILE, CHECKPOINT = "stacks", "members.json", "stack.ckpt"


class _Stored(TypedDict):
    members: list[str]


class Stack(NamedTuple):
    """A stack that has begun."""

    folder: Path
    members: list[str]  # ids of its runs, in the order of the run axis


def id_of(members: Iterable[str]) -> str:
    """Return the id of a stack, which names its folder: a digest of its runs' ids."""
    # The order counts: a member's index on the run axis is in the checkpoint
    text = "\n".join(members)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


def begun(root: Path) -> list[Stack]:
    """Return the stacks that have a checkpoint; a `DamagedError` if a record is damaged."""
    stacks = []
    for path in sorted(_records(root)):
        # The record, whose runs name the folder
        remedy = f"Delete {path.parent}. Its runs then start from scratch."
        record = read_json(path, _Stored, remedy)
        if id_of(record["members"]) != path.parent.name:
            raise DamagedError(
                f"{path} is damaged (it has runs that its folder is not named after). {remedy}"
            )

        if (path.parent / CHECKPOINT).exists():
            stacks.append(Stack(path.parent, record["members"]))
    return stacks


def _records(root: Path) -> Iterator[Path]:
    return (root / FOLDER).glob(f"[!.]*/{FILE}")


def begin(folder: Path, members: Sequence[str]) -> None:
    """Write the record of a stack before its first checkpoint."""
    write_json(folder / FILE, {"members": [*members]})


def end(root: Path, finished: Iterable[str]) -> None:
    """Delete the stacks whose runs are all among ``finished``."""
    finished_ids = {*finished}
    for path in _records(root):
        members = read_json(path, _Stored, "Delete it.")["members"]
        if finished_ids.issuperset(members):
            # A stack that another process deletes meanwhile is gone, too
            shutil.rmtree(path.parent, ignore_errors=True)
