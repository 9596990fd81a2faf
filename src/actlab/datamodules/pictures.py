"""Decode encoded pictures, and read the labels beside them, from tables of `datasets`.

`read_picture` opens the pictures of all datamodules. It turns any depth into 8 bits a channel, or
rejects it.
"""

from __future__ import annotations

import io
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

IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img"), ("label", "fine_label", "labels")
MODES = {1: "L", 3: "RGB"}  # channels → Pillow mode: 8-bit greyscale, 8-bit colour
MAX_CLASSES = 100_000  # a larger label means a damaged file
# Errors of readers of damaged files.
UNREADABLE = (
    *(
        OSError,
        ValueError,
        SyntaxError,
        TypeError,
        EOFError,
        IndexError,
        KeyError,
        OverflowError,
        struct.error,
    ),
    *(zlib.error, RuntimeError, AttributeError),
)

LISTED = 10  # this many unreadable pictures fit into a message
WHITE_IS_ZERO = 262  # tag of TIFF: 0 where the largest value means black

Fit = Literal["crop", "resize"]


def read_picture(file: bytes) -> Any:
    """Return a picture of Pillow with 8 bits a channel, upright according to its orientation tag.

    Grey values of 12 and 16 bits are scaled to 0 … 255. Of colours with 16 bits, Pillow keeps the
    upper 8.

    Raises:
        ValueError: for values without a known range, such as floats; `UNREADABLE` for a damaged
            file.
    """
    from PIL import Image, ImageOps

    source: Any = Image.open(io.BytesIO(file))
    mode, depth = source.mode, "".join(str(tile.args) for tile in source.tile)
    inverted = mode.startswith("I") and getattr(source, "tag_v2", {}).get(WHITE_IS_ZERO) == 0

    image = source
    with suppress(*UNREADABLE):  # of a malformed tag; decoding finds other errors
        image = ImageOps.exif_transpose(source)  # as `datasets` does
    image.load()

    # Pillow opens some files of 16 bits in its mode of 32 bits.
    of_16_bits = mode.startswith("I;16") or (mode == "I" and source.format in ("PNG", "PPM"))
    if of_16_bits:
        largest = 4095 if "I;12" in depth else 65535
        values = np.asarray(image).astype(np.uint32) * 255 // largest
        return Image.fromarray((255 - values if inverted else values).astype(np.uint8))
    if mode in ("I", "F"):
        raise ValueError(
            f"Pillow mode {mode!r}, whose range is unknown: save it with 8 or 16 bits a channel"
        )
    return image


def reason_of(error: Exception) -> str:
    """Return why a picture cannot be read, in a few words."""
    from PIL import UnidentifiedImageError

    return "not a picture" if isinstance(error, UnidentifiedImageError) else one_line(error)


def pixels(image: Any, channels: int, size: Sequence[int] | None = None, fit: Fit = "crop") -> Any:
    """Return the pixels of a picture of any mode, uint8 ``(H, W, channels)``; transparency is dropped.

    With ``size`` (H, W), ``fit`` says how a picture gets it, bilinearly: ``crop`` cuts the largest
    central part of this shape first, ``resize`` does not keep the ratio of the sides.
    """
    from PIL import Image, ImageOps

    if "transparency" in image.info and image.mode == "P":
        image = image.convert("RGBA")
    if image.mode != MODES[channels]:
        image = image.convert("RGB") if image.mode == "LAB" else image
        image = image.convert(MODES[channels])

    if size is not None:
        height, width = size
        if fit == "crop":
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        else:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(image.height, image.width, channels)


class Stack(NamedTuple):
    """Decoded pictures, and what keeps them from being one tensor."""

    images: Tensor  # uint8 (N, C, H, W)
    unreadable: dict[str, str]  # names of pictures that cannot be read → why
    sizes: dict[tuple[int, int], str]  # (H, W) → name of the first picture of this size


class Pictures:
    """The encoded pictures, ``labels (N,)`` int64 and ``num_classes`` of a split that `datasets` has opened.

    The column ``image`` or ``label`` None is the first of `IMAGE_COLUMNS` or `LABEL_COLUMNS` that
    exists.
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        split: str,
        image: str | None,
        label: str | None,
        given: str,
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
        self.class_names: list[str] | None = getattr(table.features[labels], "names", None)
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

    def names(self, rows: Sequence[int]) -> list[str] | None:
        """Return the paths of the files of some pictures, None if they are not files of their own."""
        cells = self._table.with_format("arrow")[:].column(self._column).take(rows).to_pylist()
        paths = [cell.get("path") for cell in cells if cell and cell.get("bytes") is None]
        return paths if len(paths) == len(rows) and all(paths) else None

    def read(self, row: int) -> Any:
        """Return a picture by its row, see `read_picture`; raise an ActlabError if it is damaged."""
        cell = self._table[row][self._column] or {}
        try:
            return read_picture(_content(cell))
        except unreadable() as error:
            raise rejected({self.name(row, cell): reason_of(error)}) from error

    def name(self, row: int, cell: Mapping[str, Any]) -> str:
        """Return the path of a picture's file, or else the number of its row, for messages."""
        path = cell.get("path") if cell.get("bytes") is None else None
        return path or f"image {row} of the {self.where}"

    def stacked(self, channels: int, size: Sequence[int] | None = None, fit: Fit = "crop") -> Stack:
        """Decode all pictures; see `pixels`. Unreadable pictures and other sizes are only listed."""
        images: Any = None
        faults: dict[str, str] = {}
        sizes: dict[tuple[int, int], str] = {}

        # Reading rows in order is faster than by number; threads are slower, small PNGs being
        # mostly Python.
        for row, line in enumerate(self._table):
            cell = line[self._column] or {}
            try:
                array = pixels(read_picture(_content(cell)), channels, size, fit)
            except unreadable() as error:
                faults[self.name(row, cell)] = reason_of(error)
                continue

            if array.shape[:2] not in sizes:
                sizes[array.shape[:2]] = self.name(row, cell)
            if images is None:
                images = np.empty((len(self), *array.shape), np.uint8)
            if len(sizes) == 1:
                images[row] = array

        if images is None:
            images = np.empty((0, 0, 0, channels), np.uint8)
        return Stack(torch.from_numpy(images.transpose(0, 3, 1, 2)).contiguous(), faults, sizes)


def _content(cell: Mapping[str, Any]) -> bytes:
    file, path = cell.get("bytes"), cell.get("path")
    if file is None:
        file = regular(Path(path)).read_bytes() if path else b""
    return bytes(file)


def unreadable() -> tuple[type[Exception], ...]:
    """Return the errors of `read_picture` for files that are damaged, too large or of an unknown depth."""
    from PIL import Image

    return (*UNREADABLE, Image.DecompressionBombError)


def rejected(faults: Mapping[str, str], hint: str = "") -> ActlabError:
    """Return the error for pictures that cannot be read, which are mapped to the reasons; ``hint`` ends it."""
    some = [f"{name} cannot be decoded ({reason})" for name, reason in [*faults.items()][:LISTED]]
    number = f"{len(faults)} unreadable pictures: " if len(faults) > 1 else ""
    return ActlabError(
        f"{number}{', '.join(some)}; fetch again, convert or remove what is listed{hint}"
    )
