"""Parquet files name their classes, and README.md names the file of each split: both count."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from actlab.datamodules import ImageDataModule, ImageNetDataModule
from actlab.datamodules.images import Images
from actlab.datamodules.sources import digest_of
from actlab.errors import ActlabError
from hub_folders import SIZES, HubFolder, labels_of
from text_files import refusal

ANIMALS, OTHERS = ("cat", "dog", "bird"), ("cat", "bird", "dog")
CARD = """\
---
configs:
- config_name: default
  data_files:
  - {{split: train, path: data/{}-00000-of-00001.parquet}}
  - {{split: test, path: data/{}-00000-of-00001.parquet}}
---
"""


def load(folder: Path, cache: str, label: str | None = None) -> Images:
    return ImageDataModule(str(folder), channels=1, label=label, cache_dir=cache).images


def named(
    hub_folder: HubFolder,
    first: Sequence[str] | None,
    second: Sequence[str] | None,
    column: str = "label",
) -> Path:
    hub_folder(splits=("train",), classes=3, names=first, columns=("image", column))
    return hub_folder(splits=("test",), classes=3, names=second, columns=("image", column))


@pytest.mark.parametrize("second", [OTHERS, ANIMALS[:2]])
@pytest.mark.parametrize("column", ["label", "coarse_label"])
def test_files_that_number_their_classes_differently_are_named(hub_folder, cache, second, column):
    folder = named(hub_folder, ANIMALS, second, column)
    message = refusal(load, folder, cache, column)
    test, train = (
        str(folder / "data" / f"{part}-00000-of-00001.parquet") for part in ("test", "train")
    )
    assert message.startswith(f"{test} and {train} number their classes differently")
    assert "Write both with the same order of names" in message


def test_pictures_of_parquet_files_number_their_classes_alike_too(hub_folder, cache):
    hub_folder(splits=("train",), shape=(8, 8, 3), classes=3, names=ANIMALS)
    folder = hub_folder(splits=("validation",), shape=(8, 8, 3), classes=3, names=OTHERS)
    with pytest.raises(ActlabError, match="number their classes differently"):
        ImageNetDataModule(str(folder), size=8, crop=8, workers=0, cache_dir=cache).setup("fit")


@pytest.mark.parametrize(("first", "second"), [(ANIMALS, None), (None, ANIMALS), (None, None)])
def test_files_without_names_are_passed_over(hub_folder, cache, first, second):
    images = load(named(hub_folder, first, second), cache)
    assert images.tensors["test_labels"].tolist() == labels_of("test", 3)


def test_a_readme_that_changes_is_followed(hub_folder, cache):
    folder = hub_folder()
    for split, other in (("train", "test"), ("test", "train")):
        (folder / "README.md").write_text(CARD.format(split, other))
        images = load(folder, cache)
        assert len(images.tensors["train_labels"]) == SIZES[split]
        assert images.tensors["test_labels"].tolist() == labels_of(other)


def test_a_folder_without_readme_keeps_its_digest(hub_folder, cache):
    folder = hub_folder()
    expected = hashlib.sha256()
    for split in ("test", "train"):
        name = f"data/{split}-00000-of-00001.parquet"
        expected.update(name.encode() + hashlib.sha256((folder / name).read_bytes()).digest())
    assert digest_of(folder) == expected.hexdigest()
    before = load(folder, cache)
    (folder / "README.md").write_text("# Digits\n")
    assert digest_of(folder) != expected.hexdigest()
    assert torch.equal(load(folder, cache).tensors["train_images"], before.tensors["train_images"])
