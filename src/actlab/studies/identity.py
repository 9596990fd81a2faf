"""What a run is: a digest of everything that changes its numbers, and of nothing else.

Settings count, whatever they are written like, and so do the contents of files from outside: data, vectors, the
source of a user's units, networks and tasks. Paths, logging, the study's name and the devices do not. actlab's
own code counts by `NUMERICS`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from actlab.studies.keys import resolved

NUMERICS = 3  # raised when runs of equal settings give other numbers than before
# Keys below ``trainer`` and ``data`` that leave the numbers alone, up to the order of floating-point sums.
_TRAINER = {
    *("accelerator", "benchmark", "barebones", "default_root_dir", "devices", "enable_checkpointing"),
    *("enable_model_summary", "enable_progress_bar", "inference_mode", "log_every_n_steps", "logger"),
    *("num_nodes", "num_sanity_val_steps", "profiler", "strategy", "use_distributed_sampler"),
}
_NULLS = {"check_val_every_n_epoch"}  # where null is another setting than the default
_DATA = {"cache_dir", "workers"}
_OURS = ("actlab", "pytorch_lightning", "lightning", "lightning_fabric", "torch", "torchmetrics", "datasets")
_NOT_DATA = ("proc", "sys", "dev")  # reading these may never end
_SAMPLE = 2**20  # bytes at either end of a large file that count; its size counts too
_MOST_FILES, _MOST_LISTED = 5_000, 100_000  # of a folder: read, and looked at


def digest(counts: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Eight hexadecimal digits for a complete config and the files from outside that it names.

    Args:
        counts: what counts of the config, as `counted` gives it.
        sources: as `sources_of` gives them.
    """
    told = [NUMERICS, counts, sorted(set(sources.values()))]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:8]


