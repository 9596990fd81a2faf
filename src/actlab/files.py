"""Files that a kill at any moment leaves whole: written beside their place, then renamed into it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PARTIAL = re.compile(r"\..+\.(\d+)\.partial")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; when the block ends well it becomes ``path`` in one step, else it is removed.

    Its name carries the process id, so that two processes never write to one and `remove_partials` knows
    whose it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file in one step, so that a kill leaves the old or the new one."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def remove_partials(folder: Path) -> None:
    """Remove what processes that no longer live have left half-written in a folder."""
    for path in folder.glob(".*.partial"):
        owner = _PARTIAL.fullmatch(path.name)
        if owner is None or not is_alive(int(owner[1])):
            path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Whether a process of this computer lives."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives and is someone else's
        return True
    return True
