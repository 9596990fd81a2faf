"""Files that are written atomically, and read only if they are regular."""

from __future__ import annotations

import errno
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from actlab.errors import ActlabError

_LONGEST_WRITE = 3600.0  # seconds


class DamagedError(ActlabError):
    """Raised when a file differs from what was written; the message names file and remedy."""


def regular(path: Path) -> Path:
    """Return the path unchanged if it is a regular file, after following links.

    A pipe or device may never end. Every reader of files wraps its path in this function; a test
    enforces it.

    Raises:
        OSError: if the path does not exist or is not a regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file; rename it to ``path`` atomically when the block succeeds."""
    with temporary(path.parent, path.name) as partial:
        yield partial
        partial.replace(path)


@contextmanager
def temporary(parent: Path, name: str, folder: bool = False) -> Iterator[Path]:
    """Yield a new hidden file or folder in ``parent``; remove it at the end. A kill leaves it."""
    parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that a rename stays within a file system; several processes
    # may write at once
    path = parent / f".{name}.{secrets.token_hex(4)}.partial"
    if folder:
        path.mkdir()
    else:
        path.touch(exist_ok=False)
    try:
        yield path
    finally:
        remove(path)


def leftovers(folder: Path) -> Iterator[Path]:
    """Yield the temporary files and folders below a folder that nothing has changed for an hour."""
    for path in sorted(folder.rglob(".*.partial")):
        with suppress(FileNotFoundError):  # removed meanwhile
            if time.time() - path.stat().st_mtime > _LONGEST_WRITE:
                yield path


def remove(path: Path) -> None:
    """Delete a file, or a folder with all it holds, if it exists and may be deleted."""
    # A link is deleted, not what it names
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically, a text as UTF-8: a kill leaves either the old or the new content."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as partial:
        partial.write_bytes(content)
