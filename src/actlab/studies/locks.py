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
# What one process does at a time.
DECIDING, MEASURING, WRITING = (
    "deciding",
    "measuring",
    "writing",
)
# Seconds that `holding` waits for a lock, which `is_held` of another process may hold
# for a moment only to see whether it is free
MOMENT = 0.05
PAUSE = 2.0  # seconds between looks at what other processes hold
# Mount options under which locks of one host are invisible to others: NFS, Lustre.
LOCAL = {"nolock", "localflock", "local_lock=all", "local_lock=flock"}


def check(root: Path) -> None:
    """Check that a lock in a study's folder keeps other processes away, on all machines.

    Raises:
        ActlabError: the locks do not work.
    """
    path = root / FOLDER / PROBE
    path.parent.mkdir(parents=True, exist_ok=True)

    # Find a reason why they would not work
    reason = ""
    options = local_options(path.resolve(), _mounts())
    if options:
        reason = f"mounted with {', '.join(sorted(options))}"
    else:
        try:
            # A second open file, as another process has it
            second = FileLock(path, timeout=0, fallback_to_soft=False)
            with FileLock(path, fallback_to_soft=False), suppress(Timeout), second:
                reason = "two processes would hold the same lock"
        except (OSError, NotImplementedError) as error:
            reason = str(error)

    # The remedy works without locks
    if reason:
        raise ActlabError(
            f"file locks do not work in {root} ({reason}). Start each process with its own share "
            "of the runs: --shard 0/4, --shard 1/4 and so on."
        )


def local_options(path: Path, mounts: str) -> set[str]:
    """Return the mount options of a path under which its locks hold only on one host.

    >>> mounts = ["srv:/ / nfs rw 0 0", "srv:/a /a nfs rw,nolock 0 0"]
    >>> local_options(Path("/a/runs"), chr(10).join(mounts))
    {'nolock'}
    """
    options_by_mount: dict[str, str] = {}
    for line in mounts.splitlines():
        _, mount, _, options, *_ = line.split()
        if path.is_relative_to(mount):
            options_by_mount[mount] = options
    if not options_by_mount:
        return set()

    # The deepest mount decides
    nearest = max(options_by_mount, key=len)
    return LOCAL.intersection(options_by_mount[nearest].split(","))


def _mounts() -> str:
    path = Path("/proc/self/mounts")
    if not path.exists():
        return ""
    return regular(path).read_text(encoding="utf-8")


@contextmanager
def alone(root: Path, activity: str) -> Iterator[None]:
    """Wait for a lock of the whole study and hold it, for `DECIDING`, `MEASURING` or `WRITING`.

    After `PAUSE` seconds a line is printed.
    """
    with ExitStack() as locks:
        try:
            locks.enter_context(_lock(root, activity, PAUSE))
        except Timeout:
            print(
                f"waiting for another process, which is {activity} in {root}",
                flush=True,
            )
            locks.enter_context(_lock(root, activity, -1))
        yield


@contextmanager
def holding(root: Path, runs: Iterable[str]) -> Iterator[bool]:
    """Hold the locks of all these runs, or none if another process holds one.

    Yields:
        whether the locks are held.
    """
    with ExitStack() as locks:
        try:
            for name in runs:
                locks.enter_context(_lock(root, name, MOMENT))
            are_held = True
        except Timeout:
            locks.close()
            are_held = False
        yield are_held


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
