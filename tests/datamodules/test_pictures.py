"""One opener for all pictures: every mode and depth is scaled to 8 bits a channel, or rejected."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from actlab.datamodules import ImageDataModule, PixelDataModule
from actlab.errors import ActlabError
from hub_folders import HubFolder, png_of_16_bits

VALUES = np.arange(0, 252, 7, dtype=np.uint8).reshape(6, 6)


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def wide(kind: str, **options: Any) -> bytes:
    return encoded(Image.fromarray((257 * VALUES.astype(int)).astype(np.uint16)), kind, **options)


def inverted_tiff() -> bytes:
    """16 bits a pixel, of which 0 is white: Pillow reads such files and does not write them."""
    pixels = (65535 - 257 * VALUES.astype(int)).astype("<u2").tobytes()
    tags = {256: 6, 257: 6, 258: 16, 259: 1, 262: 0, 273: 8, 277: 1, 278: 6, 279: len(pixels)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return (
        struct.pack("<2sHI", b"II", 42, 8 + len(pixels))
        + pixels
        + struct.pack("<H", 9)
        + entries
        + bytes(4)
    )


GREY: dict[str, Callable[[], bytes]] = {
    "8 bits": lambda: encoded(Image.fromarray(VALUES)),
    "16 bits": lambda: wide("PNG"),
    "16 bits TIFF": lambda: wide("TIFF"),
    "16 bits PGM": lambda: wide("PPM"),
    "16 bits, white is 0": inverted_tiff,
    "RGB": lambda: encoded(Image.fromarray(VALUES).convert("RGB")),
    "RGBA": lambda: encoded(Image.fromarray(VALUES).convert("RGBA")),
    "LA": lambda: encoded(Image.fromarray(VALUES).convert("LA")),
    "palette": lambda: encoded(Image.fromarray(VALUES).convert("P")),
    "transparent palette": lambda: encoded(
        Image.fromarray(VALUES).convert("P"), transparency=bytes(256)
    ),
    "CMYK": lambda: encoded(Image.fromarray(VALUES).convert("CMYK"), "TIFF"),
}


@pytest.fixture
def seen(tmp_path: Path, hub_folder: HubFolder) -> Callable[[bytes], list[np.ndarray]]:
    """What coordinate networks, image folders and parquet files read of a picture, (C, H, W)."""

    def read(content: bytes) -> list[np.ndarray]:
        for place in ("a/0.png", "b/0.png"):
            path = tmp_path / "folder" / "train" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

        def change(files: list[Any], labels: list[Any]) -> None:
            files[:] = [content] * len(files)

        cache = str(tmp_path / "cache")
        settings: dict[str, Any] = {"test_split": None, "val_split": None, "cache_dir": cache}
        data = [
            ImageDataModule(str(folder), channels=channels, **settings)
            for folder in (tmp_path / "folder", hub_folder(change=change))
            for channels in (1, 3)
        ]
        found = [module.images.tensors["train_images"][0].numpy() for module in data]
        return [PixelDataModule(str(tmp_path / "folder/train/a/0.png")).image.numpy(), *found]

    return read


@pytest.mark.parametrize("kind", GREY)
def test_a_grey_picture_is_the_same_in_every_mode_depth_and_dataset(seen, kind):
    for image in seen(GREY[kind]()):
        assert image.dtype == np.uint8
        assert np.array_equal(image, np.broadcast_to(VALUES, image.shape))


def test_black_and_white_of_one_bit_is_0_and_255(seen):
    expected = np.where(VALUES > 99, 255, 0)
    for image in seen(encoded(Image.fromarray(expected.astype(np.uint8)).convert("1"))):
        assert np.array_equal(image, np.broadcast_to(expected, image.shape))


def test_the_upper_8_of_16_bits_of_a_colour_are_read(seen):
    assert all((image == 1).all() for image in seen(png_of_16_bits(6)))


@pytest.mark.parametrize("mode", ["F", "I"])
def test_values_without_a_known_range_are_rejected_in_one_line(seen, tmp_path, mode):
    content = encoded(Image.new(mode, (6, 6), 70000), "TIFF")
    words = f"Pillow mode '{mode}', which has no fixed range: use 8 or 16 bits per channel"
    with pytest.raises(ActlabError, match=words):
        seen(content)
    with pytest.raises(ActlabError, match=words):
        _ = PixelDataModule(str(tmp_path / "folder/train/a/0.png")).image
