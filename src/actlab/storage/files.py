"""Files that a kill at any moment leaves whole, and whose damage shows: written beside, sealed, renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock, Timeout
from typing_extensions import TypedDict  # below Python 3.12 pydantic does not read that of typing

from actlab.errors import ActlabError, one_line

Kind = TypeVar("Kind")


class DamagedError(ActlabError):
    """A file is not what was written to it; the message names it and the remedy."""


class _Logger(TypedDict):
    id: str


_LOGGER = "logger.json"
_LOCK = "lock"  # in the folder of a writer
_MOST_DIGITS = 300  # of a whole number: a float holds 308


def resolved(path: str) -> Path:
    """A path made absolute.

    Raises:
        ActlabError: for one that cannot be, such as the home of an unknown user.
    """
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ActlabError(f"{path!r} is no path of a file: {one_line(error)}") from error


def at_home(path: str | Path) -> Path:
    """A path with a leading ``~`` as the user's own folder; as it is where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def cache_folder(cache_dir: str | None = None) -> Path:
    """Where is kept what took time to make: ``cache_dir``, else ``$ACTLAB_CACHE``, else ``~/.cache/actlab``."""
    return at_home(cache_dir or os.environ.get("ACTLAB_CACHE") or "~/.cache/actlab")


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
    """Write nested values as JSON with a digest of them, by which `read_json` finds damage."""
    plain = json.loads(json.dumps(content, default=str, ensure_ascii=False).encode(errors="replace"))
    entries = plain if isinstance(plain, dict) else {"content": plain}
    write_atomically(path, json.dumps({"digest": _digest(entries), **entries}, indent=1) + "\n")


def regular(path: Path) -> Path:
    """The path, for a reader to open: after following links it is of a file that ends when it is read.

    A pipe or device, which need not end, must never be opened as data, a record or a result. Every reader of
    these wraps its path in this function; a test looks for one that does not.

    Raises:
        OSError: for anything but a regular file, and where there is nothing.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def read_json(path: Path, kind: type[Kind], remedy: str) -> Kind:
    """The values in a JSON file, of `write_sealed` or without a digest, checked against their types.

    The only reader of JSON records. Entries that the types do not name are kept as they are, so that files of
    other versions can be read.

    Args:
        path: of the file.
        kind: what it must hold, such as a ``TypedDict`` or a list of them.
        remedy: what to do when it is damaged.

    Raises:
        DamagedError: when it cannot be read, is not what was written or holds values of other types.
    """
    try:
        found = _unsealed(parsed(regular(path).read_text(encoding="utf-8")))
        return checked(found, kind)
    except (ValueError, OSError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({_reason(error)}): {remedy}") from error


def _unsealed(found: Any) -> Any:
    """What `write_sealed` was given; values without a digest as they are."""
    if not isinstance(found, dict) or "digest" not in found:
        return found
    if found.pop("digest") != _digest(found):
        raise ValueError("it is not what was written")
    return found["content"] if found.keys() == {"content"} else found


def parsed(text: str) -> Any:
    """The values in JSON.

    Raises:
        ValueError: for what is not JSON, holds a whole number beyond every float, or half a surrogate pair,
            which no file can hold.
        RecursionError: for values that are nested too deep.
    """
    found = json.loads(text, parse_int=_whole)
    if "\\ud" in text.lower():
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def checked(found: Any, kind: type[Kind]) -> Kind:
    """Plain values as they are, once their types are found to be those of ``kind``.

    Raises:
        ValueError: for the first value of another type; says where it is, what it is and what is needed.
    """
    from pydantic import ValidationError  # takes a tenth of a second, and not every command reads a record

    try:
        _types(cast(Any, kind)).validate_python(found, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"]) or "the whole"
        given = "" if first["type"] == "missing" else f", not {repr(first['input'])[:60]}"
        raise ValueError(f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}{given}") from error
    return found  # type: ignore[no-any-return]


@lru_cache
def _types(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _reason(error: BaseException) -> str:
    """Why a file cannot be read; the path, which an OSError repeats, is left out."""
    return getattr(error, "strerror", None) or one_line(error, 200) or type(error).__name__


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
    return read_json(path, _Logger, "delete it; loggers then begin a new history")["id"]


def forget_id(folder: Path) -> None:
    """Let what is logged of a folder's run from now on be another run."""
    (folder / _LOGGER).unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Digest of a file's bytes."""
    with regular(path).open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
