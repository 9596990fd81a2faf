"""Cache tensors in safetensors files, computed by one process and memory-mapped by all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from actlab.errors import ActlabError, one_line
from actlab.storage.files import cache_folder, regular, replacing

Tensors = dict[str, Tensor]


def made_once(
    kind: str, content: Any, cache_dir: str | None, names: Sequence[str], make: Callable[[], Tensors]
) -> Tensors:
    """Return the tensors of a cache file, memory-mapped; compute them first if the file is missing or damaged.

    If several processes call this at once, one computes the tensors and the others wait.

    Args:
        kind: of content, the first part of the file's name.
        content: determines the tensors, by its ``repr``.
        cache_dir: see `cache_folder`.
        names: of the tensors to return.
        make: computes the tensors.

    Raises:
        ActlabError: if the file cannot be written. Errors of ``make`` are not caught.
    """
    key = hashlib.sha256(repr(content).encode()).hexdigest()[:24]
    path = cache_folder(cache_dir) / f"{kind}-{key}.safetensors"
    if (cached := _read(path, names)) is not None:
        return cached
    lock = FileLock(f"{path}.lock")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        if (cached := _read(path, names)) is not None:  # another process has written it in the meantime
            return cached
        made = make()
        with writing(path.parent):
            write_cache(path, made)
    finally:
        lock.release()
    return made if (cached := _read(path, names)) is None else cached


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Report what fails within the block as a cache folder that cannot be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ActlabError(
            f"cannot write the cache {folder} ({one_line(error)}); give another folder by data.cache_dir or "
            "$ACTLAB_CACHE"
        ) from error


def write_cache(path: Path, tensors: Tensors) -> None:
    """Write a cache file with a digest of its tensors, atomically."""
    with replacing(path) as partial:
        save_file(tensors, partial, metadata={"digest": digest_of_tensors(tensors)})


def _read(path: Path, names: Sequence[str]) -> Tensors | None:
    """Return the named tensors of a cache file, memory-mapped, or None if the file is missing or damaged."""
    try:
        state = path.stat()
        with safe_open(regular(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in names}
            digest = (file.metadata() or {})["digest"]
        return tensors if digest == _digest_at(path, state.st_size, state.st_mtime_ns) else None
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


@lru_cache(maxsize=16)
def _digest_at(path: Path, size: int, time: int) -> str:
    """Return the digest of a cache file's tensors, computed once per process and file state."""
    with safe_open(regular(path), framework="pt") as file:
        return digest_of_tensors({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 digest of CPU tensors, their names, shapes and dtypes."""
    digest = hashlib.sha256(b"[]")  # of earlier files' metadata; keeps their digests
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()
