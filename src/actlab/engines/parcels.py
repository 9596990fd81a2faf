"""Parcels: the files of a job that have changed on a node, written at home in the order of training.

A parcel is a tar of regular files whose names are relative to the study's folder. Home writes only names below
the job's own folders.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular, write_atomically

_PARTIAL = re.compile(r"\..*\.partial")  # hidden folders of `actlab.storage.files.temporary`
# Training writes in this order, so a killed process leaves a prefix. The last pattern that matches counts.
_ORDER = (
    ".*",  # config, rows, unit statistics
    "[^/]+/checkpoints/.*",
    r"[^/]+/checkpoints/last\.ckpt",
    r"[^/]+/(metrics|units)\.parquet",
    r"[^/]+/(failed|result)\.json",
    "stacks/.*",
)


class Parcel(NamedTuple):
    """What has changed in the folders of a job.

    Args:
        content: tar of new and changed files.
        gone: names of deleted files.
        stacks: ids of the stacks into which the job has been split; None if it has not been split.
    """

    content: bytes
    gone: tuple[str, ...] = ()
    stacks: tuple[str, ...] | None = None


class Changes:
    """Finds what has changed in the folders of a job since the last parcel.

    Args:
        root: the study's folder on the node.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sent = self._stamps()

    def parcel(self, stacks: Sequence[str] | None = None) -> Parcel:
        """Return the changes since the last call; see `Parcel`."""
        before, self.sent = self.sent, self._stamps()
        changed = {n: self.root / n for n, stamp in self.sent.items() if before.get(n) != stamp}
        gone = tuple(sorted(before.keys() - self.sent.keys()))
        return Parcel(packed(changed), gone, None if stacks is None else tuple(stacks))

    def _stamps(self) -> dict[str, tuple[int, ...]]:
        """Return size, time and inode of each file below the folders in the study's folder, by its name."""
        folders = [path.name for path in self.root.iterdir() if path.is_dir() and path.name[0] != "."]
        states = {name: (self.root / name).stat() for name in files_in(self.root, sorted(folders))}
        return {name: (state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states.items()}


def files_in(root: Path, folders: Iterable[str]) -> Iterator[str]:
    """Yield the names of all files below some folders in ``root``, without those that are being written."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root)
            if path.is_file() and not any(_PARTIAL.fullmatch(part) for part in name.parts):
                yield name.as_posix()


def packed(files: Mapping[str, Path]) -> bytes:
    """Return a tar of files by name; links are packed as the files to which they lead."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in files.items():
            content = regular(path).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def unpacked(content: bytes, folders: Iterable[str]) -> dict[str, bytes]:
    """Return the files of a tar by name, after checking all names.

    Args:
        content: the tar.
        folders: names of the folders in which files are allowed.

    Raises:
        ActlabError: if the tar is damaged, or holds a link, a device or a name outside the folders.
    """
    folders, found = tuple(folders), {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for entry in tar:
                check_name(entry.name, folders)
                file = tar.extractfile(entry) if entry.isreg() else None
                if file is None:
                    raise ActlabError(
                        f"a node sent {entry.name!r}, which is not a regular file: nothing was written"
                    )
                found[entry.name] = file.read()
    except tarfile.TarError as error:
        raise ActlabError(f"a node sent a damaged tar ({one_line(error)}): nothing was written") from error
    return found


def check_name(name: str, folders: Iterable[str]) -> None:
    """Check that a name lies below one of some folders.

    Raises:
        ActlabError: if it does not; the message names it.
    """
    path = PurePosixPath(name)
    plain = path.as_posix() == name and ".." not in path.parts and not {"\\", "\0"}.intersection(name)
    if not (plain and any(PurePosixPath(folder) in path.parents for folder in folders)):
        allowed = ", ".join(folders)
        raise ActlabError(
            f"a node sent {name[:200]!r}, which is outside the folders of its job ({allowed[:300]})"
        )


def write(parcel: Parcel, root: Path, folders: Sequence[str]) -> None:
    """Write a parcel in the order of training, each file atomically.

    Args:
        parcel: the changes.
        root: the study's folder.
        folders: names of the job's folders.

    Raises:
        ActlabError: if a name is not allowed; nothing is written then.
    """
    files = unpacked(parcel.content, folders)
    for name in parcel.gone:
        check_name(name, folders)
    for name in sorted(files, key=_rank):
        write_atomically(root / name, files[name])
    for name in sorted(parcel.gone, key=_rank):
        (root / name).unlink(missing_ok=True)


def _rank(name: str) -> tuple[int, str]:
    """Return the position of a file in the order of writing."""
    return max(n for n, pattern in enumerate(_ORDER) if re.fullmatch(pattern, name)), name
