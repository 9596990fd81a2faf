"""Photographs: which pictures become squares; the cache depends on the pictures themselves."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from actlab.datamodules import ImageNetDataModule
from actlab.datamodules.photographs import square
from hub_folders import write_pictures

SIDE = 6


def module(folder: Path) -> ImageNetDataModule:
    cache = str(folder.parent / "cache")
    sizes: dict[str, Any] = {"size": SIDE, "crop": SIDE, "val_images": 1, "batch_size": 2}
    return ImageNetDataModule(str(folder), **sizes, workers=0, cache_dir=cache)


def images_of(data: ImageNetDataModule) -> Tensor:
    """All evaluation images, in the order of their first number, (N, 3, H, W)."""
    loaders = data.val_dataloader(), data.test_dataloader()
    images = torch.cat([images for loader in loaders for images, _ in loader])
    return images[images[:, 0, 0, 0].argsort()]


def file_of(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def write_tree(folder: Path, seed: int, suffix: str = "png") -> np.ndarray:
    """Two classes, each two random pictures for training, one for validation; (4, 3, H, W)."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, SIDE, SIDE, 3), dtype=np.uint8)
    places = ("train/a/0", "train/a/1", "train/b/0", "train/b/1", "val/a/0", "val/b/0")
    write_pictures(
        folder, dict(zip((f"{place}.{suffix}" for place in places), pixels, strict=True))
    )
    return pixels[:4].transpose(0, 3, 1, 2)


def test_a_photograph_of_16_bits_is_that_of_8_bits(tmp_path):
    write_tree(tmp_path / "pictures", 0)
    path = tmp_path / "pictures" / "train" / "b" / "1.png"
    values = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE))
    means = []
    for picture in (values.astype(np.uint8), (257 * values).astype(np.uint16)):
        path.write_bytes(file_of(Image.fromarray(picture)))
        means.append(module(tmp_path / "pictures")._mean())
    assert torch.equal(*means)


@pytest.mark.parametrize("mode", ["RGBA", "RGB", "L", "1", "P"])
def test_opaque_pictures_keep_their_colours(mode):
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels).convert(mode)
    expected = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(square(picture, SIDE), expected)


def test_folders_of_equal_names_and_sizes_have_means_of_their_own(tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    pixels = [write_tree(folder, seed, "bmp") for seed, folder in enumerate(folders)]
    times = (10**18, 10**18)
    for file in tmp_path.rglob("*.bmp"):
        os.utime(file, ns=times)
    for folder, expected in zip(folders, pixels, strict=True):
        np.testing.assert_allclose(module(folder)._mean(), expected.mean(0), rtol=1e-6)
    pixels[0] = write_tree(folders[0], 2, "bmp")  # of other times
    np.testing.assert_allclose(module(folders[0])._mean(), pixels[0].mean(0), rtol=1e-6)


def test_the_hubs_tables_are_read_again_when_their_files_change_whatever_their_times(
    hub_folder,
):
    def write(seed: int) -> tuple[Path, np.ndarray]:
        pixels = np.random.default_rng(seed).integers(0, 256, (12, SIDE, SIDE, 3), dtype=np.uint8)

        def change(files: list[Any], labels: list[Any]) -> None:
            files[:] = [file_of(Image.fromarray(picture)) for picture in pixels]
            del labels[12:]

        folder = hub_folder("tables", splits=("train", "validation"), change=change)
        for file in folder.rglob("*.parquet"):
            os.utime(file, ns=(10**18, 10**18))
        return folder, pixels.transpose(0, 3, 1, 2)

    for seed in range(2):
        folder, pixels = write(seed)
        expected = (pixels - pixels.astype(np.float64).mean(0)) / 255
        expected = expected[expected[:, 0, 0, 0].argsort()]
        np.testing.assert_allclose(images_of(module(folder)), expected, atol=1e-6)


@pytest.mark.parametrize("layout", ["data/{}-00000-of-00001.parquet", "{}/0.parquet"])
def test_an_unchanged_folder_of_the_hubs_tables_is_copied_once(hub_folder, tmp_path, layout):
    folder = hub_folder(splits=("train", "validation"), shape=(SIDE, SIDE, 3))
    for split in ("train", "validation"):
        (folder / layout.format(split)).parent.mkdir(exist_ok=True)
        (folder / "data" / f"{split}-00000-of-00001.parquet").rename(folder / layout.format(split))
    for _ in range(2):
        module(folder).setup("fit")
        assert (
            len([place for place in (tmp_path / "cache" / "rows").iterdir() if place.is_dir()]) == 1
        )
        assert len(list((tmp_path / "cache").glob("mean-*.safetensors"))) == 1
