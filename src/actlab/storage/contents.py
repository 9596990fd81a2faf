"""Digests of every byte of the files, folders and user-defined modules that a config names."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from actlab.storage.digests import digests_of
from actlab.storage.files import at_home, regular, resolved

MOST_FILES = 100_000  # in a folder; a digest of a larger folder covers only names and sizes of its files
_BY_NAMES = "names-and-sizes:"  # prefix of the digest of a larger folder
_OURS = ("actlab", "pytorch_lightning", "lightning", "lightning_fabric", "torch", "torchmetrics", "datasets")
_INSTALLED = {"site-packages", "dist-packages"}  # folders of installed distributions
_NOT_DATA = ("proc", "sys")  # top-level folders whose files may never end
_MOST_PARSED = 1_000  # user-defined files whose imports are followed


def texts(value: Any) -> Iterator[str]:
    """Yield every string in nested mappings, lists and tuples."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def by_names(content: str) -> bool:
    """Return whether a digest of `content_of` covers only file names and sizes (a folder too large to read)."""
    return _BY_NAMES in content


def content_of(text: str, of_data: bool) -> str | None:
    """Return the digest of the file, folder or module that a value of the config names, or None.

    The text is ``file.py:Name``, an importable name or a path. Where it is ``of_data``, of the datamodule, a
    plain word may name a folder.
    """
    head, colon, _ = text.rpartition(":")
    if colon and head.endswith(".py"):
        file = resolved(head)
        return _files_digest(_with_imports([file], file.parent)) if file.is_file() else None
    name = module_of(text).partition(".")[0]
    of_folder = of_data and len(text) < 256 and Path(text).exists()
    module = _module_digest(name) if name and not of_folder else None
    named = (of_data or "/" in text or "." in text) and 0 < len(text) < 1000
    path = _path_digest(Path(text)) if named else None  # ``knots.csv`` also parses as a dotted name
    return " ".join(filter(None, (module, path))) or None


def module_of(text: str) -> str:
    """Return the dotted name in ``package.module.Class`` or ``package.module:Unit``; "" for any other text."""
    head, colon, _ = text.rpartition(":")
    module = head if colon else text
    dotted = (colon or "." in text) and all(part.isidentifier() for part in module.split("."))
    return module if dotted and not (colon and head.endswith(".py")) else ""


def _path_digest(path: Path) -> str | None:
    try:
        path = at_home(path).resolve()
        if len(path.parts) < 2 or path.parts[1] in _NOT_DATA:
            return None
        if path.is_file():
            return _files_digest([path])
        if not path.is_dir():
            return None
        files = [file for file in _walk(path) if file.is_file()]
        if len(files) <= MOST_FILES:
            return _files_digest(files, path)
        return _BY_NAMES + _lines_digest(f"{file.relative_to(path)} {file.stat().st_size}" for file in files)
    except (OSError, RuntimeError, ValueError):  # unreadable, home of an unknown user, invalid path
        return None


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all paths below a folder in sorted order; skip links that lead back to a parent."""
    for top, folders, names in os.walk(folder, followlinks=True):
        here = Path(top).resolve()
        folders[:] = sorted(name for name in folders if not here.is_relative_to(Path(top, name).resolve()))
        yield from (Path(top, name) for name in sorted(names))


def _with_imports(files: Sequence[Path], folder: Path | None = None) -> list[Path]:
    """Return the files, and those of the user that they import from ``folder`` or Python's path, in turn."""
    found, waiting = list(files), [file for file in files if not _is_installed(file)]
    seen, names = {file.resolve() for file in files}, set[str]()
    for _ in range(_MOST_PARSED):
        for name in _imported_names(regular(waiting.pop()).read_bytes()) if waiting else ():
            if name not in names:
                names.add(name)
                beside = (folder / f"{name}.py", *sorted((folder / name).rglob("*.py"))) if folder else ()
                own = [file for file in beside if file.is_file()]
                own += [file for file in _module_files(name) if not _is_installed(file)]
                fresh = {file.resolve(): file for file in own}
                found += (new := [file for place, file in fresh.items() if place not in seen])
                waiting += new
                seen |= fresh.keys()
    return found


def _is_installed(file: Path) -> bool:
    return not _INSTALLED.isdisjoint(file.parts)


@lru_cache(maxsize=_MOST_PARSED)
def _imported_names(source: bytes) -> tuple[str, ...]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level]
    return tuple(name.partition(".")[0] for name in names if name)


def _module_digest(name: str) -> str | None:
    if not (files := _module_files(name)):
        return None
    is_single = len(files) == 1 and files[0].stem == name
    return _files_digest(_with_imports(files, files[0].parent if is_single else None))


def _module_files(name: str) -> list[Path]:
    """Return the Python files of a user-defined module or package; empty for any other name."""
    if name in _OURS or name in sys.stdlib_module_names:
        return []
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    places = list(found.submodule_search_locations or ()) if found else []
    files = [p for place in places for p in sorted(Path(place).rglob("*.py"))]
    origin = Path((found and found.origin) or "")
    return files or ([origin] if origin.is_file() else [])


def _files_digest(files: Sequence[Path], folder: Path | None = None) -> str:
    contents = digests_of(files)
    names = [file.relative_to(folder) if folder else file.name for file in files]
    return _lines_digest(f"{name} {contents[file]}" for name, file in zip(names, files, strict=True))


def _lines_digest(lines: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
