"""Cache tensors in safetensors files, computed by one process and memory-mapped by all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular, replacing


class Cached(NamedTuple):
    """The content of a cache file.

    Args:
        tensors: by name.
        metadata: further values, as strings.
    """

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def made_once(path: Path, names: Sequence[str], make: Callable[[], Cached]) -> Cached:
    """Return the content of a cache file, memory-mapped; compute it first if the file is missing or damaged.

    If several processes call this at once, one computes the content and the others wait.

    Args:
        path: of the cache file; its name must determine its content.
        names: of the tensors to return.
        make: computes the content.

    Raises:
        ActlabError: if the file cannot be written. Errors of ``make`` are not caught.
    """
    if cached := read_cache(path, names):
        return cached
    lock = FileLock(f"{path}.lock")
    with _writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        if cached := read_cache(path, names):  # another process has written it in the meantime
            return cached
        made = make()
        with _writing(path.parent):
            write_cache(path, made)
    finally:
        lock.release()
    return read_cache(path, names) or made


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Report what fails within the block as a cache that cannot be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise unwritable(folder, error) from error


def unwritable(folder: Path, error: BaseException) -> ActlabError:
    """Return the error for a cache folder that cannot be written."""
    return ActlabError(
        f"cannot write the cache {folder} ({one_line(error)}); give another folder by data.cache_dir or "
        "$ACTLAB_CACHE"
    )


def read_cache(path: Path, names: Sequence[str]) -> Cached | None:
    """Return the named tensors of a cache file, memory-mapped, or None if the file is missing or damaged."""
    try:
        status = path.stat()
        with safe_open(regular(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in names}
            metadata = dict(file.metadata() or {})
        whole = metadata.pop("digest") == _digest_at(path, status.st_size, status.st_mtime_ns)
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
    return Cached(tensors, metadata) if whole else None


def write_cache(path: Path, content: Cached) -> None:
    """Write a cache file atomically: a temporary file in the same folder is renamed to ``path``."""
    digest = digest_of_tensors(content.tensors, content.metadata)
    with replacing(path) as partial:
        save_file(content.tensors, partial, metadata={**content.metadata, "digest": digest})


@lru_cache(maxsize=16)
def _digest_at(path: Path, size: int, time: int) -> str:
    """Return the digest of a cache file's content, computed once per process and file state."""
    with safe_open(regular(path), framework="pt") as file:
        metadata = {key: value for key, value in (file.metadata() or {}).items() if key != "digest"}
        return digest_of_tensors({name: file.get_tensor(name) for name in file.keys()}, metadata)  # noqa: SIM118


def digest_of_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Return a SHA-256 digest of CPU tensors, their names, shapes and dtypes, and of their metadata."""
    digest = hashlib.sha256(repr(sorted((metadata or {}).items())).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()
