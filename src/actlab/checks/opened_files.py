"""Find the files that users' code opens while runs are built and their data are prepared.

An audit hook of Python sees each opening. It does not see readers in C++ that open files without
Python, nor processes of data loaders.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from actlab import experiments
from actlab.storage.paths import cache_folder
from actlab.studies.opened import code_of, parts_of
from actlab.studies.plan import Run

_CODE = {".py", ".pyc"}  # suffixes of files that count as code
_NOT_DATA = {"etc", "proc", "sys"}  # top-level folders
_CACHES = ".cache"  # name of a folder that libraries write


def find(runs: Sequence[Run], known: Collection[str], root: Path) -> dict[str, list[str]]:
    """Build the parts of some runs that are not ``known``; return what their code opens, by key of the part.

    Parts without users' code are left out. Call it in a process that has not imported this code,
    since Python imports a module once. Files below ``root``, the study's folder, do not count, nor
    those that a run names.
    """
    watch, found = _watch(), dict[str, list[str]]()
    for run in runs:
        # Find the new parts
        parts = {key: code_of(part) for key, part in parts_of(run.config, run.sources).items()}
        new = {
            key: code
            for key, code in parts.items()
            if code and key not in known and key not in found
        }
        if not new:
            continue

        # Build the run
        watch.code.update(*new.values())
        # third-party code may raise anything, and again in its run
        with (
            watch.watching(),
            suppress(Exception),
        ):
            experiment = experiments.build(run.config)
            experiment.data.trainer = experiment.trainer
            experiments.prepare(experiment.data)
            experiment.data.setup("fit")

        # Collect what was opened
        left_out = [
            root.resolve(),
            *(Path(text).resolve() for text in run.sources if Path(text).exists()),
        ]
        for key, code in new.items():
            opened = {path for file in code for path in watch.opened[file]}
            found[key] = sorted(_name(path) for path in opened if _counts(path, left_out))
    return found


class _Watch:
    """Notes files that are opened for reading, by the innermost file of ``code`` that is being executed."""

    def __init__(self) -> None:
        self.code: set[str] = set()
        self.opened: defaultdict[str, set[Path]] = defaultdict(set)
        self._active = False
        sys.addaudithook(self._note)  # which cannot be removed

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._active = True
        try:
            yield
        finally:
            self._active = False

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or event != "open":
            return
        path, _, flags = arguments
        if isinstance(path, int) or flags & (os.O_WRONLY | os.O_RDWR):
            return
        frame = sys._getframe(1)
        while frame is not None:
            file = _resolved(frame.f_code.co_filename)
            if file in self.code:
                self.opened[file].add(Path(os.fsdecode(path)).absolute())
                return
            if file.startswith("<frozen importlib"):  # an import of other code opens its files
                return
            frame = frame.f_back  # type: ignore[assignment]


@cache
def _watch() -> _Watch:
    return _Watch()


@cache
def _resolved(file: str) -> str:
    return file if file.startswith("<") else os.path.realpath(file)


def _counts(path: Path, left_out: Sequence[Path]) -> bool:
    """Return whether a file may be data: it is regular, and neither code nor installed nor in a cache."""
    path = path.resolve()
    folders = [*left_out, cache_folder().resolve(), Path(sys.prefix), Path(sys.base_prefix)]
    inside = any(path.is_relative_to(folder) for folder in folders)
    is_special = not _NOT_DATA.isdisjoint(path.parts[1:2]) or _CACHES in path.parts
    return path.is_file() and path.suffix not in _CODE and not inside and not is_special


def _name(path: Path) -> str:
    """Return the path relative to the current folder, if the file is inside it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
