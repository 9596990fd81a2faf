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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from actlab.storage.digests import digests_of
from actlab.storage.files import regular
from actlab.storage.paths import at_home, leads_back, resolved
from actlab.storage.spec import Spec

ContentsByText = dict[str, str | None]  # results of `content_of`, each computed once
# In a folder; the digest of a larger folder covers only names and sizes of its files
MOST_FILES = 100_000
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
    strings: list[str] = []
    waiting = [value]  # values in reverse order
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            strings.append(inner)
        elif isinstance(inner, Spec):
            waiting += [inner.params, inner.path]
        elif isinstance(inner, Mapping):
            waiting += reversed([*inner.values()])
        elif isinstance(inner, list | tuple):
            waiting += reversed(inner)
    return strings


def by_names(content: str) -> bool:
    """Return whether a digest of `content_of` covers only names and sizes of a large folder."""
    return _BY_NAMES in content


def content_of(text: str, of_data: bool) -> str | None:
    """Return the digest of the file, folder or module that a value of the config names, or None.

    The text is ``file.py:Name``, an importable name or a path. Where it is ``of_data``, of the
    datamodule, a plain word may name a folder.
    """
    # Code: the user's by its syntax, installed packages by their bytes
    digests = []
    files = code_files(text, of_data)
    if files:
        user_files = [file for file in files if not _is_installed(file)]
        parsed_digests = _parsed(user_files)
        digests.append(_files_digest(files, None, parsed_digests))

    # A text may be both: ``knots.csv`` reads as a dotted name and as a path. Both
    # digests count.
    may_be_path = of_data or "/" in text or "." in text
    names_a_definition = text.rpartition(":")[0].endswith(".py")  # ``file.py:Name``
    has_length_of_path = 0 < len(text) < 1000
    if may_be_path and has_length_of_path and not names_a_definition:
        digest = _path_digest(Path(text))
        if digest:
            digests.append(digest)
    return " ".join(digests) or None


def code_files(text: str, of_data: bool) -> list[Path]:
    """Return the files of the user-defined code that a text names, with what they import."""
    # A class or function in a file
    head, colon, _ = text.rpartition(":")
    if colon and head.endswith(".py"):
        file = resolved(head)
        if not file.is_file():
            return []
        return _with_imports([file], file.parent)

    # A module or package, unless a folder of data has its name
    name = module_of(text).partition(".")[0]
    is_folder = of_data and len(text) < 256 and Path(text).exists()
    if not name or is_folder:
        return []
    files = _module_files(name)
    if not files:
        return []
    is_single = len(files) == 1 and files[0].stem == name
    folder = files[0].parent if is_single else None
    return _with_imports(files, folder)


def digests_of_code(text: str) -> dict[str, str]:
    """Return the digest of each user-written file behind the spelling of a class or function.

    Digests are by name: the spelling itself for the file that it names, ``helpers.py of <text>``
    for a file that this one imports. Files that cannot be parsed count by their bytes.
    """
    files = [file for file in code_files(text, False) if not _is_installed(file)]
    digests = {**digests_of(files), **_parsed(files)}
    named_file = Path(text.rpartition(":")[0]).name

    digest_by_name = {}
    for file, digest in digests.items():
        name = text
        if file.name != named_file:
            name = f"{_in_current_folder(file)} of {text}"
        digest_by_name[name] = digest
    return digest_by_name


def _in_current_folder(file: Path) -> Path:
    """Return the path relative to the current folder, if the file is inside it."""
    current = Path.cwd()
    if not file.is_relative_to(current):
        return file
    return file.relative_to(current)


def module_of(text: str) -> str:
    """Return the dotted name in ``package.module.Class`` or ``package.module:Name``, or ""."""
    head, colon, _ = text.rpartition(":")
    if head.endswith(".py") or not (colon or "." in text):
        return ""

    module = head if colon else text
    if not all(map(str.isidentifier, module.split("."))):
        return ""
    return module


