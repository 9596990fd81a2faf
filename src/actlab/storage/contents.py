"""What a config names outside actlab, as digests of contents: files, folders, the source of users' modules.

Every byte of a file counts. A folder of more than `MOST_FILES` files counts by their names and sizes.
"""

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

MOST_FILES = 100_000  # of a folder whose files are read
_BY_NAMES = "names-and-sizes:"  # what the digest of a larger one begins with
_OURS = ("actlab", "pytorch_lightning", "lightning", "lightning_fabric", "torch", "torchmetrics", "datasets")
_INSTALLED = {"site-packages", "dist-packages"}  # folders of what is not a user's own
_NOT_DATA = ("proc", "sys")  # reading these may never end
_MOST_PARSED = 1_000  # files of a user's whose imports are followed


def texts(value: Any) -> Iterator[str]:
    """All texts in nested values."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def changed(known: Mapping[str, str], of_data: bool) -> list[str]:
    """Those of some texts whose content is another than the digest beside them says."""
    return [text for text, content in known.items() if content_of(text, of_data) != content]


def by_names(content: str) -> bool:
    """Whether a digest of `content_of` is of the names and sizes of files, which are too many to read."""
    return _BY_NAMES in content


def content_of(text: str, of_data: bool) -> str | None:
    """Digest of what a text names: a unit in a file, an importable name, a path; None for anything else.

    Args:
        text: a value of the config.
        of_data: whether it is one of the datamodule's: then a plain word may be a folder.
    """
    head, colon, _ = text.rpartition(":")
    if colon and head.endswith(".py"):
        file = resolved(head)
        return _of_files(_imported([file], file.parent)) if file.is_file() else None
    name = module_of(text).partition(".")[0]
    module = _of_module(name) if name and not (of_data and _exists(text)) else None
    named = (of_data or "/" in text or "." in text) and 0 < len(text) < 1000
    path = _of_path(Path(text)) if named else None  # ``knots.csv`` reads as a module's class too
    return " ".join(filter(None, (module, path))) or None


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # a name that is too long, or that no file can have
        return False


def module_of(text: str) -> str:
    """The dotted name in ``package.module.Class`` or ``package.module:Unit``; empty for any other text."""
    head, colon, _ = text.rpartition(":")
    module = head if colon else text
    dotted = (colon or "." in text) and all(part.isidentifier() for part in module.split("."))
    return module if dotted and not (colon and head.endswith(".py")) else ""


def _of_path(path: Path) -> str | None:
    """Digest of a file, or of the files in a folder and below it; None where there is nothing."""
    try:
        path = at_home(path).resolve()
        if len(path.parts) < 2 or path.parts[1] in _NOT_DATA:
            return None
        if path.is_file():
            return _of_files([path])
        return _of_folder(path) if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # unreadable, the home of an unknown user, no path
        return None


def _of_folder(folder: Path) -> str:
    """Digest of the files in a folder and below it, linked ones too."""
    files = [file for file in _walked(folder) if file.is_file()]
    if len(files) <= MOST_FILES:
        return _of_files(files, folder)
    return _BY_NAMES + _of_lines(f"{file.relative_to(folder)} {file.stat().st_size}" for file in files)


def _walked(folder: Path) -> Iterator[Path]:
    """What is in a folder and below it, in an order that no disk decides, without links that lead back."""
    for top, folders, names in os.walk(folder, followlinks=True):
        here = Path(top).resolve()
        folders[:] = sorted(name for name in folders if not here.is_relative_to(Path(top, name).resolve()))
        yield from (Path(top, name) for name in sorted(names))


def _imported(files: Sequence[Path], folder: Path | None = None) -> list[Path]:
    """A user's files and what they import of the same kind, directly or through others.

    Args:
        files: of a module or package; of an installed one nothing is followed.
        folder: where imports are looked for, besides Python's path.
    """
    found, waiting = list(files), [file for file in files if not _installed(file)]
    seen, names = {file.resolve() for file in files}, set[str]()
    for _ in range(_MOST_PARSED):
        for name in _imports(regular(waiting.pop()).read_bytes()) if waiting else ():
            if name not in names:
                names.add(name)
                own = [file for file in _files_of(name) if not _installed(file)]
                fresh = {file.resolve(): file for file in (*_beside(folder, name), *own)}
                found += (new := [file for place, file in fresh.items() if place not in seen])
                waiting += new
                seen |= fresh.keys()
    return found


def _beside(folder: Path | None, name: str) -> list[Path]:
    """The Python files of a module or package in a folder."""
    if folder is None:
        return []
    package = folder / name
    inside = sorted(package.rglob("*.py")) if package.is_dir() else ()
    return [file for file in (folder / f"{name}.py", *inside) if file.is_file()]


def _installed(file: Path) -> bool:
    """Whether a file came with an installed distribution."""
    return not _INSTALLED.isdisjoint(file.parts)


@lru_cache(maxsize=_MOST_PARSED)
def _imports(source: bytes) -> tuple[str, ...]:
    """The top-level names of the modules that Python code imports; none where it cannot be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level]
    return tuple(name.partition(".")[0] for name in names if name)


def _of_module(name: str) -> str | None:
    """Digest of a user's module or package; None for this one, what it stands on, and what cannot be found."""
    files = _files_of(name)
    alone = len(files) == 1 and files[0].stem == name
    return _of_files(_imported(files, files[0].parent if alone else None)) if files else None


def _files_of(name: str) -> list[Path]:
    """The Python files of what is imported by a name, unless it is this package or what it stands on."""
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


def _of_files(files: Sequence[Path], folder: Path | None = None) -> str:
    """Digest of files, by their names and contents; below a folder, by their paths there."""
    contents = digests_of(files)
    names = [file.relative_to(folder) if folder else file.name for file in files]
    return _of_lines(f"{name} {contents[file]}" for name, file in zip(names, files, strict=True))


def _of_lines(lines: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
