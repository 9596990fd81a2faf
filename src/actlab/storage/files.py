"""Atomic file writes, and the one reader of JSON records."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from typing_extensions import TypedDict  # before Python 3.12 pydantic rejects typing.TypedDict

from actlab.errors import ActlabError, one_line, reason

Kind = TypeVar("Kind")


class DamagedError(ActlabError):
    """Raised when a file differs from what was written; the message names the file and the remedy."""


class _Logger(TypedDict):
    id: str


_LONGEST_WRITE = 3600.0  # seconds
_LOGGER = "logger.json"


def resolved(path: str) -> Path:
    """Return an absolute path, with ``~`` expanded and links followed; an ActlabError if it is invalid."""
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
    """Yield an empty temporary file; rename it to ``path`` atomically when the block succeeds."""
    with temporary(path.parent, path.name) as partial:
        yield partial
        partial.replace(path)


@contextmanager
def temporary(parent: Path, name: str, folder: bool = False) -> Iterator[Path]:
    """Yield a new hidden file or folder in ``parent``; remove it at the end. A kill leaves it."""
    parent.mkdir(parents=True, exist_ok=True)
    path = parent / f".{name}.{secrets.token_hex(4)}.partial"
    path.mkdir() if folder else path.touch(exist_ok=False)
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
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically, a text as UTF-8: a kill leaves either the old or the new content."""
    with replacing(path) as partial:
        partial.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write nested values as JSON, atomically; other objects and half surrogate pairs become text."""
    text = json.dumps(content, indent=1, default=_plain, ensure_ascii=False)
    write_atomically(path, text.encode(errors="replace") + b"\n")


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def update_json(path: Path, entries: Mapping[str, Any], remedy: str) -> None:
    """Add entries to a JSON file, or replace them; nothing is written without entries."""
    if entries:
        write_json(path, {**stored_json(path, dict[str, Any], remedy), **entries})


def regular(path: Path) -> Path:
    """Return the path unchanged if it is a regular file, after following links.

    A pipe or device may never end. Every reader of files wraps its path in this function; a test enforces it.

    Raises:
        OSError: if the path does not exist or is not a regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def damaged_part(path: str | Path | IO[Any]) -> str | None:
    """Return the damaged part of a zip file, or None; an ActlabError if the file, a checkpoint, is missing."""
    try:
        with zipfile.ZipFile(path) as parts:
            return parts.testzip()
    except FileNotFoundError as error:
        raise ActlabError(f"checkpoint {str(path)!r} does not exist") from error
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        return one_line(error)
    finally:
        if not isinstance(path, str | Path):
            path.seek(0)


def read_json(path: Path, kind: type[Kind], remedy: str) -> Kind:
    """Return the values of a JSON file that have the type ``kind``: a ``TypedDict``, or a dataclass.

    Entries that ``kind`` does not declare are kept, so that actlab can read files of other versions. A
    DamagedError ends with the ``remedy``.
    """
    try:
        values = json.loads(regular(path).read_text(encoding="utf-8"))
        if isinstance(values, dict) and values.pop("digest", None) is not None and values.keys() == {"content"}:
            values = values["content"]  # older versions wrote a list beside its digest, as in the archives
        return checked(values, kind)
    except (ValueError, OSError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({reason(error)}): {remedy}") from error


def stored_json(path: Path, kind: type[Kind], remedy: str) -> Kind:
    """Return what `read_json` returns; an empty ``kind`` without the file."""
    return read_json(path, kind, remedy) if path.exists() else kind()


def checked(values: Any, kind: type[Kind]) -> Kind:
    """Return plain values unchanged, or as the dataclass ``kind``, whose fields are their keys.

    A ValueError names the first value that has not the type ``kind``.
    """
    from pydantic import ValidationError  # takes 0.1 s to import; not every command reads a record

    adapter = _type_adapter(cast(Any, kind))
    try:
        if is_dataclass(kind):
            record: Kind = adapter.validate_json(json.dumps(values), strict=True)
            return record
        adapter.validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"]) or "the whole"
        given = "" if first["type"] == "missing" else f", not {repr(first['input'])[:60]}"
        raise ValueError(f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}{given}") from error
    return values  # type: ignore[no-any-return]


@lru_cache
def _type_adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def id_in(folder: Path) -> str:
    """Return the id of a folder's run for loggers; create and store it on first use."""
    path = folder / _LOGGER
    if not path.exists():
        write_json(path, {"id": secrets.token_hex(8)})
    return read_json(path, _Logger, "delete it; loggers then start a new history")["id"]


def has_id(folder: Path) -> bool:
    """Return whether a folder's run has an id, and so has been logged."""
    return (folder / _LOGGER).exists()


def forget_id(folder: Path) -> None:
    """Delete the id of a folder's run, so that loggers start a new run."""
    (folder / _LOGGER).unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Return the SHA-256 digest of a file's bytes."""
    with regular(path).open("rb", buffering=0) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
