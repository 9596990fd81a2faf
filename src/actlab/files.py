"""Files that a kill at any moment leaves whole, and whose damage shows: written beside, sealed, renamed."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from actlab.errors import ActlabError, one_line


class DamagedError(ActlabError):
    """A file is not what was written to it; the message names it and the remedy."""


_LOGGER = "logger.json"
_LOCK = "lock"  # in the folder of a writer


def resolved(path: str) -> Path:
    """A path made absolute.

    Raises:
        ActlabError: for one that cannot be, such as the home of an unknown user.
    """
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ActlabError(f"{path!r} is no path of a file: {one_line(error)}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a file or folder to, which becomes ``path`` in one step when the block succeeds."""
    with scratch(path.parent, path.name) as folder:
        yield (partial := folder / "content")
        partial.replace(path)


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """A hidden folder in ``parent`` for what is being written; it is removed at the end.

    What killed writers have left in ``parent`` is removed first. A writer holds a lock in its folder, which the
    kernel releases when the process ends, however it ends, so a folder whose lock is free has no writer: on no
    host and in no container that shares the file system.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(parent)
    folder, lock = _locked_folder(parent, name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _locked_folder(parent: Path, name: str) -> tuple[Path, FileLock]:
    """A new folder with its lock; another one where a cleaner was faster to lock the first."""
    while True:
        folder = parent / f".{name}.{secrets.token_hex(4)}.partial"
        folder.mkdir()
        with suppress(FileNotFoundError):
            if lock := _lock(folder):
                return folder, lock


def _lock(folder: Path) -> FileLock | None:
    """The lock of a writer's folder, held; None where another process holds it or has removed it."""
    lock = FileLock(folder / _LOCK, timeout=0)
    with suppress(Timeout):
        lock.acquire()
        if (folder / _LOCK).exists():
            return lock
        lock.release()
    return None


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of `scratch` whose writers have ended."""
    for folder in parent.glob(".*.partial/"):
        with suppress(OSError):  # removed meanwhile, or of another user
            if lock := _lock(folder):
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def write_atomically(path: Path, text: str) -> None:
    """Replace a text file in one step, so that a kill leaves the old or the new one."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_sealed(path: Path, content: Any) -> None:
    """Write nested values as JSON with a digest of them, by which `read_sealed` knows damage."""
    plain = json.loads(json.dumps(content, default=str))
    entries = plain if isinstance(plain, dict) else {"content": plain}
    write_atomically(path, json.dumps({"digest": _digest(entries), **entries}, indent=1) + "\n")


def read_sealed(path: Path, remedy: str, keys: Iterable[str] | None = None) -> Any:
    """The values in a file of `write_sealed`.

    Args:
        path: of the file; one without a digest is read as it is.
        remedy: what to do when it is damaged.
        keys: that a mapping must have; None where they are a list, or are looked at by the caller.

    Raises:
        DamagedError: when it cannot be read or is not what was written.
    """
    found = _read_json(path, remedy)
    if isinstance(found, dict) and "digest" in found:
        sealed = found.pop("digest")
        if sealed != _digest(found):
            raise DamagedError(f"{path} is damaged (it is not what was written): {remedy}")
        found = found["content"] if found.keys() == {"content"} else found
    if keys is not None and not (isinstance(found, dict) and found.keys() >= set(keys)):
        raise DamagedError(f"{path} is damaged (it lacks {', '.join(keys)}): {remedy}")
    return found


def _read_json(path: Path, remedy: str) -> Any:
    """The values in a JSON file."""
    try:
        if not is_regular(path):
            raise OSError("it is no regular file")
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({one_line(error, 100)}): {remedy}") from error


def is_regular(path: Path) -> bool:
    """Whether a path is of a file that ends when it is read, which a pipe need not, or of nothing."""
    return path.is_file() or not path.exists()


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def id_in(folder: Path) -> str:
    """The id by which loggers know the run of a folder, made once.

    Raises:
        DamagedError: when the file that holds it is damaged.
    """
    path = folder / _LOGGER
    if not path.exists():
        write_sealed(path, {"id": secrets.token_hex(8)})
    return str(read_sealed(path, "delete it; loggers then begin a new history", ["id"])["id"])


def forget_id(folder: Path) -> None:
    """Let what is logged of a folder's run from now on be another run."""
    (folder / _LOGGER).unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
