"""Cache tensors in safetensors files, computed by one process and memory-mapped by all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.storage.files import regular, replacing
from actlab.storage.paths import cache_folder

Tensors = dict[str, Tensor]
# Path, size and time of the files whose digest has been checked
_VERIFIED = set[tuple[Path, int, int]]()


def made_once(
    kind: str, content: Any, cache_dir: str | None, make: Callable[[], Tensors]
) -> Tensors:
    """Return the tensors of a cache file, memory-mapped; make them if it is missing or damaged.

    Args:
        kind: begins the name of the file.
        content: what determines the tensors; a digest of its ``repr`` ends the name.
        cache_dir: folder of the file, None for the default.
        make: returns the tensors. One process calls it, others wait.

    Raises:
        ActlabError: if the folder cannot be written.
    """
    # Read the file of an earlier use.
    key = hashlib.sha256(repr(content).encode()).hexdigest()[:24]
    path = cache_folder(cache_dir) / f"{kind}-{key}.safetensors"
    cached = _read(path)
    if cached:
        return cached

    # Wait for other processes.
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{path}.lock").acquire()
    with lock:
        cached = _read(path)  # another process may have written it
        if cached:
            return cached

        # Make the tensors.
        tensors = make()
        with writing(path.parent):
            write_cache(path, tensors)
        return _read(path) or tensors


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Report what fails within the block as a cache folder that cannot be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ActlabError(
            f"cannot write the cache {folder} ({one_line(error)}). Set another folder with "
            "data.cache_dir or $ACTLAB_CACHE."
        ) from error


def write_cache(path: Path, tensors: Tensors) -> None:
    """Write a cache file with a digest of its tensors, atomically."""
    with replacing(path) as partial:
        save_file(tensors, partial, metadata={"digest": digest_of_tensors(tensors)})


def _read(path: Path) -> Tensors | None:
    """Return the tensors of a cache file, None if it is missing or damaged."""
    try:
        state = path.stat()
        with safe_open(regular(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            digest = (file.metadata() or {})["digest"]
    except (OSError, SafetensorError, KeyError, ValueError):
        return None

    # Check the digest once in a process.
    version = path, state.st_size, state.st_mtime_ns
    if version not in _VERIFIED and digest_of_tensors(tensors) != digest:
        return None
    _VERIFIED.add(version)
    return tensors


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 digest of CPU tensors, their names, shapes and dtypes."""
    digest = hashlib.sha256(b"[]")  # of earlier files' metadata; retains their digests
    for name in sorted(tensors):
        tensor = tensors[name]
        header = f"{name} {tuple(tensor.shape)} {tensor.dtype}"
        digest.update(header.encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
