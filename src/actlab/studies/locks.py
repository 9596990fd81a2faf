"""File locks that keep two processes, on one machine or several, from training the same run.

Each run has a lock. Locks are ``flock`` locks, which the kernel frees when a process ends for any
reason. Some network file systems ignore them, or keep them to one machine; there a study is trained
in shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from actlab.errors import ActlabError
from actlab.storage.files import regular

FOLDER, PROBE = ".locks", "probe"
DECIDING, MEASURING, WRITING = "deciding", "measuring", "writing"  # what one process does at a time
LOOK = (
    0.05  # seconds to wait for a lock: `is_held` holds a free lock for a moment, and does not train
)
PAUSE = 2.0  # seconds between looks at what other processes hold
# Mount options under which locks of one host are invisible to others: NFS, Lustre.
LOCAL = {"nolock", "localflock", "local_lock=all", "local_lock=flock"}


def check(root: Path) -> None:
    """Raise an ActlabError unless a lock in a study's folder keeps other processes away on all its machines."""
    path = root / FOLDER / PROBE
    path.parent.mkdir(parents=True, exist_ok=True)
    reason = ""
    if options := local_options(path.resolve(), _mounts()):
        reason = f"mounted with {', '.join(sorted(options))}"
    else:
        try:
            # Another open file, as of a process
            again = FileLock(path, timeout=0, fallback_to_soft=False)
            with FileLock(path, fallback_to_soft=False), suppress(Timeout), again:
                reason = "two processes would hold the same lock"
        except (OSError, NotImplementedError) as error:
            reason = str(error)
    if reason:
        raise ActlabError(
            f"file locks do not work in {root} ({reason}): give each start its share of the runs, "
            "--shard 0/4, --shard 1/4 and so on"
        )


def local_options(path: Path, mounts: str) -> set[str]:
    """Return those options of a path's mount point under which its locks hold on one host only.

    >>> local_options(Path("/a/runs"), "srv:/ / nfs rw 0 0" + chr(10) + "srv:/a /a nfs rw,nolock 0 0")
    {'nolock'}
    """
    lines = [line.split() for line in mounts.splitlines()]
    above = {point: options for _, point, _, options, *_ in lines if path.is_relative_to(point)}
    return LOCAL.intersection(above[max(above, key=len)].split(",")) if above else set()


def _mounts() -> str:
    path = Path("/proc/self/mounts")
    return regular(path).read_text(encoding="utf-8") if path.exists() else ""


@contextmanager
def alone(root: Path, what: str) -> Iterator[None]:
    """Wait for a lock of the whole study and hold it, for `DECIDING`, `MEASURING` or `WRITING`.

    A line says so after `PAUSE` seconds.
    """
    with ExitStack() as held:
        try:
            held.enter_context(_lock(root, what, PAUSE))
        except Timeout:
            print(f"waiting for another process, which is {what} in {root}", flush=True)
            held.enter_context(_lock(root, what, -1))
        yield


@contextmanager
def holding(root: Path, runs: Iterable[str]) -> Iterator[bool]:
    """Hold the locks of all these runs, or of none if another process holds one; yield whether held."""
    with ExitStack() as held:
        try:
            for name in runs:
                held.enter_context(_lock(root, name, LOOK))
            free = True
        except Timeout:
            held.close()
            free = False
        yield free


def is_held(root: Path, run: str) -> bool:
    """Return whether a process holds the lock of a run, that is, trains or evaluates it."""
    if not (root / FOLDER / f"{run}.lock").exists():
        return False
    try:
        with _lock(root, run, 0):
            return False
    except Timeout:
        return True


def _lock(root: Path, name: str, timeout: float) -> FileLock:
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    return FileLock(root / FOLDER / f"{name}.lock", timeout=timeout)
