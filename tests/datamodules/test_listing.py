"""Which files of a folder are read as which split: none twice, none left out, none missing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from actlab.datamodules import ImageDataModule
from actlab.errors import ActlabError
from hub_folders import SIZES, HubFolder, labels_of
from text_files import refusal

TRAIN, TEST = "data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"


@pytest.fixture
def laid_out(hub_folder: HubFolder, tmp_path: Path) -> Callable[..., Path]:
    """A folder whose files lie under other names: each name, and the split that it holds."""

    def build(**names: str) -> Path:
        source, folder = hub_folder(), tmp_path / "laid out"
        for split, places in names.items():
            for place in places.split():
                (folder / place).parent.mkdir(parents=True, exist_ok=True)
                (folder / place).write_bytes(
                    (source / "data" / f"{split}-00000-of-00001.parquet").read_bytes()
                )
        return folder

    return build


def load(folder: Path, tmp_path: Path) -> dict[str, int]:
    images = ImageDataModule(str(folder), channels=1, cache_dir=str(tmp_path / "cache")).images
    return {split: len(images.tensors[f"{split}_labels"]) for split in ("train", "test")}


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train/0.parquet", "test/0.parquet"),
        ("train.parquet", "test.parquet"),
        ("default/train/0000.parquet", "default/test/0000.parquet"),
        ("digits_train_1.parquet", "digits_test_1.parquet"),
        (TRAIN, TEST),
    ],
)
def test_layouts_that_are_read(laid_out, tmp_path, train, test):
    assert load(laid_out(train=train, test=test), tmp_path) == {
        "train": SIZES["train"],
        "test": SIZES["test"],
    }


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        (
            "train/digits_train/0.parquet",
            "test/digits_test/0.parquet",
            "would be read twice, because its path",
        ),
        (
            "mnist-test/train/0.parquet",
            "mnist-test/test/0.parquet",
            "would be read twice, because its path",
        ),
        ("split.train.parquet", "test.parquet train/x_test.parquet", "would be"),
        (
            f"digits/{TRAIN} letters/{TRAIN}",
            f"digits/{TEST} letters/{TEST}",
            "expected one folder for the split 'train', got 'digits",
        ),
        (
            f"{TRAIN} more/train-00000-of-00001.parquet",
            TEST,
            "more/train-00000-of-00001.parquet would be left out",
        ),
        ("data/train-00000-of-00002.parquet", TEST, "data/train: expected 2 parts, got 1"),
        (
            f"{TRAIN} data/train-00000-of-00002.parquet",
            TEST,
            "data/train: expected 1 parts, got 2. Fetch",
        ),
    ],
)
def test_layouts_that_would_be_read_wrongly(laid_out, tmp_path, train, test, words):
    assert words in refusal(load, laid_out(train=train, test=test), tmp_path)


def test_a_card_may_say_which_files_a_split_has(laid_out, tmp_path):
    folder = laid_out(
        train="a/one.parquet b/train-2.parquet c/train-3.parquet", test="a/two.parquet"
    )
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        "  - {split: train, path: [a/one.parquet, b/train-2.parquet]}\n"
        "  - {split: test, path: a/two.parquet}\n---\n"
    )
    assert load(folder, tmp_path) == {"train": 2 * SIZES["train"], "test": SIZES["test"]}


def test_one_of_several_datasets_of_one_card_is_named(laid_out, tmp_path):
    folder = laid_out(
        train="one/train.parquet two/train.parquet", test="one/test.parquet two/test.parquet"
    )
    configs = "".join(f"- config_name: {name}\n  data_dir: {name}\n" for name in ("one", "two"))
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    for name in (None, "three"):
        with pytest.raises(
            ActlabError, match=r"'one', 'two'.*set data\.name to one of several datasets in it"
        ):
            ImageDataModule(str(folder), name, channels=1, validation=6).prepare_data()
    data = ImageDataModule(str(folder), "two", channels=1, validation=6)
    assert data.images.tensors["train_labels"].tolist() == labels_of("train")
