"""File locks that keep two processes from training the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from actlab.studies.plan import Run


@contextmanager
def deciding(root: Path) -> Iterator[None]:
    """Hold the lock under which one process at a time decides which runs form a stack."""
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".deciding.lock"):
        yield


@contextmanager
def holding(root: Path, runs: Sequence[Run]) -> Iterator[bool]:
    """Hold the locks of all given runs or of none; the locks of a dead process are free.

    Yields:
        True if the locks are held; False if another process trains one of the runs.
    """
    folder = root / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            for run in runs:
                held.enter_context(FileLock(folder / f"{run.id}.lock", timeout=0))
        except Timeout:
            held.close()
            yield False
        else:
            yield True
