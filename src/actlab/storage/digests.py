"""SHA-256 digests of files, cached in an SQLite database in the cache folder.

The cache key is the path with size, times and inode, so large files are read only once.
"""

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
WORTH = 2**24  # bytes; reading fewer bytes again is faster than a database lookup
# Seconds after the last change of a file before its digest is cached: a second change within one tick of the
# file system's clock would leave the times unchanged.
_SETTLED = 2.0
_TABLE = "CREATE TABLE IF NOT EXISTS digests (path TEXT PRIMARY KEY, stamp TEXT, digest TEXT)"


def digests_of(files: Sequence[Path]) -> dict[Path, str]:
    """Return the SHA-256 digest of the size and all bytes of each file."""
    states = {file: file.stat() for file in files}
    stamps = {file: _stamp(state) for file, state in states.items()}
    large = sum(state.st_size for state in states.values()) > WORTH
    known = _load(stamps) if large else {}
    read = {file: _digest(file, state.st_size) for file, state in states.items() if file not in known}
    if large and read:
        recent = (time.time() - _SETTLED) * 1e9
        settled = [f for f in read if max(states[f].st_mtime_ns, states[f].st_ctime_ns) < recent]
        _store({file: (stamps[file], read[file]) for file in settled})
    return {**known, **read}


def _stamp(state: os.stat_result) -> str:
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"


def _digest(file: Path, size: int) -> str:
    with regular(file).open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.sha256(str(size).encode())).hexdigest()


def _load(stamps: Mapping[Path, str]) -> dict[Path, str]:
    """Return the cached digests of unchanged files; empty if the database cannot be read."""
    found: dict[Path, str] = {}
    with suppress(sqlite3.Error, OSError, UnicodeError), closing(_database()) as database:
        for file, stamp in stamps.items():
            query = "SELECT digest FROM digests WHERE path = ? AND stamp = ?"
            if row := database.execute(query, (str(file.absolute()), stamp)).fetchone():
                found[file] = row[0]
    return found


def _store(found: Mapping[Path, tuple[str, str]]) -> None:
    """Store digests with the stamps of their files; do nothing if the database cannot be written."""
    rows = [(str(file.absolute()), *kept) for file, kept in found.items()]
    with suppress(sqlite3.Error, OSError, UnicodeError), closing(_database()) as database, database:
        database.executemany("REPLACE INTO digests VALUES (?, ?, ?)", rows)


def _database() -> sqlite3.Connection:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / FILE, timeout=1)
    database.execute(_TABLE)
    return database
