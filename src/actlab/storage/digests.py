"""Digests of files, remembered by path, size and times in the cache folder: large data are read once."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from actlab.storage.files import cache_folder, regular

FILE = "digests.sqlite"
WORTH = 2**24  # bytes: less is read again faster than it is looked up
_SETTLED = 2.0  # seconds since a file was changed: a second change within one tick of its clock would not show
_TABLE = "CREATE TABLE IF NOT EXISTS digests (path TEXT PRIMARY KEY, stamp TEXT, digest TEXT)"


def digests_of(files: Sequence[Path]) -> dict[Path, str]:
    """Digests of the sizes and of all bytes of files.

    Raises:
        OSError: for a file that cannot be read.
    """
    states = {file: file.stat() for file in files}
    stamps = {file: _stamp(state) for file, state in states.items()}
    large = sum(state.st_size for state in states.values()) > WORTH
    known = _recall(stamps) if large else {}
    read = {file: _digest(file, state.st_size) for file, state in states.items() if file not in known}
    if large and read:
        recent = (time.time() - _SETTLED) * 1e9
        settled = [f for f in read if max(states[f].st_mtime_ns, states[f].st_ctime_ns) < recent]
        _remember({file: (stamps[file], read[file]) for file in settled})
    return {**known, **read}


def _stamp(state: os.stat_result) -> str:
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"


def _digest(file: Path, size: int) -> str:
    with regular(file).open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.sha256(str(size).encode())).hexdigest()


def _recall(stamps: Mapping[Path, str]) -> dict[Path, str]:
    """The digests of the files that are as they were; nothing where the database cannot be read."""
    found: dict[Path, str] = {}
    with suppress(sqlite3.Error, OSError, UnicodeError), closing(_database()) as database:
        for file, stamp in stamps.items():
            query = "SELECT digest FROM digests WHERE path = ? AND stamp = ?"
            if row := database.execute(query, (str(file.absolute()), stamp)).fetchone():
                found[file] = row[0]
    return found


def _remember(found: Mapping[Path, tuple[str, str]]) -> None:
    """Keep digests with the stamps of their files; without the database they are computed again."""
    rows = [(str(file.absolute()), *kept) for file, kept in found.items()]
    with suppress(sqlite3.Error, OSError, UnicodeError), closing(_database()) as database, database:
        database.executemany("REPLACE INTO digests VALUES (?, ?, ?)", rows)


def _database() -> sqlite3.Connection:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / FILE, timeout=1)
    database.execute(_TABLE)
    return database
