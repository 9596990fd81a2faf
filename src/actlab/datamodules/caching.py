"""Caches of tensors: made once, checked by a digest, memory-mapped after that."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from actlab.errors import ActlabError, one_line
from actlab.files import remove_partials, replacing

_DIGEST = "digest"


class Cached(NamedTuple):
    """What a cache file holds: tensors by name, and texts beside them."""

    tensors: dict[str, Tensor]
    facts: dict[str, str]


def cache_folder(cache_dir: str | None) -> Path:
    """Where tensors are kept."""
    return Path(cache_dir or os.environ.get("ACTLAB_CACHE") or "~/.cache/actlab").expanduser()


def cached(path: Path, names: Sequence[str], make: Callable[[], Cached]) -> Cached:
    """The content of a cache file, made where it is not there or damaged; two processes make it once.

    Args:
        path: of the file, which names what it was made of.
        names: of the tensors that are needed.
        make: called while the cache is locked; it may write beside the file.

    Raises:
        ActlabError: when the cache cannot be written; whatever ``make`` raises.
    """
    if found := read(path, names):
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if found := read(path, names):  # another process has made it meanwhile
                return found
            made = make()
            write(path, made)
    except (OSError, SafetensorError) as error:
        raise ActlabError(
            f"cannot write the cache {path.parent} ({one_line(error)}); give another folder by "
            "data.cache_dir or $ACTLAB_CACHE"
        ) from error
    return read(path, names) or made


def read(path: Path, names: Sequence[str]) -> Cached | None:
    """The content of a cache file, memory-mapped; None when there is none or it is damaged."""
    try:
        status = path.stat()
        with safe_open(path, framework="pt") as file:
            facts = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in names}
            whole = facts.pop(_DIGEST) == _digest_at(path, status.st_size, status.st_mtime_ns)
            return Cached(tensors, facts) if whole else None
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def write(path: Path, content: Cached) -> None:
    """Write to a file beside ``path`` and rename it: a reader sees all or nothing."""
    remove_partials(path.parent)
    with replacing(path) as partial:
        save_file(content.tensors, partial, metadata={**content.facts, _DIGEST: _digest(content.tensors)})


@lru_cache(maxsize=16)
def _digest_at(path: Path, size: int, time: int) -> str:
    """Digest of the tensors in a file, computed once in a process."""
    with safe_open(path, framework="pt") as file:
        return _digest({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()
