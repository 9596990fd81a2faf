"""Where datasets come from: the hub or a local folder in its layout; decoded once into a cache of tensors."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from actlab.errors import ActlabError, unknown

FORMAT = 1  # of the cache: raised when decoding changes
IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "fine_label", "labels")


class Images(NamedTuple):
    """Decoded images.

    Args:
        tensors: ``{split}_images`` uint8 ``(N, C, H, W)`` and ``{split}_labels`` int64 ``(N,)``.
        num_classes: K.
    """

    tensors: dict[str, Tensor]
    num_classes: int


def load_images(
    dataset: str,
    splits: Sequence[str],
    channels: int,
    label: str | None = None,
    cache_dir: str | None = None,
) -> Images:
    """Decode a dataset of images, or map its cache into memory when it was decoded before.

    Args:
        dataset: a hub id, or a local folder in the hub's layout.
        splits: those that are needed.
        channels: 1 for greyscale, 3 for colour.
        label: column of the labels; by default the first of `LABEL_COLUMNS` that is there.
        cache_dir: by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.

    Raises:
        ActlabError: for a dataset that is missing, damaged or of another kind.
    """
    folder = local_folder(dataset)
    tables = None if folder else open_dataset(dataset, dataset)
    source = content_digest(folder) if folder else "".join(tables[s]._fingerprint for s in tables or ())
    key = hashlib.sha256(repr((FORMAT, source, list(splits), channels, label)).encode()).hexdigest()[:24]
    cache = cache_folder(cache_dir) / f"images-{key}.safetensors"
    if cached := read_cache(cache):
        return cached
    cache.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{cache}.lock"):
        if cached := read_cache(cache):  # another process has decoded it meanwhile
            return cached
        images = decode(tables or open_dataset(str(folder), dataset), splits, channels, label, dataset)
        partial = cache.with_suffix(f".{os.getpid()}.partial")
        save_file(images.tensors, partial, metadata={"num_classes": str(images.num_classes)})
        partial.replace(cache)
    return read_cache(cache) or images


def local_folder(dataset: str) -> Path | None:
    """The folder that ``dataset`` names, or None for a hub id.

    Raises:
        ActlabError: when it is written as a path and there is no such folder.
    """
    path = Path(dataset).expanduser()
    if path.is_dir():
        return path
    if dataset.startswith((".", "~", os.sep)) or dataset.count("/") != 1 or path.exists():
        raise ActlabError(f"dataset {dataset!r} is no folder; give a folder in the hub's layout (parquet files), a hub "
                          "id such as ylecun/mnist, or set data.sample to true")  # fmt: skip
    return None


def content_digest(folder: Path) -> str:
    """Digest of the bytes of all parquet files below a folder, with their names.

    Raises:
        ActlabError: when there are none.
    """
    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise ActlabError(f"{folder} holds no parquet files; expected the hub's layout, such as "
                          "mnist/train-00000-of-00001.parquet")  # fmt: skip
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(folder)).encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def cache_folder(cache_dir: str | None) -> Path:
    """Where decoded tensors are kept."""
    return Path(cache_dir or os.environ.get("ACTLAB_CACHE") or "~/.cache/actlab").expanduser()


def read_cache(path: Path) -> Images | None:
    """The cached tensors, memory-mapped; None when there are none or the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
            return Images(tensors, int((file.metadata() or {})["num_classes"]))
    except (FileNotFoundError, SafetensorError, KeyError):
        return None


def open_dataset(name: str, given: str) -> Any:
    """The splits of a dataset, undecoded.

    Raises:
        ActlabError: when it cannot be had or read.
    """
    import datasets
    import pyarrow

    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(name)
    except (datasets.exceptions.DatasetGenerationError, datasets.exceptions.DataFilesNotFoundError,
            pyarrow.ArrowInvalid, ValueError) as error:  # fmt: skip
        cause = error.__cause__ or error
        raise ActlabError(
            f"dataset {given!r} is damaged or incomplete: {_words(cause)}; fetch its files anew"
        ) from error
    except (ConnectionError, FileNotFoundError, OSError) as error:
        raise ActlabError(f"dataset {given!r} cannot be fetched from the hub ({_words(error)}); give a local folder in "
                          "the hub's layout, or set data.sample to true") from error  # fmt: skip


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def decode(tables: Any, splits: Sequence[str], channels: int, label: str | None, given: str) -> Images:
    """All images and labels of some splits as tensors."""
    import datasets

    tensors: dict[str, Tensor] = {}
    classes = 0
    for split in splits:
        if split not in tables:
            raise unknown("split", split, list(tables), f"In dataset {given!r}.")
        table = tables[split]
        image_column = _column(table.column_names, IMAGE_COLUMNS, "image", given)
        label_column = _column(table.column_names, (label,) if label else LABEL_COLUMNS, "label", given)
        encoded = table.cast_column(image_column, datasets.Image(decode=False)).with_format("arrow")[:]
        cells = encoded.column(image_column).to_pylist()
        with ThreadPoolExecutor() as pool:
            arrays = list(
                pool.map(lambda item: _array(*item, channels, given), enumerate(cells), chunksize=500)
            )
        shapes = {array.shape for array in arrays}
        if len(shapes) != 1:
            raise ActlabError(
                f"{split} images of dataset {given!r} have {len(shapes)} different sizes; one is needed"
            )
        labels = encoded.column(label_column).to_numpy()
        if labels.dtype.kind not in "iu" or labels.min() < 0:
            raise ActlabError(
                f"column {label_column!r} of dataset {given!r} holds labels that are missing or negative"
            )
        tensors[f"{split}_images"] = torch.from_numpy(np.stack(arrays))
        tensors[f"{split}_labels"] = torch.from_numpy(labels.astype(np.int64))
        feature = table.features[label_column]
        classes = max(classes, int(labels.max()) + 1, getattr(feature, "num_classes", None) or 0)
    return Images(tensors, classes)


def _column(names: Sequence[str], wanted: Sequence[str], kind: str, given: str) -> str:
    for name in wanted:
        if name in names:
            return name
    raise ActlabError(f"dataset {given!r} has no {kind} column: looked for {', '.join(wanted)} among "
                      f"{', '.join(names)}")  # fmt: skip


def _array(number: int, cell: dict[str, Any] | None, channels: int, given: str) -> np.ndarray[Any, Any]:
    """One image, uint8 ``(C, H, W)``."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO((cell or {})["bytes"]))
        image.load()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ActlabError(f"image {number} of dataset {given!r} is damaged; fetch its files anew") from error
    if (bands := len(image.getbands())) != channels:
        raise ActlabError(f"image {number} of dataset {given!r} has {bands} channels; {channels} needed")
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)
