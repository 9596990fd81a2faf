"""Decode encoded pictures, and read the labels beside them, from tables of `datasets`.

`read_picture` opens the pictures of all datamodules. It turns any depth into 8 bits a channel, or
rejects it.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.storage.files import regular
from actlab.storage.paths import at_home

IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "fine_label", "labels")
MODES = {1: "L", 3: "RGB"}  # channels → Pillow mode: 8-bit greyscale, 8-bit colour
MAX_CLASSES = 100_000  # a larger label means a damaged file
# Errors of readers of damaged files.
UNREADABLE = (
    OSError,
    ValueError,
    SyntaxError,
    TypeError,
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    struct.error,
    zlib.error,
    RuntimeError,
    AttributeError,
)

LISTED = 10  # this many unreadable pictures fit into a message
WHITE_IS_ZERO = 262  # tag of TIFF: 0 where the largest value means black

Fit = Literal["crop", "resize"]


def read_picture(file: bytes) -> Any:
    """Return a picture of Pillow with 8 bits a channel, upright according to its orientation tag.

    Grey values of 12 and 16 bits are scaled to 0 … 255. For colours with 16 bits, Pillow reads the
    upper 8.

    Raises:
        ValueError: for values without a known range, such as floats; `UNREADABLE` for a damaged
            file.
    """
    from PIL import Image, ImageOps

    # Read the depth before the picture, whose loading forgets it.
    source: Any = Image.open(io.BytesIO(file))
    mode = source.mode
    depth = "".join(str(tile.args) for tile in source.tile)
    tags = getattr(source, "tag_v2", {})
    is_inverted = mode.startswith("I") and tags.get(WHITE_IS_ZERO) == 0

    # Turn the picture upright.
    image = source
    with suppress(*UNREADABLE):  # of a malformed tag; decoding finds other errors
        image = ImageOps.exif_transpose(source)  # as `datasets` does
    image.load()

    # Scale 16 bits. Pillow opens some files of 16 bits in its mode of 32 bits.
    if mode.startswith("I;16") or (mode == "I" and source.format in ("PNG", "PPM")):
        largest = 4095 if "I;12" in depth else 65535
        values = np.asarray(image).astype(np.uint32) * 255 // largest
        if is_inverted:
            values = 255 - values
        return Image.fromarray(values.astype(np.uint8))

    # 32-bit integers and floats remain
    if mode in ("I", "F"):
        raise ValueError(
            f"Pillow mode {mode!r}, which has no fixed range: use 8 or 16 bits per channel"
        )
    return image


def reason_of(error: Exception) -> str:
    """Return why a picture cannot be read, in a few words."""
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    return one_line(error)


def pixels(
    image: Any, channels: int, size: Sequence[int] | None = None, fit: Fit = "crop"
) -> Any:
    """Return the pixels of a picture of any mode, uint8 ``(H, W, channels)``, without transparency.

    With ``size`` (H, W), ``fit`` says how a picture gets it, bilinearly: ``crop`` cuts the largest
    central part of this shape first, ``resize`` does not keep the ratio of the sides.
    """
    from PIL import Image, ImageOps

    # Convert the colours. Pillow converts some modes only in two steps.
    if "transparency" in image.info and image.mode == "P":
        image = image.convert("RGBA")
    if image.mode != MODES[channels]:
        if image.mode == "LAB":
            image = image.convert("RGB")
        image = image.convert(MODES[channels])

    # Fit the picture to the size.
    if size is not None:
        height, width = size
        if fit == "crop":
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        else:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(image.height, image.width, channels)


class Stack(NamedTuple):
    """Decoded pictures, and what prevents one tensor of all of them."""

    images: Tensor  # uint8 (N, C, H, W)
    unreadable: dict[str, str]  # names of pictures that cannot be read → why
    sizes: dict[tuple[int, int], str]  # (H, W) → name of the first picture of this size


class Pictures:
    """The encoded pictures of a split that `datasets` has opened, with their labels.

    It decodes pictures when they are asked for. It does not preprocess them.

    Args:
        tables: the opened splits.
        split: name of the split.
        image: column of the pictures; None for the first existing one of `IMAGE_COLUMNS`.
        label: column of the labels; None for the first existing one of `LABEL_COLUMNS`.
        dataset: its folder or id, for messages.

    Attributes:
        labels: ``(N,)`` int64.
        num_classes: number of classes K.
        class_names: their names, None if the table has none.

    Raises:
        ActlabError: if there is no such split or column, or a label is not a class.
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        split: str,
        image: str | None,
        label: str | None,
        dataset: str,
    ) -> None:
        import datasets
        import pyarrow

        # Select the split.
        if split not in tables or not len(tables[split]):
            raise ActlabError(
                f"dataset {dataset!r}: expected images in the split {split!r}, got the splits "
                f"{', '.join(tables) or 'none'}. Set data.train_split and data.test_split (null "
                "without test data) of ImageDataModule."
            )
        table = tables[split]
        self._source = f"{split} split of dataset {dataset!r}"
        self._column = self._column_of(
            table, (image,) if image else IMAGE_COLUMNS, "image"
        )
        label_column = self._column_of(
            table, (label,) if label else LABEL_COLUMNS, "label"
        )

        # Read the labels.
        labels = table.with_format("arrow")[:].column(label_column).to_numpy()
        kind = table.features[label_column]
        classes = getattr(kind, "num_classes", None) or MAX_CLASSES
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
            raise ActlabError(
                f"column {label_column!r} of the {self._source}: expected whole numbers from 0 "
                f"to {classes - 1} in every row, got others. Encode texts with "
                "class_encode_column of datasets."
            )
        self.labels = torch.from_numpy(labels.astype(np.int64))
        self.class_names: list[str] | None = getattr(kind, "names", None)
        self.num_classes = classes if classes < MAX_CLASSES else int(labels.max()) + 1

        # Open the column of images without decoding it.
        try:
            images = table.select_columns(self._column)
            self._table = images.cast_column(self._column, datasets.Image(decode=False))
        except (pyarrow.ArrowException, TypeError, ValueError, KeyError) as error:
            raise ActlabError(
                f"column {self._column!r} of the {self._source}: expected image files, got other "
                f"values ({one_line(error)}). Set data.image to the column of the images."
            ) from error

    def _column_of(self, table: Any, candidates: Sequence[str], kind: str) -> str:
        names: list[str] = table.column_names
        for name in candidates:
            if name in names:
                return name
        raise ActlabError(
            f"the {self._source}: expected a column {' or '.join(candidates)}, got "
            f"{', '.join(names)}. Set data.{kind} of ImageDataModule."
        )

    def __len__(self) -> int:
        return len(self.labels)

    def names(self, rows: Sequence[int]) -> list[str] | None:
        """Return the paths of the files of some pictures, None if tables contain the pictures."""
        column = self._table.with_format("arrow")[:].column(self._column)
        paths = []
        for cell in column.take(rows).to_pylist():
            path = _path_of(cell or {})
            if not path:
                return None
            paths.append(path)
        return paths

    def read(self, row: int) -> Any:
        """Return a picture by its row, see `read_picture`; a damaged one raises an ActlabError."""
        cell = self._table[row][self._column] or {}
        try:
            return read_picture(_content(cell))
        except unreadable() as error:
            fault = {self.name(row, cell): reason_of(error)}
            raise rejected(fault) from error

    def name(self, row: int, cell: Mapping[str, Any]) -> str:
        """Return the path of a picture's file, or else the number of its row, for messages."""
        return _path_of(cell) or f"image {row} of the {self._source}"

    def stacked(
        self, channels: int, size: Sequence[int] | None = None, fit: Fit = "crop"
    ) -> Stack:
        """Decode all pictures, see `pixels`; only list unreadable pictures and other sizes."""
        # Allocated at the first picture, which determines the shape
        images: Any = None
        faults: dict[str, str] = {}
        sizes: dict[tuple[int, int], str] = {}

        # Reading rows in order is faster than by number; threads are slower, small PNGs
        # being mostly Python.
        for row, line in enumerate(self._table):
            cell = line[self._column] or {}
            try:
                picture = read_picture(_content(cell))
                array = pixels(picture, channels, size, fit)
            except unreadable() as error:
                faults[self.name(row, cell)] = reason_of(error)
                continue

            # Write the pixels into one array, as long as all pictures have one size.
            if array.shape[:2] not in sizes:
                sizes[array.shape[:2]] = self.name(row, cell)
            if images is None:
                images = np.empty((len(self), *array.shape), np.uint8)
            if len(sizes) == 1:
                images[row] = array

        # The dataset is empty, or no picture is readable
        if images is None:
            images = np.empty((0, 0, 0, channels), np.uint8)

        # From (N, H, W, C) to (N, C, H, W)
        channels_first = torch.from_numpy(images.transpose(0, 3, 1, 2))
        return Stack(channels_first.contiguous(), faults, sizes)


