"""Decode encoded pictures, and read the labels beside them, from tables of `datasets`.

Shapes: ``N`` samples, ``C H W`` of an image.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "fine_label", "labels")
MODES = {1: "L", 3: "RGB"}  # channels → Pillow mode: 8-bit greyscale, 8-bit colour
MAX_CLASSES = 100_000  # a larger label means a damaged file
# Errors of readers of damaged files.
UNREADABLE = (
    *(OSError, ValueError, SyntaxError, TypeError, EOFError, IndexError, KeyError, OverflowError, struct.error),
    *(zlib.error, RuntimeError, AttributeError),
)


class Pictures:
    """The encoded pictures and the labels of one split.

    Args:
        tables: splits of a dataset, opened by `datasets`.
        split: to read.
        image: column of the pictures; None for the first of `IMAGE_COLUMNS` that exists.
        label: column of the labels; None for the first of `LABEL_COLUMNS` that exists.
        given: the dataset as the user named it, for messages.

    Attributes:
        labels: ``(N,)`` int64.
        num_classes: K, the number of class names if there are any, otherwise the largest label + 1.

    Raises:
        ActlabError: if the split or a column is missing, or a label is not the number of a class.
    """

    def __init__(
        self, tables: Mapping[str, Any], split: str, image: str | None, label: str | None, given: str
    ) -> None:
        import datasets
        import pyarrow

        if split not in tables or not len(tables[split]):
            raise ActlabError(
                f"dataset {given!r} has no {split!r} images; it has {', '.join(tables) or 'none'}"
            )
        table, self.where = tables[split], f"{split} split of dataset {given!r}"
        self._column = column_of(table, (image,) if image else IMAGE_COLUMNS, "image", self.where)
        column = column_of(table, (label,) if label else LABEL_COLUMNS, "label", self.where)
        self.labels, self.num_classes = labels_of(table, column, self.where)
        only = table.select_columns(self._column)
        try:
            self._table = only.cast_column(self._column, datasets.Image(decode=False))
        except (pyarrow.ArrowException, TypeError, ValueError, KeyError) as error:
            raise ActlabError(
                f"column {self._column!r} of the {self.where} holds no image files ({one_line(error)})"
            ) from error

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> Mapping[str, Any]:
        """Return the ``bytes`` of a picture, or the ``path`` of its file."""
        return self._table[row][self._column] or {}

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (row[self._column] or {} for row in self._table)

    def name(self, row: int, picture: Mapping[str, Any]) -> str:
        """Return the path of a picture's file, or else the number of its row, for messages."""
        of_row = f"image {row} of the {self.where}"
        return picture.get("path") or of_row if picture.get("bytes") is None else of_row


@contextmanager
def opened(picture: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Open a picture with Pillow; report what fails within the block as a picture that cannot be decoded.

    Raises:
        ActlabError: if the picture is damaged, or has 16 bits per channel, of which Pillow keeps the upper 8.
    """
    from PIL import Image

    try:
        file, path = picture.get("bytes"), picture.get("path")
        if file is None:
            file = regular(Path(path)).read_bytes() if path else b""
        image: Any = Image.open(io.BytesIO(file))
        if ";" not in image.mode and any(";16" in str(tile.args) for tile in image.tile):
            raise ValueError(f"Pillow mode {image.mode!r} of 16 bits; 8 bits per channel are needed")
        yield image
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        raise ActlabError(
            f"{name} cannot be decoded ({one_line(error)}); fetch it again, or remove it"
        ) from error


def column_of(table: Any, wanted: Sequence[str], kind: str, where: str) -> str:
    """Return the first wanted column that a table has; ``kind`` and ``where`` are for the message.

    Raises:
        ActlabError: if it has none.
    """
    for name in wanted:
        if name in table.column_names:
            return name
    found = ", ".join(table.column_names)
    raise ActlabError(f"the {where} has no {kind} column: looked for {', '.join(wanted)} among {found}")


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


def _class_names(file: Path, label: str | None) -> list[str] | None:
    """Return the class names in the hub's metadata of a parquet file, in order of their labels."""
    import datasets
    import pyarrow
    import pyarrow.parquet

    try:
        features = datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(regular(file)))
    except (pyarrow.ArrowException, *UNREADABLE):
        return None
    column = next((name for name in ((label,) if label else LABEL_COLUMNS) if name in features), None)
    return getattr(features.get(column), "names", None)


def stacked(pictures: Pictures, channels: int) -> Tensor:
    """Return all images of a split, decoded, uint8 ``(N, C, H, W)``.

    Raises:
        ActlabError: if an image is damaged, or differs in its size or number of channels.
    """
    images: Any = None
    for row, picture in enumerate(pictures):  # threads would be slower: decoding small PNGs is mostly Python
        name = pictures.name(row, picture)
        with opened(picture, name) as image:
            array = _pixels(image, channels)
        if array is None:
            raise ActlabError(
                f"{name} has Pillow mode {image.mode!r}; {MODES[channels]!r} is needed, 8 bits and {channels} "
                f"channel{'s' * (channels > 1)}"
            )
        if images is None:
            images = np.empty((len(pictures), *array.shape), np.uint8)
        if array.shape != images.shape[1:]:
            raise ActlabError(
                f"{name} has size {array.shape[:2]}, the first image {images.shape[1:3]}; all images must have "
                "the same size"
            )
        images[row] = array
    return torch.from_numpy(images.transpose(0, 3, 1, 2)).contiguous()


def _pixels(image: Any, channels: int) -> np.ndarray[Any, Any] | None:
    """Return the pixels ``(H, W, C)`` of a picture, or None if it has another number of channels or bits."""
    if image.mode == "P" and channels == 1:  # a lossless packer may store a grey picture with a palette
        colours = np.asarray(image.convert("RGB"))
        return colours[..., :1] if (colours == colours[..., :1]).all() else None
    if image.mode in ("1", "P"):  # MNIST's few purely black-and-white digits have 1 bit
        image = image.convert(MODES[channels])
    array = np.asarray(image)
    return array.reshape(*array.shape[:2], channels) if image.mode == MODES[channels] else None
