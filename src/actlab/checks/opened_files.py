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


def find(
    runs: Sequence[Run], known_parts: Collection[str], root: Path
) -> dict[str, list[str]]:
    """Build the unknown parts of some runs; return the files that their code opens.

    Call this in a process that has not imported the code, since Python imports a module once.

    Args:
        runs: any runs of a study.
        known_parts: keys of parts that are left out.
        root: the study's folder, whose files do not count, nor do files that a run names.

    Returns:
        Paths by key of the part. Parts without users' code are left out.
    """
    watch = _watch()
    files: dict[str, list[str]] = {}
    for run in runs:
        # Find the new parts.
        code_by_part = {}
        for key, part in parts_of(run.config, run.sources).items():
            code = code_of(part)
            if code and key not in known_parts and key not in files:
                code_by_part[key] = code
        if not code_by_part:
            continue

        # Build the run. Third-party code may raise anything, and again in its run.
        watch.code.update(*code_by_part.values())
        with watch.watching(), suppress(Exception):
            experiment = experiments.build(run.config)
            experiment.data.trainer = experiment.trainer
            experiments.prepare(experiment.data)
            experiment.data.setup("fit")

        # Collect the opened files.
        left_out = [root.resolve()]
        for source in run.sources:
            if Path(source).exists():
                left_out.append(Path(source).resolve())
        for key, code in code_by_part.items():
            files[key] = watch.names(code, left_out)
    return files


class _Watch:
    """Notes files that are opened for reading, by the innermost executed file of ``code``."""

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

    def names(self, code: Collection[str], left_out: Sequence[Path]) -> list[str]:
        """Return the names of the data files that some files of code have opened."""
        names = set()
        for file in code:
            for path in self.opened[file]:
                if _counts(path, left_out):
                    names.add(_name(path))
        return sorted(names)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Only files that are opened by path, for reading.
        if not self._active or event != "open":
            return
        path, _, flags = arguments
        if isinstance(path, int) or flags & (os.O_WRONLY | os.O_RDWR):
            return

        # Look for users' code among the callers, innermost first.
        frame = sys._getframe(1)
        while frame is not None:
            file = _resolved(frame.f_code.co_filename)
            if file in self.code:
                self.opened[file].add(Path(os.fsdecode(path)).absolute())
                return
            if file.startswith("<frozen importlib"):
                # An import of other code opens its files.
                return
            frame = frame.f_back  # type: ignore[assignment]


@cache
def _watch() -> _Watch:
    return _Watch()


@cache
def _resolved(file: str) -> str:
    return file if file.startswith("<") else os.path.realpath(file)


def _counts(path: Path, left_out: Sequence[Path]) -> bool:
    """Return whether a file may be data: neither code, nor installed, nor in a cache."""
    # A link counts as the file it points to
    path = path.resolve()
    if not path.is_file() or path.suffix in _CODE:
        return False

    # Installed files and caches are the same for every run.
    folders = [
        *left_out,
        cache_folder().resolve(),
        Path(sys.prefix),
        Path(sys.base_prefix),
    ]
    if any(path.is_relative_to(folder) for folder in folders):
        return False

    return _NOT_DATA.isdisjoint(path.parts[1:2]) and _CACHES not in path.parts


def _name(path: Path) -> str:
    """Return the path relative to the current folder, if the file is inside it."""
    current_folder = Path.cwd()
    if path.is_relative_to(current_folder):
        path = path.relative_to(current_folder)
    return str(path)