def _path_digest(path: Path) -> str | None:
    # The root and system folders are not data
    try:
        path = at_home(path).resolve()
        if len(path.parts) < 2 or path.parts[1] in _NOT_DATA:
            return None
        if path.is_file():
            return _files_digest([path], None, {})
        if not path.is_dir():
            return None

        # A folder with few files counts with all bytes
        files = [file for file in _walk(path) if file.is_file()]
        if len(files) <= MOST_FILES:
            return _files_digest(files, path, {})

        # Only names and sizes of a large folder
        lines = []
        for file in files:
            lines.append(f"{file.relative_to(path)} {file.stat().st_size}")
        return _BY_NAMES + _lines_digest(lines)
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):
        # Unreadable, home of an unknown user, invalid path.
        return None


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all paths below a folder in sorted order; skip links that lead back to a parent."""
    for top, folders, names in os.walk(folder, followlinks=True):
        # The walk descends into the folders that this list retains.
        folders[:] = [
            name for name in sorted(folders) if not leads_back(f"{top}/{name}")
        ]
        for name in sorted(names):
            yield Path(top, name)


def _with_imports(files: Sequence[Path], folder: Path | None = None) -> list[Path]:
    """Return the files and the user's files that they import, from ``folder`` or Python's path."""
    # Installed packages are listed, but not parsed
    collected = list(files)
    waiting = [file for file in files if not _is_installed(file)]
    seen, names = {file.resolve() for file in files}, set[str]()

    # Follow the imports, up to a limit of files
    for _ in range(_MOST_PARSED):
        if not waiting:
            break
        for name in _code(regular(waiting.pop()).read_bytes()).imports:
            if name in names:
                continue
            names.add(name)

            # Each file once, whatever leads to it
            imported = {file.resolve(): file for file in _imported_files(name, folder)}
            new = [file for path, file in imported.items() if path not in seen]
            collected += new
            waiting += new
            seen |= imported.keys()
    return collected


def _imported_files(name: str, folder: Path | None) -> list[Path]:
    files = []
    if folder:
        candidates = (folder / f"{name}.py", *sorted((folder / name).rglob("*.py")))
        files += [file for file in candidates if file.is_file()]
    files += [file for file in _module_files(name) if not _is_installed(file)]
    return files


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

    # Absolute imports; relative ones stay in the same package
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return _Code(tuple(name.partition(".")[0] for name in names), digest)


def _walked(tree: ast.Module) -> Iterator[str]:
    """Yield a line for each node and value of a syntax tree, equal in all versions of Python.

    Versions differ in the fields that they add without a value, and in empty text between parts of
    f-strings.
    """
    waiting: list[Any] = [tree]  # nodes and values in reverse order
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.AST):
            fields = _counted_fields(node)
            yield f"{type(node).__name__} {' '.join(fields)}"
            waiting += reversed(fields.values())
        elif isinstance(node, list):
            yield f"[{len(node)}]"
            waiting += reversed(node)
        else:
            yield ascii(node)


def _counted_fields(node: ast.AST) -> dict[str, Any]:
    """Return the values of a node that count, by the sorted names of their fields."""
    fields = dict(ast.iter_fields(node))

    # No docstring, and no empty text between parts of f-strings
    if (
        isinstance(node, _DOCUMENTED)
        and ast.get_docstring(node, clean=False) is not None
    ):
        fields["body"] = node.body[1:]
    if isinstance(node, ast.JoinedStr):
        fields["values"] = [
            part for part in node.values if getattr(part, "value", None) != ""
        ]

    # A field without a value may be missing in another version of Python. Only a
    # constant may be None itself.
    counted = {}
    for name, value in sorted(fields.items(), key=itemgetter(0)):
        has_value = isinstance(node, ast.Constant) or value not in (None, [])
        if name not in _NO_CODE and has_value:
            counted[name] = value
    return counted


def _module_files(name: str) -> list[Path]:
    """Return the Python files of a user-defined module or package; empty for any other name."""
    # actlab, the standard library and missing modules do not count
    if name in _OURS or name in sys.stdlib_module_names:
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []

    # The folders of a package, or a single file
    files: list[Path] = []
    for folder in spec.submodule_search_locations or ():
        files += sorted(Path(folder).rglob("*.py"))
    origin = Path(spec.origin or "")
    if not files and origin.is_file():
        files = [origin]
    return files


def _parsed(files: Sequence[Path]) -> dict[Path, str]:
    """Return the digests of the files that Python can parse."""
    digests = {}
    for file in files:
        digest = _code(regular(file).read_bytes()).digest
        if digest:
            digests[file] = digest
    return digests


def _files_digest(
    files: Sequence[Path], folder: Path | None, computed: dict[Path, str]
) -> str:
    """Return the digest of the names and digests of files; of some they are ``computed``."""
    digests = digests_of([file for file in files if file not in computed]) | computed
    lines = []
    for file in files:
        name = file.relative_to(folder) if folder else file.name
        lines.append(f"{name} {digests[file]}")
    return _lines_digest(lines)


def _lines_digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
