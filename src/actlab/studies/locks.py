"""File locks that keep two processes, on one machine or several, from training the same run.

A stack has one lock, and so has each run outside stacks. Locks are ``flock`` locks, which the kernel frees when
a process ends for any reason. Some network file systems ignore them. In such a folder ``study run --wait``
chooses strict soft locks: files that stay after a process was killed, until ``actlab study unlock``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import BaseFileLock, FileLock, StrictSoftFileLock, Timeout
from typing_extensions import TypedDict

from actlab.errors import ActlabError
from actlab.storage.files import read_json, regular, write_json
from actlab.studies import stacks

FOLDER, KIND, PROBE = ".locks", "kind.json", "probe"
DECIDING, MEASURING, WRITING = "deciding", "measuring", "writing"  # what one process does at a time
LOOK = 0.05  # seconds to wait for a lock: `is_held` holds a free lock for a moment, and does not train
PAUSE = 2.0  # seconds between looks at what other processes hold
# Mount options under which locks of one host are invisible to others: NFS, Lustre.
LOCAL = {"nolock", "localflock", "local_lock=all", "local_lock=flock"}
_TRY = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


class _Kind(TypedDict):
    kind: Literal["soft"]


class Claim(NamedTuple):
    """A soft lock that a process holds, or left behind.

    Args:
        lock: name of the lock: the id of a run or of a stack.
        names: names of its files.
        host: host of the process.
        process: its id.
        ended: whether it is known to have ended; processes of other hosts cannot be asked.
    """

    lock: str
    names: tuple[str, ...]
    host: str
    process: int
    ended: bool


def settle(root: Path) -> str:
    """Choose the kind of locks in a study's folder, for all processes on all hosts.

    Returns:
        A line to print if locks are soft, else "".

    Raises:
        ActlabError: if ``flock`` does not work here, but other processes have used it in this folder.
    """
    folder = root / FOLDER
    used = any(folder.glob("*.lock"))
    folder.mkdir(parents=True, exist_ok=True)
    if not is_soft(root):
        if not (reason := fault_of_flock(folder / PROBE)):
            return ""
        if used:
            raise ActlabError(
                f"file locks do not work in {root} on {socket.gethostname()} ({reason}), but other processes "
                f"have used them there: wait until none trains there and delete {folder}"
            )
        write_json(folder / KIND, {"kind": "soft"})
    return f"{root} uses lock files; after a process was killed, `actlab study unlock` frees its runs"


def is_soft(root: Path) -> bool:
    """Return whether a study's folder uses soft locks.

    Raises:
        DamagedError: if the record of the kind is damaged.
    """
    path = root / FOLDER / KIND
    return path.exists() and read_json(path, _Kind, "restore it: it says soft")["kind"] == "soft"


def fault_of_flock(path: Path) -> str:
    """Return why ``flock`` does not exclude other processes from a file; "" if it does."""
    if options := local_options(path.resolve(), _mounts()):
        return f"mounted with {', '.join(sorted(options))}"
    path.touch()
    try:
        with FileLock(path, fallback_to_soft=False):
            done = subprocess.run([sys.executable, "-S", "-c", _TRY, path], capture_output=True, check=False)
    except (OSError, NotImplementedError) as error:
        return str(error)
    return "" if done.returncode else "two processes held the same lock"


def local_options(path: Path, mounts: str) -> set[str]:
    """Return those options of a path's mount point under which its locks hold on one host only.

    Args:
        path: an absolute path.
        mounts: content of ``/proc/self/mounts``.

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
    """Wait for a lock of the whole study and hold it.

    Args:
        root: the study's folder.
        what: `DECIDING` which runs form a stack, `MEASURING` costs, or `WRITING` tables and figures.
    """
    with _lock(root, what, timeout=-1):
        yield


@contextmanager
def holding(root: Path, runs: Sequence[str]) -> Iterator[bool]:
    """Hold the locks of all runs with these ids or of none; a run in a stack has the lock of its stack.

    Yields:
        True if the locks are held; False if another process trains one of the runs.
    """
    with ExitStack() as held:
        names = stacks.locks(root, runs)
        try:
            for name in names:
                held.enter_context(_lock(root, name, LOOK))
            free = stacks.locks(root, runs) == names  # a process may have formed a stack meanwhile
        except Timeout:
            free = False
        if not free:
            held.close()
        yield free


def is_held(root: Path, run: str) -> bool:
    """Return whether a process holds the lock of a run, that is, trains or evaluates it."""
    return any(is_locked(root, name) for name in stacks.locks(root, [run]))


def is_locked(root: Path, name: str) -> bool:
    """Return whether a process holds the lock of this name."""
    if not _file(root, name).exists():
        return False
    if is_soft(root):
        return bool(StrictSoftFileLock(_file(root, name)).claims)
    try:
        with _lock(root, name, timeout=0):
            return False
    except Timeout:
        return True


def claims(root: Path) -> list[Claim]:
    """Return all soft locks in a study's folder."""
    found: dict[str, Claim] = {}
    for path in sorted((root / FOLDER).glob("*.lock")) if is_soft(root) else ():
        for file in StrictSoftFileLock(path).claims:
            names = found[file.token].names if file.token in found else ()
            ended = _has_ended(file.hostname, file.pid)
            found[file.token] = Claim(path.stem, (*names, file.name), file.hostname, file.pid, ended)
    return [*found.values()]


def _has_ended(host: str, process: int) -> bool:
    """Return whether a process is known to have ended."""
    if host != socket.gethostname():
        return False
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def unlock(root: Path, claim: Claim) -> None:
    """Free a soft lock, whatever its process does."""
    for name in claim.names:
        with suppress(FileNotFoundError):  # freed by its process meanwhile
            StrictSoftFileLock(_file(root, claim.lock)).force_break(name)


def _lock(root: Path, name: str, timeout: float) -> BaseFileLock:
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    kind = StrictSoftFileLock if is_soft(root) else FileLock
    return kind(_file(root, name), timeout=timeout)


def _file(root: Path, name: str) -> Path:
    return root / FOLDER / f"{name}.lock"