def _content(cell: Mapping[str, Any]) -> bytes:
    """Return the bytes of an encoded picture, from its cell or its file; none if both are empty."""
    content, path = cell.get("bytes"), cell.get("path")
    if content is None and path:
        content = regular(Path(path)).read_bytes()
    return bytes(content or b"")


def _path_of(cell: Mapping[str, Any]) -> str | None:
    """Return the path of a picture's file, None for a picture inside its table."""
    return cell.get("path") if cell.get("bytes") is None else None


def unreadable() -> tuple[type[Exception], ...]:
    """Return the errors of `read_picture` for damaged files, large files and unknown depths."""
    from PIL import Image

    return (*UNREADABLE, Image.DecompressionBombError)


def rejected(faults: Mapping[str, str], hint: str = "") -> ActlabError:
    """Return the error for pictures that cannot be read.

    Args:
        faults: names of the pictures → why they cannot be read.
        hint: ends the message.
    """
    examples = []
    for name, reason in list(faults.items())[:LISTED]:
        examples.append(f"{name} cannot be decoded ({reason})")
    number = f"{len(faults)} unreadable pictures: " if len(faults) > 1 else ""
    return ActlabError(
        f"{number}{', '.join(examples)}. Replace, convert or remove every listed picture{hint}."
    )


