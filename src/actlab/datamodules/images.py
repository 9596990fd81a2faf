"""Encoded images as the hub's datasets hold them, decoded into tensors; what cannot be used is named.

Shapes: ``N`` samples, ``C H W``.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypedDict

from actlab.errors import ActlabError
from actlab.storage.files import checked, parsed, regular

IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "fine_label", "labels")
MODES = {1: "L", 3: "RGB"}  # Pillow's names of 8-bit greyscale and 8-bit colour
MAX_CLASSES = 100_000  # more is a damaged file
# What a damaged picture makes Pillow raise besides ValueError and OSError.
PICTURE_ERRORS = (
    *(SyntaxError, TypeError, EOFError, IndexError, OverflowError, struct.error, zlib.error),
    *(RuntimeError, AttributeError),
)


class _Features(TypedDict):
    features: dict[str, Any]


class _Told(TypedDict):
    """What the hub's parquet files tell of their columns."""

    info: _Features


class Images(NamedTuple):
    """Decoded images.

    Args:
        tensors: ``{split}_images`` uint8 ``(N, C, H, W)`` and ``{split}_labels`` int64 ``(N,)``.
        num_classes: K, from the labels' names where the dataset has them, else the largest label + 1.
        revision: commit of a hub dataset; None of a folder.
    """

    tensors: dict[str, Tensor]
    num_classes: int
    revision: str | None = None


def words(error: BaseException) -> str:
    """What an error says, as one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def decode(tables: Any, splits: Sequence[str], channels: int, label: str | None, given: str) -> Images:
    """All images and labels of some splits as tensors.

    Args:
        tables: a ``datasets.DatasetDict``.
        splits: those that are needed.
        channels: of each image.
        label: column of the labels, or None for the usual ones.
        given: the dataset as the user named it, for messages.

    Raises:
        ActlabError: for missing splits or columns, and for unusable images or labels.
    """
    tensors: dict[str, Tensor] = {}
    classes = 0
    for split in splits:
        if split not in tables or not len(tables[split]):
            raise ActlabError(
                f"dataset {given!r} has no {split!r} images; it needs the splits {', '.join(splits)} and has "
                f"{', '.join(tables)}"
            )
        table, where = tables[split], f"{split} split of dataset {given!r}"
        image_column = column_of(table.column_names, IMAGE_COLUMNS, "image", where)
        label_column = column_of(table.column_names, (label,) if label else LABEL_COLUMNS, "label", where)
        labels, split_classes = labels_of(table, label_column, where)
        images = _stack(_encoded(table, image_column, where), channels, where)
        tensors[f"{split}_images"], tensors[f"{split}_labels"] = images, labels
        classes = max(classes, split_classes)
    if len(shapes := {tuple(tensors[f"{split}_images"].shape[1:]) for split in splits}) > 1:
        raise ActlabError(f"the splits of dataset {given!r} have images of different sizes: {sorted(shapes)}")
    return Images(tensors, classes)


def column_of(names: Sequence[str], wanted: Sequence[str], kind: str, where: str) -> str:
    """The first of some wanted columns that is there.

    Raises:
        ActlabError: when there is none.
    """
    for name in wanted:
        if name in names:
            return name
    raise ActlabError(
        f"the {where} has no {kind} column: looked for {', '.join(wanted)} among {', '.join(names)}"
    )


def labels_of(table: Any, column: str, where: str) -> tuple[Tensor, int]:
    """Labels ``(N,)`` int64 and the number of classes.

    Raises:
        ActlabError: for labels that are missing or number no class.
    """
    found = table.with_format("arrow")[:].column(column).to_numpy()
    classes = getattr(table.features[column], "num_classes", None) or MAX_CLASSES
    if found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= classes:
        raise ActlabError(
            f"column {column!r} of the {where} must hold whole numbers from 0 to {classes - 1}, none missing"
        )
    named = classes if classes < MAX_CLASSES else int(found.max()) + 1
    return torch.from_numpy(found.astype(np.int64)), named


def check_class_names(files: Sequence[Path], label: str | None = None) -> None:
    """Check that the parquet files of a dataset number their classes alike.

    The hub's reader takes the names that the first file gives, and the numbers of every file as they are.

    Args:
        files: a damaged one, or one that does not name its classes, is passed over.
        label: column of the labels, or None for the usual ones.

    Raises:
        ActlabError: when two files have other names, or another order of them.
    """
    named = ((file, names) for file in files if (names := _class_names(file, label)) is not None)
    first, expected = next(named, (None, None))
    for file, names in named:
        if names != expected:
            pairs = enumerate(zip_longest(expected or (), names))
            number, (one, other) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
            raise ActlabError(
                f"{first} and {file} number their classes differently: class {number} is {one!r} in the first "
                f"and {other!r} in the second; rewrite them with one order of names, or give a folder of one "
                "dataset alone"
            )


def _class_names(file: Path, label: str | None) -> list[Any] | None:
    """The names of classes that a parquet file gives in the hub's metadata, in order of their numbers."""
    import pyarrow
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_schema(regular(file)).metadata or {}
        told = parsed(metadata.get(b"huggingface", b"{}").decode())
        features = checked(told, _Told)["info"]["features"]
        column = next((name for name in ((label,) if label else LABEL_COLUMNS) if name in features), None)
        names = features[str(column)]["names"]
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return names if isinstance(names, list) else None


