"""File locks that keep two processes from training the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from actlab.studies.plan import Run

FOLDER = ".locks"
LOOK = 0.05  # seconds to wait for a lock: `is_held` holds a free lock for a moment, and does not train


@contextmanager
def deciding(root: Path) -> Iterator[None]:
    """Hold the lock under which one process at a time decides which runs form a stack."""
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".deciding.lock"):
        yield


def holding(root: Path, runs: Sequence[Run]) -> AbstractContextManager[bool]:
    """Hold the locks of all given runs or of none; see `holding_names`."""
    return holding_names(root, [run.id for run in runs])


@contextmanager
def holding_names(root: Path, names: Sequence[str]) -> Iterator[bool]:
    """Hold the locks of all runs with these ids or of none; the locks of a dead process are free.

    Yields:
        True if the locks are held; False if another process trains one of the runs.
    """
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            for name in names:
                held.enter_context(FileLock(_file(root, name), timeout=LOOK))
        except Timeout:
            held.close()
            yield False
        else:
            yield True


def is_held(root: Path, name: str) -> bool:
    """Return whether a process holds the lock of a run, that is, trains or evaluates it."""
    file = _file(root, name)
    if not file.exists():
        return False
    try:
        with FileLock(file, timeout=0):
            return False
    except Timeout:
        return True


def _file(root: Path, name: str) -> Path:
    return root / FOLDER / f"{name}.lock"
