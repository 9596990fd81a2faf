"""Atomic file writes, and JSON records with a digest that reveals damage."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock, Timeout
from typing_extensions import TypedDict  # before Python 3.12 pydantic rejects typing.TypedDict

from actlab.errors import ActlabError, one_line, reason

Kind = TypeVar("Kind")


class DamagedError(ActlabError):
    """Raised when a file differs from what was written; the message names the file and the remedy."""


class _Logger(TypedDict):
    id: str


HOST = re.sub(r"[^\w-]", "_", socket.gethostname())  # part of names of temporary folders
_PARTIAL = f".*.{HOST}.????????.partial"
_LOGGER = "logger.json"
_LOCK = "lock"  # name of the lock file in a writer's scratch folder
_MAX_DIGITS = 300  # of an integer; a float holds 308


def resolved(path: str) -> Path:
    """Return a path as an absolute path, with ``~`` expanded and links followed.

    Raises:
        ActlabError: if the path is invalid, such as the home of an unknown user.
    """
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ActlabError(f"{path!r} is not a valid path: {one_line(error)}") from error


def at_home(path: str | Path) -> Path:
    """Return a path with a leading ``~`` expanded; unchanged if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def cache_folder(cache_dir: str | None = None) -> Path:
    """Return the cache folder: ``cache_dir``, else ``$ACTLAB_CACHE``, else ``~/.cache/actlab``."""
    return at_home(cache_dir or os.environ.get("ACTLAB_CACHE") or "~/.cache/actlab")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a file or folder; rename it to ``path`` atomically when the block succeeds."""
    with scratch(path.parent, path.name) as folder:
        yield (partial := folder / "content")
        partial.replace(path)


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a hidden temporary folder in ``parent``, and remove it at the end.

    Folders that killed processes of this host left in ``parent`` are removed first. Each process holds a lock
    in its folder, and the kernel releases the lock when the process ends for any reason. A folder of this host
    whose lock is free therefore has no writer, also if the file system does not share locks between hosts.
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
    """Return a new folder and its held lock; retry if a cleanup process locked the folder first."""
    while True:
        folder = parent / f".{name}.{HOST}.{secrets.token_hex(4)}.partial"
        folder.mkdir()
        with suppress(FileNotFoundError):
            if lock := _lock(folder):
                return folder, lock


def _lock(folder: Path) -> FileLock | None:
    """Acquire the lock of a scratch folder; return None if another process holds or removed it."""
    lock = FileLock(folder / _LOCK, timeout=0)
    with suppress(Timeout):
        lock.acquire()
        if (folder / _LOCK).exists():
            return lock
        lock.release()
    return None


def is_abandoned(folder: Path) -> bool:
    """Return whether a temporary folder of `scratch` belongs to a process of this host that has ended."""
    if not folder.match(_PARTIAL):
        return False
    with suppress(OSError):  # removed meanwhile, or owned by another user
        if lock := _lock(folder):
            lock.release()
            return True
    return False


def _remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders whose processes have ended."""
    for folder in parent.glob(f"{_PARTIAL}/"):
        with suppress(OSError):  # removed meanwhile, or owned by another user
            if lock := _lock(folder):
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically, a text as UTF-8: a kill leaves either the old or the new content."""
    with replacing(path) as partial:
        if isinstance(content, bytes):
            partial.write_bytes(content)
        else:
            partial.write_text(content, encoding="utf-8")


def write_sealed(path: Path, content: Any) -> None:
    """Write nested values as JSON together with a digest, by which `read_json` detects damage."""
    plain = json.loads(json.dumps(content, default=str, ensure_ascii=False).encode(errors="replace"))
    entries = plain if isinstance(plain, dict) else {"content": plain}
    write_atomically(path, json.dumps({"digest": _digest(entries), **entries}, indent=1) + "\n")


def update_sealed(path: Path, entries: Mapping[str, Any], remedy: str) -> None:
    """Add entries to a JSON file of `write_sealed`, or replace them; nothing is written without entries.

    Raises:
        DamagedError: if the file is damaged.
    """
    if entries:
        write_sealed(path, {**(read_json(path, dict[str, Any], remedy) if path.exists() else {}), **entries})


def regular(path: Path) -> Path:
    """Return the path unchanged if it is a regular file, after following links.

    A pipe or device may never end, so it must not be opened as data, record or result. Every reader of such
    files wraps its path in this function; a test enforces it.

    Raises:
        OSError: if the path does not exist or is not a regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def read_json(path: Path, kind: type[Kind], remedy: str) -> Kind:
    """Return the type-checked values of a JSON file, with or without a digest of `write_sealed`.

    All JSON records are read by this function. Entries that ``kind`` does not declare are kept, so that actlab
    can read files of other versions.

    Args:
        path: path of the file.
        kind: expected type, such as a ``TypedDict`` or a list of them.
        remedy: what to do about a damaged file, for the error message.

    Raises:
        DamagedError: if the file cannot be read, does not match its digest or holds values of other types.
    """
    try:
        found = _unseal(parsed(regular(path).read_text(encoding="utf-8")))
        return checked(found, kind)
    except (ValueError, OSError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({reason(error)}): {remedy}") from error


def _unseal(found: Any) -> Any:
    """Check and remove the digest of `write_sealed`; return values without a digest unchanged."""
    if not isinstance(found, dict) or "digest" not in found:
        return found
    if found.pop("digest") != _digest(found):
        raise ValueError("its content does not match its digest")
    return found["content"] if found.keys() == {"content"} else found


def parsed(text: str) -> Any:
    """Return the values in a JSON text.

    Raises:
        ValueError: if the text is not JSON, holds an integer beyond the range of floats, or holds half a
            surrogate pair, which cannot be written to a file.
        RecursionError: if the values are nested too deep.
    """
    found = json.loads(text, parse_int=_parse_int)
    if "\\ud" in text.lower():
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer with {len(digits)} digits, more than {_MAX_DIGITS}")
    return int(digits)


def checked(found: Any, kind: type[Kind]) -> Kind:
    """Return plain values unchanged after checking that they have the type ``kind``.

    Raises:
        ValueError: for the first value of another type, with its position, the value and the expected type.
    """
    from pydantic import ValidationError  # takes 0.1 s to import; not every command reads a record

    try:
        _type_adapter(cast(Any, kind)).validate_python(found, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"]) or "the whole"
        given = "" if first["type"] == "missing" else f", not {repr(first['input'])[:60]}"
        raise ValueError(f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}{given}") from error
    return found  # type: ignore[no-any-return]


@lru_cache
def _type_adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def id_in(folder: Path) -> str:
    """Return the id of a folder's run for loggers; create and store it on first use.

    Raises:
        DamagedError: if ``logger.json`` is damaged.
    """
    path = folder / _LOGGER
    if not path.exists():
        write_sealed(path, {"id": secrets.token_hex(8)})
    return read_json(path, _Logger, "delete it; loggers then start a new history")["id"]


def has_id(folder: Path) -> bool:
    """Return whether a folder's run has an id, and so has been logged."""
    return (folder / _LOGGER).exists()


def forget_id(folder: Path) -> None:
    """Delete the id of a folder's run, so that loggers start a new run."""
    (folder / _LOGGER).unlink(missing_ok=True)


def is_whole(path: Path, digest: str) -> bool:
    """Return whether a file can be read and its bytes have a SHA-256 digest."""
    try:
        return digest_of(path) == digest
    except OSError:
        return False


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file's bytes."""
    with regular(path).open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
