"""SHA-256 digests of files.

An SQLite database in the cache folder stores the digests of large files, so that each is read once.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from actlab.storage.files import regular
from actlab.storage.paths import cache_folder

FILE = "digests.sqlite"
WORTH = 2**24  # bytes; reading fewer bytes again is faster than a database lookup
# Seconds after the last change of a file before its digest is cached: a second change
# within one tick of the file system's clock would leave the times unchanged.
_SETTLED = 2.0
# The database; its digests are then read from files
_UNUSABLE = (
    sqlite3.Error,
    OSError,
    UnicodeError,
)


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file's bytes."""
    with regular(path).open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests_of(files: Sequence[Path]) -> dict[Path, str]:
    """Return the SHA-256 digest of the size and all bytes of each file."""
    states = {file: file.stat() for file in files}
    # Small files are read faster than stored digests
    if sum(state.st_size for state in states.values()) <= WORTH:
        return {file: _digest(file, state.st_size) for file, state in states.items()}

    # A stored digest counts while the file's stamp is the same
    stamps = {
        file: f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"
        for file, state in states.items()
    }
    digests = _load(stamps)

    # Read the other files
    settled = []
    for file, state in states.items():
        if file in digests:
            continue
        digests[file] = _digest(file, state.st_size)
        if max(state.st_mtime_ns, state.st_ctime_ns) < (time.time() - _SETTLED) * 1e9:
            settled.append((str(file.absolute()), stamps[file], digests[file]))

    # Next time, these digests are read instead of files
    if settled:
        _store(settled)
    return digests


def _digest(file: Path, size: int) -> str:
    with regular(file).open("rb", buffering=0) as stream:
        return hashlib.file_digest(
            stream, lambda: hashlib.sha256(str(size).encode())
        ).hexdigest()


def _load(stamps: Mapping[Path, str]) -> dict[Path, str]:
    digests = {}
    with suppress(*_UNUSABLE), closing(_database()) as database:
        query = "SELECT digest FROM digests WHERE path = ? AND stamp = ?"
        for file, stamp in stamps.items():
            row = database.execute(query, (str(file.absolute()), stamp)).fetchone()
            if row:
                digests[file] = row[0]
    return digests


def _store(rows: Sequence[tuple[str, str, str]]) -> None:
    with suppress(*_UNUSABLE), closing(_database()) as database, database:
        database.executemany("REPLACE INTO digests VALUES (?, ?, ?)", rows)


def _database() -> sqlite3.Connection:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / FILE, timeout=1)
    database.execute(
        "CREATE TABLE IF NOT EXISTS digests (path TEXT PRIMARY KEY, stamp TEXT, digest TEXT)"
    )
    return database