def counted(config: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """What counts of a complete config, its values as they count."""
    return {str(key): _plain(value, sources) for key, value in _counting(config).items()}


def _counting(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a config that changes numbers."""
    data, trainer = config.get("data") or {}, config.get("trainer") or {}
    if isinstance(data, Mapping) and isinstance(arguments := data.get("init_args") or {}, Mapping):
        data = {**data, "init_args": {k: v for k, v in arguments.items() if k not in _DATA}}
    if isinstance(trainer, Mapping):
        trainer = {k: v for k, v in trainer.items() if k not in _TRAINER and (v is not None or k in _NULLS)}
    return {**config, "data": data, "trainer": trainer}


def _plain(value: Any, sources: Mapping[str, str]) -> Any:
    """Values as they count: ``1e-3``, ``0.001`` and ``1.0e-3`` are one, a path is what lies there."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, sources) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, sources) for inner in value]
    if isinstance(value, str) and value in sources:
        file, _, name = value.rpartition(":")
        return [sources[value], value if _module_of(value) else name if file else ""]
    return number(value)


def number(value: Any) -> Any:
    """A whole number or a text that reads as a number as a float; anything else as it is.

    >>> number("1e-3"), number(3), number("relu"), number(True)
    (0.001, 3.0, 'relu', True)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    try:
        return float(value)
    except (ValueError, OverflowError):
        return value


def sources_of(config: Mapping[str, Any], known: dict[str, str | None] | None = None) -> dict[str, str]:
    """Digests of what a config names outside actlab: paths of files and folders, and modules.

    Args:
        config: nested values.
        known: what was looked up before, by value; filled here.

    Returns:
        The value as the config has it → digest of its content.
    """
    known = {} if known is None else known
    found: dict[str, str] = {}
    counting = _counting(config)
    named = set(_texts(counting.get("data")))
    for text in _texts(counting):
        key = f"data {text}" if text in named else text
        if key not in known:
            known[key] = _content(text, text in named)
        if content := known[key]:
            found[text] = content
    return found


def _texts(value: Any) -> Iterator[str]:
    """All texts in nested values."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _content(text: str, of_data: bool) -> str | None:
    """Digest of what a text names: a unit in a file, an importable name, or a path; None for anything else.

    Args:
        text: a value of the config.
        of_data: whether it is one of the datamodule's: then a plain word may be a folder.
    """
    head, colon, _ = text.rpartition(":")
    if colon and head.endswith(".py"):
        file = resolved(head)
        return _of_files(_imported(file)) if file.is_file() else None
    module = _module_of(text)
    if module and not (of_data and _exists(text)):
        return _of_module(module.partition(".")[0])
    return _of_path(Path(text)) if (of_data or "/" in text or "." in text) and 0 < len(text) < 1000 else None


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # a name that is too long, or that no file can have
        return False


def _module_of(text: str) -> str:
    """The dotted name in ``package.module.Class`` or ``package.module:Unit``; empty for any other text."""
    head, colon, _ = text.rpartition(":")
    module = head if colon else text
    dotted = (colon or "." in text) and all(part.isidentifier() for part in module.split("."))
    return module if dotted and not (colon and head.endswith(".py")) else ""


def _of_path(path: Path) -> str | None:
    """Digest of a file, or of the files in a folder and below it; None where there is nothing."""
    try:
        path = path.expanduser().resolve()
        if len(path.parts) < 2 or path.parts[1] in _NOT_DATA:
            return None
        if path.is_file():
            return _of_files([path])
        return _of_folder(path) if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # unreadable, the home of an unknown user, no path
        return None


def _of_folder(folder: Path) -> str:
    """Digest of the files in a folder and below it, linked ones too; of very many, the last by name alone."""
    walked = _walked(folder)
    read = [file for file in itertools.islice(walked, _MOST_LISTED) if file.is_file()]
    return _of_files(read, folder, (str(file.relative_to(folder)) for file in walked))


def _walked(folder: Path) -> Iterator[Path]:
    """What is in a folder and below it, in an order that no disk decides, without links that lead back."""
    for top, folders, names in os.walk(folder, followlinks=True):
        here = Path(top).resolve()
        folders[:] = sorted(name for name in folders if not here.is_relative_to(Path(top, name).resolve()))
        yield from (Path(top, name) for name in sorted(names))


def _imported(file: Path) -> list[Path]:
    """A user's file and the files beside it that it imports, directly or through others."""
    found, waiting = [file], [file]
    while waiting:
        for name in _imports(waiting.pop()):
            package = file.parent / name
            new = [file.parent / f"{name}.py", *(sorted(package.rglob("*.py")) if package.is_dir() else ())]
            fresh = [p for p in new if p.is_file() and p not in found]
            found += fresh
            waiting += fresh
    return found


def _imports(file: Path) -> list[str]:
    """The top-level names of the modules that a Python file imports; none where it cannot be parsed."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return []
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [name.partition(".")[0] for name in names if name]


def _of_module(name: str) -> str | None:
    """Digest of a user's package; None for this package, what it stands on, and what cannot be found."""
    if name in _OURS or name in sys.stdlib_module_names:
        return None
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    places = list(found.submodule_search_locations or ())
    files = [p for place in places for p in sorted(Path(place).rglob("*.py"))][:_MOST_FILES]
    if not files and found.origin and Path(found.origin).is_file():
        files = _imported(Path(found.origin))
    return _of_files(files) if files else None


def _of_files(files: Sequence[Path], folder: Path | None = None, further: Iterable[str] = ()) -> str:
    """Digest of files, by their names and contents; of very many, the further ones by name and size.

    Args:
        files: read up to `_MOST_FILES`.
        folder: below which their names count with their folders; without it their last part counts.
        further: names that count, without more.
    """
    digest = hashlib.sha256()
    for number, file in enumerate(files):
        status = file.stat()
        size, time = status.st_size, status.st_mtime_ns
        content = _of_file(file, size, time) if number < _MOST_FILES else size
        name = file.relative_to(folder) if folder else file.name
        digest.update(f"{name} {content}\n".encode(errors="surrogateescape"))
    for text in further:
        digest.update(f"{text}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


@lru_cache(maxsize=100_000)
def _of_file(file: Path, size: int, time: int) -> str:
    """Digest of a file's size and content; of a large one the content at both ends."""
    digest = hashlib.sha256(str(size).encode())
    with file.open("rb") as stream:
        digest.update(stream.read(_SAMPLE))
        if size > _SAMPLE:
            stream.seek(max(_SAMPLE, size - _SAMPLE))
            digest.update(stream.read())
    return digest.hexdigest()
