"""Who trains which run: each is locked while a process works on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from actlab.studies.plan import Run


@contextmanager
def deciding(root: Path) -> Iterator[None]:
    """Let one process at a time decide which runs form a stack; the next one finds what was decided."""
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".deciding.lock"):
        yield


@contextmanager
def holding(root: Path, runs: Sequence[Run]) -> Iterator[bool]:
    """Hold the locks of some runs, all or none; a process that dies holds none.

    Yields:
        Whether they are held: False when another process trains one of them.
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
