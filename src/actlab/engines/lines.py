"""Files of JSON lines that a run appends to while it trains.

A line is an array whose last element is the checksum of the others and of the run's id, so that a line which is
damaged, or of another run, is found.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from actlab.files import DamagedError, checked, parsed, regular, write_atomically

Entry = TypeVar("Entry")


def append(path: Path, run: str, entries: Iterable[Sequence[Any]]) -> None:
    """Add entries of a run, by its id."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(_line(run, entry) for entry in entries)


def rewrite(path: Path, run: str, entries: Iterable[Sequence[Any]]) -> None:
    """Replace the file by these entries of a run."""
    write_atomically(path, "".join(_line(run, entry) for entry in entries))


def read(path: Path, run: str, kind: type[Entry], remedy: str) -> list[Entry]:
    """The entries of a run; a last line that a kill cut short is left out.

    Args:
        path: the file.
        run: the run's id.
        kind: of an entry, a tuple.
        remedy: what the error tells to do.

    Raises:
        DamagedError: for a line that is not what was written.
    """
    try:
        *lines, _ = regular(path).read_bytes().split(b"\n")
    except OSError as error:
        raise DamagedError(f"{path} is damaged ({error.strerror}): {remedy}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            *entry, checksum = parsed(line.decode())
            found.append(checked(tuple(entry), kind))
            whole = checksum == _checksum(run, entry)
        except (ValueError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise DamagedError(f"{path} is damaged in line {number}: {remedy}")
    return found


def _line(run: str, entry: Sequence[Any]) -> str:
    return json.dumps([*entry, _checksum(run, entry)]) + "\n"


def _checksum(run: str, entry: Sequence[Any]) -> str:
    return f"{zlib.crc32(json.dumps([run, *entry]).encode()):08x}"
