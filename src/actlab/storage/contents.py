"""Digests of the files, folders and user-defined modules that a config names.

Of the user's code, comments, docstrings and layout do not count. Data, files of installed packages,
and files that Python cannot parse count by their bytes.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from actlab.storage.digests import digests_of
from actlab.storage.files import regular
from actlab.storage.paths import at_home, resolved
from actlab.storage.spec import Spec

MOST_FILES = (
    100_000  # in a folder; a digest of a larger folder covers only names and sizes of its files
)
_BY_NAMES = "names-and-sizes:"  # prefix of the digest of a larger folder
_OURS = (
    "actlab",
    "pytorch_lightning",
    "lightning",
    "lightning_fabric",
    "torch",
    "torchmetrics",
    "datasets",
)
_INSTALLED = {"site-packages", "dist-packages"}  # folders of installed distributions
_NOT_DATA = ("proc", "sys")  # top-level folders whose files may never end
_MOST_PARSED = 1_000  # user-defined files whose imports are followed
# May begin with a docstring
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NO_CODE = {"kind", "type_comment"}  # fields of the syntax tree


class _Code(NamedTuple):
    imports: tuple[str, ...] = ()
    digest: str = ""  # empty if Python cannot parse the file


def texts(value: Any) -> list[str]:
    """Return every string in nested mappings, lists and tuples, and in activations, in order."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            found.append(inner)
        elif isinstance(inner, Spec):
            waiting += [inner.params, inner.path]
        elif isinstance(inner, Mapping):
            waiting += reversed([*inner.values()])
        elif isinstance(inner, list | tuple):
            waiting += reversed(inner)
    return found


def by_names(content: str) -> bool:
    """Return whether a digest of `content_of` covers only file names and sizes (a folder too large to read)."""
    return _BY_NAMES in content


def content_of(text: str, of_data: bool) -> str | None:
    """Return the digest of the file, folder or module that a value of the config names, or None.

    The text is ``file.py:Name``, an importable name or a path. Where it is ``of_data``, of the
    datamodule, a plain word may name a folder.
    """
    files = code_files(text, of_data)
    code = None
    if files:
        written = [file for file in files if not _is_installed(file)]
        code = _files_digest(files, None, _parsed(written))
    named = (of_data or "/" in text or "." in text) and 0 < len(text) < 1000
    is_activation = text.rpartition(":")[0].endswith(".py")
    # ``knots.csv`` is a dotted name, too
    path = _path_digest(Path(text)) if named and not is_activation else None
    return " ".join(filter(None, (code, path))) or None


def code_files(text: str, of_data: bool) -> list[Path]:
    """Return the files of the user-defined code that a text names, with what they import; empty without any."""
    head, colon, _ = text.rpartition(":")
    if colon and head.endswith(".py"):
        file = resolved(head)
        return _with_imports([file], file.parent) if file.is_file() else []
    name = module_of(text).partition(".")[0]
    of_folder = of_data and len(text) < 256 and Path(text).exists()
    files = _module_files(name) if name and not of_folder else []
    is_single = len(files) == 1 and files[0].stem == name
    return _with_imports(files, files[0].parent if is_single else None) if files else []


def digests_of_code(text: str) -> dict[str, str]:
    """Return digests of the user's own `code_files` by ``text`` or, of imports, ``helpers.py of <text>``."""
    written, here = (
        [file for file in code_files(text, False) if not _is_installed(file)],
        Path.cwd(),
    )
    names = {
        f: f"{f.relative_to(here) if f.is_relative_to(here) else f} of {text}" for f in written
    }
    names |= {file: text for file in written if file.name == Path(text.rpartition(":")[0]).name}
    return {
        names[file]: digest for file, digest in {**digests_of(written), **_parsed(written)}.items()
    }


def module_of(text: str) -> str:
    """Return the dotted name in ``package.module.Class`` or ``package.module:Name``; "" for any other text."""
    head, colon, _ = text.rpartition(":")
    module = head if colon else text
    dotted = (colon or "." in text) and all(map(str.isidentifier, module.split(".")))
    return module if dotted and not (colon and head.endswith(".py")) else ""