def decode(
    pictures: Mapping[str, Pictures],
    channels: int,
    dataset: str,
    size: Sequence[int] | None = None,
    fit: Fit = "crop",
) -> dict[str, Tensor]:
    """Return all images and labels of the parts of a dataset, and ``num_classes``.

    Raises:
        ActlabError: for all pictures that cannot be read at once, or images of several sizes.
    """
    # Decode all parts before errors are raised
    tensors: dict[str, Tensor] = {}
    unreadable: dict[str, str] = {}
    sizes: dict[tuple[int, int], str] = {}
    num_classes = 0

    # Decode the parts.
    for part, encoded in pictures.items():
        stack = encoded.stacked(channels, size, fit)
        tensors[f"{part}_images"] = stack.images
        tensors[f"{part}_labels"] = encoded.labels
        unreadable |= stack.unreadable
        sizes = stack.sizes | sizes
        num_classes = max(num_classes, encoded.num_classes)

    # Describe two of several sizes.
    difference = ""
    if len(sizes) > 1:
        examples = []
        for (height, width), name in list(sizes.items())[:2]:
            examples.append(f"{name} has size {height}×{width}")
        difference = (
            f"{len(sizes)} different sizes: {', '.join(examples)}. Set data.size, and data.fit to "
            "crop or resize"
        )

    # Reject what cannot become one tensor.
    if unreadable:
        unreadable = dict(sorted(unreadable.items()))
        remedy = _remedy_for(list(unreadable), at_home(dataset))
        if difference:
            remedy = f"{remedy}. The other images have {difference}"
        raise rejected(unreadable, remedy)
    if difference:
        raise ActlabError(f"dataset {dataset!r} has images of {difference}.")

    tensors["num_classes"] = torch.tensor(num_classes)
    return tensors


def _remedy_for(names: Sequence[str], folder: Path) -> str:
    """Return the setting that leaves out pictures of a folder; empty for parquet files."""
    paths = []
    for name in names:
        if Path(name).is_relative_to(folder):
            paths.append(os.path.relpath(name, folder))
    if not paths:
        return ""
    return f", or set data.leave_out to {json.dumps(paths, ensure_ascii=False)}"
