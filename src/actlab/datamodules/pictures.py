"""Decode encoded pictures, and read the labels beside them, from tables of `datasets`."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    """The encoded pictures, ``labels (N,)`` int64 and ``num_classes`` of a split that `datasets` has opened.

    The column ``image`` or ``label`` None is the first of `IMAGE_COLUMNS` or `LABEL_COLUMNS` that exists.
    """

    def __init__(
        self, tables: Mapping[str, Any], split: str, image: str | None, label: str | None, given: str
    ) -> None:
        import datasets
        import pyarrow

        if split not in tables or not len(tables[split]):
            raise ActlabError(
                f"dataset {given!r} has no {split!r} images; it has {', '.join(tables) or 'none'}: name its "
                "splits by data.train_split and data.test_split (null without test data) of ImageDataModule"
            )
        table, self.where = tables[split], f"{split} split of dataset {given!r}"
        self._column = self._column_of(table, (image,) if image else IMAGE_COLUMNS, "image")
        labels = self._column_of(table, (label,) if label else LABEL_COLUMNS, "label")
        numbers = table.with_format("arrow")[:].column(labels).to_numpy()
        classes = getattr(table.features[labels], "num_classes", None) or MAX_CLASSES
        if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= classes:
            raise ActlabError(
                f"column {labels!r} of the {self.where} must hold whole numbers from 0 to {classes - 1}, none "
                "missing: number texts by class_encode_column of datasets"
            )
        self.labels = torch.from_numpy(numbers.astype(np.int64))
        self.num_classes = classes if classes < MAX_CLASSES else int(numbers.max()) + 1
        try:
            images = table.select_columns(self._column)
            self._table = images.cast_column(self._column, datasets.Image(decode=False))
        except (pyarrow.ArrowException, TypeError, ValueError, KeyError) as error:
            raise ActlabError(
                f"column {self._column!r} of the {self.where} holds no image files ({one_line(error)})"
            ) from error

    def _column_of(self, table: Any, wanted: Sequence[str], kind: str) -> str:
        names: list[str] = table.column_names
        if column := next((name for name in wanted if name in names), None):
            return column
        raise ActlabError(
            f"the {self.where} has no {kind} column: looked for {', '.join(wanted)} among {', '.join(names)}; "
            f"name it by data.{kind} of ImageDataModule"
        )

    def __len__(self) -> int:
        return len(self.labels)

    @contextmanager
    def opened(self, row: int, cell: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Open a picture, or its ``cell`` of the table; report what fails in the block as a damaged picture."""
        from PIL import Image, ImageOps

        cell = cell or self._table[row][self._column] or {}
        try:
            file, path = cell.get("bytes"), cell.get("path")
            if file is None:
                file = regular(Path(path)).read_bytes() if path else b""
            image: Any = Image.open(io.BytesIO(file))
            # Of 16 bits per channel Pillow would keep the upper 8.
            if ";" not in image.mode and any(";16" in str(tile.args) for tile in image.tile):
                raise ValueError(f"Pillow mode {image.mode!r} of 16 bits; 8 bits per channel are needed")
            with suppress(*UNREADABLE):  # of a malformed tag; whoever decodes the image finds other errors
                image = ImageOps.exif_transpose(image)  # as `datasets` does
            yield image
        except (*UNREADABLE, Image.DecompressionBombError) as error:
            name = self.name(row, cell)
            raise ActlabError(
                f"{name} cannot be decoded ({one_line(error)}); fetch it again, or convert or remove it"
            ) from error

    def name(self, row: int, cell: Mapping[str, Any]) -> str:
        """Return the path of a picture's file, or else the number of its row, for messages."""
        path = cell.get("path") if cell.get("bytes") is None else None
        return path or f"image {row} of the {self.where}"

    def stacked(self, channels: int) -> Tensor:
        """Return all images, decoded, uint8 ``(N, C, H, W)``."""
        images: Any = None
        # Reading rows in order is faster than by number; threads are slower, small PNGs being mostly Python.
        for row, cell in enumerate(line[self._column] or {} for line in self._table):
            with self.opened(row, cell) as image:
                array = _pixels(image, channels)
            if array is None:
                raise ActlabError(
                    f"{self.name(row, cell)} has Pillow mode {image.mode!r}; {MODES[channels]!r} is needed: "
                    "save the files in this mode, of 8 bits a channel, or give another data.channels"
                )
            if images is None:
                images = np.empty((len(self), *array.shape), np.uint8)
            if array.shape != images.shape[1:]:
                raise ActlabError(
                    f"{self.name(row, cell)} has size {array.shape[:2]}, the first image {images.shape[1:3]}; "
                    "all images must have the same size"
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