def _path_digest(path: Path) -> str | None:
    try:
        path = at_home(path).resolve()
        if len(path.parts) < 2 or path.parts[1] in _NOT_DATA:
            return None
        if path.is_file():
            return _files_digest([path], None, {})
        if not path.is_dir():
            return None
        files = [file for file in _walk(path) if file.is_file()]
        if len(files) <= MOST_FILES:
            return _files_digest(files, path, {})
        return _BY_NAMES + _lines_digest(
            f"{file.relative_to(path)} {file.stat().st_size}" for file in files
        )
    except (OSError, RuntimeError, ValueError):  # unreadable, home of an unknown user, invalid path
        return None


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all paths below a folder in sorted order; skip links that lead back to a parent."""
    for top, folders, names in os.walk(folder, followlinks=True):
        here = Path(top).resolve()
        folders[:] = sorted(
            name for name in folders if not here.is_relative_to(Path(top, name).resolve())
        )
        yield from (Path(top, name) for name in sorted(names))


def _with_imports(files: Sequence[Path], folder: Path | None = None) -> list[Path]:
    """Return the files, and those of the user that they import from ``folder`` or Python's path, in turn."""
    collected, waiting = list(files), [file for file in files if not _is_installed(file)]
    seen, names = {file.resolve() for file in files}, set[str]()
    for _ in range(_MOST_PARSED):
        for name in _code(regular(waiting.pop()).read_bytes()).imports if waiting else ():
            if name not in names:
                names.add(name)
                beside = (
                    (folder / f"{name}.py", *sorted((folder / name).rglob("*.py")))
                    if folder
                    else ()
                )
                imported = [file for file in beside if file.is_file()]
                imported += [file for file in _module_files(name) if not _is_installed(file)]
                fresh = {file.resolve(): file for file in imported}
                collected += (new := [file for place, file in fresh.items() if place not in seen])
                waiting += new
                seen |= fresh.keys()
    return collected


def _is_installed(file: Path) -> bool:
    return not _INSTALLED.isdisjoint(file.parts)


@lru_cache(maxsize=_MOST_PARSED)
def _code(source: bytes) -> _Code:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes: the file is not ours
            tree = ast.parse(source)
        digest = _lines_digest(_walked(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Code()
    names = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    names += [
        n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level
    ]
    return _Code(tuple(name.partition(".")[0] for name in names if name), digest)


def _walked(tree: ast.Module) -> Iterator[str]:
    """Yield a line for each node and value of a syntax tree; they are equal in all versions of Python.

    Versions differ in the fields that they add without a value, and in empty text between parts of
    f-strings.
    """
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.AST):
            fields = {name: value for name, value in ast.iter_fields(node) if name not in _NO_CODE}
            if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                fields["body"] = node.body[1:]
            if isinstance(node, ast.JoinedStr):
                fields["values"] = [
                    part for part in node.values if getattr(part, "value", None) != ""
                ]
            # None is a value there: `x * None` is not `x * 0`
            kept = isinstance(node, ast.Constant)
            names = sorted(
                name for name, value in fields.items() if kept or value not in (None, [])
            )
            yield f"{type(node).__name__} {' '.join(names)}"
            waiting += [fields[name] for name in reversed(names)]
        elif isinstance(node, list):
            yield f"[{len(node)}]"
            waiting += reversed(node)
        else:
            yield ascii(node)


def _module_files(name: str) -> list[Path]:
    """Return the Python files of a user-defined module or package; empty for any other name."""
    if name in _OURS or name in sys.stdlib_module_names:
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    places = list(spec.submodule_search_locations or ()) if spec else []
    files = [p for place in places for p in sorted(Path(place).rglob("*.py"))]
    origin = Path((spec and spec.origin) or "")
    return files or ([origin] if origin.is_file() else [])


def _parsed(files: Sequence[Path]) -> dict[Path, str]:
    return {file: digest for file in files if (digest := _code(regular(file).read_bytes()).digest)}


def _files_digest(files: Sequence[Path], folder: Path | None, known: Mapping[Path, str]) -> str:
    contents = {**digests_of([file for file in files if file not in known]), **known}
    names = [file.relative_to(folder) if folder else file.name for file in files]
    return _lines_digest(
        f"{name} {contents[file]}" for name, file in zip(names, files, strict=True)
    )


def _lines_digest(lines: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
