"""Tensors that took time to make, kept as safetensors: made by one process, mapped into memory by all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from actlab.datamodules.images import words
from actlab.errors import ActlabError
from actlab.storage.files import regular, replacing


class Cached(NamedTuple):
    """What a cache file holds.

    Args:
        tensors: by name.
        metadata: further facts, as text.
    """

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def made_once(path: Path, names: Sequence[str], make: Callable[[], Cached]) -> Cached:
    """What ``path`` holds, memory-mapped; made first when there is nothing or it is damaged.

    Of several processes that come at once, one makes it and the others wait.

    Args:
        path: of the cache file; what it holds must follow from its name.
        names: of the tensors.
        make: makes them.

    Raises:
        ActlabError: when the file cannot be written, and whatever ``make`` raises.
    """
    if cached := read_cache(path, names):
        return cached
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if cached := read_cache(path, names):  # another process has made it meanwhile
                return cached
            made = make()
            write_cache(path, made)
    except (OSError, SafetensorError) as error:
        raise unwritable(path.parent, error) from error
    return read_cache(path, names) or made


def unwritable(folder: Path, error: BaseException) -> ActlabError:
    """The error for a cache that cannot be written."""
    return ActlabError(
        f"cannot write the cache {folder} ({words(error)}); give another folder by data.cache_dir or "
        "$ACTLAB_CACHE"
    )


def read_cache(path: Path, names: Sequence[str]) -> Cached | None:
    """The named tensors of a cache file, memory-mapped; None when there are none or the file is damaged."""
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
    """Write to a file beside ``path`` and rename it: a reader sees all or nothing."""
    digest = digest_of_tensors(content.tensors, content.metadata)
    with replacing(path) as partial:
        save_file(content.tensors, partial, metadata={**content.metadata, "digest": digest})


@lru_cache(maxsize=16)
def _digest_at(path: Path, size: int, time: int) -> str:
    """Digest of what a cache file holds, computed once in a process."""
    with safe_open(regular(path), framework="pt") as file:
        metadata = {key: value for key, value in (file.metadata() or {}).items() if key != "digest"}
        return digest_of_tensors({name: file.get_tensor(name) for name in file.keys()}, metadata)  # noqa: SIM118


def digest_of_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Digest of tensors on the CPU, with their names, shapes and types, and of the metadata beside them."""
    digest = hashlib.sha256(repr(sorted((metadata or {}).items())).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()
