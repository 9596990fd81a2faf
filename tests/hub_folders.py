"""Tiny datasets in the hub's layout."""

import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

HubFolder = Callable[..., Path]
SIZES = {"train": 30, "test": 12, "validation": 12}


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    """An image file; ``mode`` is what Pillow stores it as."""
    file, image = io.BytesIO(), Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, "PNG")
    return file.getvalue()


def png_of_16_bits(side: int) -> bytes:
    """A colour image of 16 bits a channel, which Pillow cannot write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", side, side, 16, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x01\x02" * 3 * side) * side)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def pixels_of(split: str, *shape: int) -> np.ndarray:
    """The random pixels of a split, uint8 (N, H, W[, C])."""
    return np.random.default_rng(SIZES[split]).integers(
        0, 256, (SIZES[split], *shape), dtype=np.uint8
    )


def floats(split: str, *shape: int) -> Tensor:
    """The pixels of a split, float32 (N, C, H, W) in [0, 1]."""
    pixels = torch.from_numpy(pixels_of(split, *shape).astype(np.float32) / np.float32(255))
    return pixels.permute(0, 3, 1, 2) if len(shape) == 3 else pixels[:, None]


def collected(loader: Any) -> tuple[Tensor, Tensor]:
    """All images and labels of a loader, also those of a stack."""
    images, labels = zip(*loader, strict=True)
    return torch.cat(images, dim=-4), torch.cat(labels, dim=-1)


def labels_of(split: str, classes: int = 10) -> list[int]:
    return [(7 * number) % classes for number in range(SIZES[split])]


def write_hub_folder(
    tmp_path: Path,
    name: str = "digits",
    *,
    splits: Sequence[str] = ("train", "test"),
    shape: tuple[int, ...] = (8, 8),
    classes: int = 10,
    names: Sequence[str] | None = tuple("0123456789"),
    columns: tuple[str, str] = ("image", "label"),
    change: Callable[[list[Any], list[Any]], None] = lambda files, labels: None,
) -> Path:
    """Write a dataset; by default greyscale 8×8 images `pixels_of` and `labels_of` ten classes."""
    folder = tmp_path / name
    for split in splits:
        files: list[Any] = [png(pixels) for pixels in pixels_of(split, *shape)]
        labels: list[Any] = labels_of(split, classes)
        change(files, labels)
        cells = [file if file is None else {"bytes": file, "path": None} for file in files]
        table = pa.table({columns[0]: cells, columns[1]: labels})
        features: dict[str, Any] = {columns[0]: {"_type": "Image"}}
        if names:
            features[columns[1]] = {"names": list(names), "_type": "ClassLabel"}
            info = json.dumps({"info": {"features": features}})
            table = table.replace_schema_metadata({"huggingface": info})
        (folder / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def write_pictures(folder: Path, pictures: Mapping[str, np.ndarray]) -> Path:
    """Write pictures to files by their paths, such as ``train/cat/0.png``."""
    for place, pixels in pictures.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / place)
    return folder


def rows_of(split: str) -> list[Any]:
    """Forty numbered rows of text."""
    return [f"{split} row {number}" for number in range(40)]


def write_text_hub_folder(
    tmp_path: Path,
    name: str = "texts",
    *,
    splits: Sequence[str] = ("train", "validation", "test"),
    column: str = "text",
    rows: Callable[[str], list[Any]] = rows_of,
) -> Path:
    """Write a dataset of text; by default forty numbered rows a split."""
    folder = tmp_path / name
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for split in splits:
        pq.write_table(
            pa.table({column: rows(split)}), folder / "data" / f"{split}-00000-of-00001.parquet"
        )
    return folder
