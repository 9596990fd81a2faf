"""Decode the encoded images of hub datasets into tensors.

Shapes: ``N`` samples, ``C H W`` of an image.
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

from actlab.errors import ActlabError, one_line
from actlab.storage.files import checked, parsed, regular

IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "fine_label", "labels")
MODES = {1: "L", 3: "RGB"}  # channels → Pillow mode: 8-bit greyscale, 8-bit colour
MAX_CLASSES = 100_000  # a larger label means a damaged file
# Errors that Pillow raises for damaged pictures, besides ValueError and OSError.
PICTURE_ERRORS = (
    *(SyntaxError, TypeError, EOFError, IndexError, OverflowError, struct.error, zlib.error),
    *(RuntimeError, AttributeError),
)


class _Features(TypedDict):
    features: dict[str, Any]


class _HubMetadata(TypedDict):
    """The entry ``huggingface`` in the metadata of a parquet file; describes the columns."""

    info: _Features


class Images(NamedTuple):
    """Decoded images.

    Args:
        tensors: ``{split}_images`` uint8 ``(N, C, H, W)`` and ``{split}_labels`` int64 ``(N,)``.
        num_classes: K, the number of class names if the dataset has any, otherwise the largest label + 1.
        revision: commit of a hub dataset; None for a local folder.
    """

    tensors: dict[str, Tensor]
    num_classes: int
    revision: str | None = None


def decode(tables: Any, splits: Sequence[str], channels: int, label: str | None, given: str) -> Images:
    """Return all images and labels of the requested splits as tensors.

    Args:
        tables: a ``datasets.DatasetDict``.
        splits: names of the splits to decode.
        channels: number of channels of each image.
        label: column of the labels, or None for the first of `LABEL_COLUMNS` that exists.
        given: the dataset as the user named it, for messages.

    Raises:
        ActlabError: if a split or column is missing, or images or labels are unusable.
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
    """Return the first wanted column that exists.

    Args:
        names: columns of the table.
        wanted: candidates in order of preference.
        kind: of the column, for the message.
        where: name of the table, for the message.

    Raises:
        ActlabError: if no wanted column exists.
    """
    for name in wanted:
        if name in names:
            return name
    raise ActlabError(
        f"the {where} has no {kind} column: looked for {', '.join(wanted)} among {', '.join(names)}"
    )


def labels_of(table: Any, column: str, where: str) -> tuple[Tensor, int]:
    """Return the labels ``(N,)`` int64 and the number of classes.

    Raises:
        ActlabError: if a label is missing or is not the number of a class.
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
    """Check that all parquet files of a dataset number their classes in the same way.

    The hub's reader uses the class names of the first file for all files, but does not renumber the labels.

    Args:
        files: to check; damaged files and files without class names are skipped.
        label: column of the labels, or None for the first of `LABEL_COLUMNS` that exists.

    Raises:
        ActlabError: if two files differ in their class names or in the order of the names.
    """
    named = ((file, names) for file in files if (names := _class_names(file, label)) is not None)
    first, expected = next(named, (None, None))
    for file, names in named:
        if names != expected:
            pairs = enumerate(zip_longest(expected or (), names))
            number, (one, other) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
            raise ActlabError(
                f"{first} and {file} number their classes differently: class {number} is {one!r} in the first "
                f"and {other!r} in the second; rewrite them with one order of names, or give a folder that "
                "holds only one dataset"
            )


def _class_names(file: Path, label: str | None) -> list[Any] | None:
    """Return the class names in the hub's metadata of a parquet file, in order of their labels."""
    import pyarrow
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_schema(regular(file)).metadata or {}
        entry = parsed(metadata.get(b"huggingface", b"{}").decode())
        features = checked(entry, _HubMetadata)["info"]["features"]
        column = next((name for name in ((label,) if label else LABEL_COLUMNS) if name in features), None)
        names = features[str(column)]["names"]
    except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return names if isinstance(names, list) else None


def _encoded(table: Any, column: str, where: str) -> list[bytes | None]:
    import datasets
    import pyarrow

    try:
        pictures = (
            table.cast_column(column, datasets.Image(decode=False)).with_format("arrow")[:].column(column)
        )
        return [picture for chunk in pictures.chunks for picture in chunk.field("bytes").to_pylist()]
    except (pyarrow.ArrowException, TypeError, ValueError, KeyError) as error:
        raise ActlabError(
            f"column {column!r} of the {where} holds no image files ({one_line(error)})"
        ) from error


def _stack(pictures: list[bytes | None], channels: int, where: str) -> Tensor:
    """Return the decoded images, uint8 ``(N, C, H, W)``."""
    first = _array(0, pictures[0], channels, where)
    images = np.empty((len(pictures), *first.shape), np.uint8)
    for number, picture in enumerate(pictures):  # threads would be slower: decoding small PNGs is mostly Python
        array = _array(number, picture, channels, where)
        if array.shape != first.shape:
            raise ActlabError(
                f"image {number} of the {where} has size {array.shape[:2]}, the first image {first.shape[:2]}; "
                "all images must have the same size"
            )
        images[number] = array
    return torch.from_numpy(images.transpose(0, 3, 1, 2)).contiguous()


def is_deep(image: Any) -> bool:
    """Return whether a picture has 16 bits per channel that Pillow silently reduces to the upper eight."""
    return ";" not in image.mode and any(";16" in str(tile.args) for tile in image.tile)


def _array(number: int, picture: bytes | None, channels: int, where: str) -> np.ndarray[Any, Any]:
    """Return one decoded image, uint8 ``(H, W, C)``."""
    from PIL import Image

    try:
        image: Image.Image = Image.open(io.BytesIO(picture or b""))
        deep = is_deep(image)
        mode = image.mode + " of 16 bits" * deep
        if mode in ("1", "P"):  # from lossless packers: MNIST's few purely black-and-white digits have 1 bit
            image = image.convert("L" if mode == "1" else "RGB")
        array = np.asarray(image)
    except (OSError, ValueError, *PICTURE_ERRORS, Image.DecompressionBombError) as error:
        raise ActlabError(
            f"image {number} of the {where} is damaged ({one_line(error)}); fetch the dataset's files again"
        ) from error
    if mode == "P" and channels == 1 and (array == array[..., :1]).all():
        return array[..., :1]
    if deep or image.mode != MODES[channels]:
        raise ActlabError(
            f"image {number} of the {where} has Pillow mode {mode!r}; {MODES[channels]!r} is needed, "
            f"8 bits and {channels} channel{'s' * (channels > 1)}"
        )
    return array.reshape(*array.shape[:2], channels)