def _encoded(table: Any, column: str, where: str) -> list[bytes | None]:
    """The files of all images."""
    import datasets
    import pyarrow

    try:
        pictures = (
            table.cast_column(column, datasets.Image(decode=False)).with_format("arrow")[:].column(column)
        )
        return [picture for chunk in pictures.chunks for picture in chunk.field("bytes").to_pylist()]
    except (pyarrow.ArrowException, TypeError, ValueError, KeyError) as error:
        raise ActlabError(f"column {column!r} of the {where} holds no image files ({words(error)})") from error


def _stack(pictures: list[bytes | None], channels: int, where: str) -> Tensor:
    """Decoded images, uint8 ``(N, C, H, W)``."""
    first = _array(0, pictures[0], channels, where)
    images = np.empty((len(pictures), *first.shape), np.uint8)
    for number, picture in enumerate(pictures):  # threads are slower: a small PNG is mostly Python
        array = _array(number, picture, channels, where)
        if array.shape != first.shape:
            raise ActlabError(
                f"image {number} of the {where} is of size {array.shape[:2]}, the first one {first.shape[:2]}; "
                "one size is needed"
            )
        images[number] = array
    return torch.from_numpy(images.transpose(0, 3, 1, 2)).contiguous()


def is_deep(image: Any) -> bool:
    """Whether an opened picture has 16 bits a channel, of which Pillow gives the upper eight without a word."""
    return ";" not in image.mode and any(";16" in str(tile.args) for tile in image.tile)


def _array(number: int, picture: bytes | None, channels: int, where: str) -> np.ndarray[Any, Any]:
    """One image, uint8 ``(H, W, C)``."""
    from PIL import Image

    try:
        image: Image.Image = Image.open(io.BytesIO(picture or b""))
        deep = is_deep(image)
        mode = image.mode + " of 16 bits" * deep
        if mode in ("1", "P"):  # a lossless packer's forms: MNIST's few pure black and white digits have 1 bit
            image = image.convert("L" if mode == "1" else "RGB")
        array = np.asarray(image)
    except (OSError, ValueError, *PICTURE_ERRORS, Image.DecompressionBombError) as error:
        raise ActlabError(
            f"image {number} of the {where} is damaged ({words(error)}); fetch its files anew"
        ) from error
    if mode == "P" and channels == 1 and (array == array[..., :1]).all():
        return array[..., :1]
    if deep or image.mode != MODES[channels]:
        raise ActlabError(
            f"image {number} of the {where} has Pillow mode {mode!r}; {MODES[channels]!r} is needed, "
            f"8 bits and {channels} channel{'s' * (channels > 1)}"
        )
    return array.reshape(*array.shape[:2], channels)
