"""Images of any size and splits of any name: one datamodule; what does not fit is one line."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from actlab.datamodules import CIFARDataModule, ImageDataModule
from actlab.errors import ActlabError
from hub_folders import HubFolder, collected, floats, labels_of, write_pictures

Build = Callable[..., ImageDataModule]


@pytest.fixture
def folder(hub_folder: HubFolder) -> Path:
    """Colour images of 24 × 24 pixels, for training and validation only."""
    return hub_folder("signs", splits=("train", "validation"), shape=(24, 24, 3))


@pytest.fixture
def module(folder: Path) -> Build:
    def build(dataset: Path = folder, **options: Any) -> ImageDataModule:
        splits = {"val_split": "validation", "test_split": None}
        sizes = {"batch_size": 5, "eval_batch_size": 4, "cache_dir": str(folder.parent / "cache")}
        return ImageDataModule(str(dataset), **{**splits, **sizes, **options})

    return build


def test_a_validation_split_of_its_own_leaves_all_of_train_to_training(module):
    data = module()
    assert (data.num_classes, data.input_shape) == (10, (3, 24, 24))
    images, labels = collected(data.val_dataloader())
    assert torch.equal(images, floats("validation", 24, 24, 3))
    assert labels.tolist() == labels_of("validation")
    assert sorted(collected(data.train_dataloader())[1].tolist()) == sorted(labels_of("train"))
    assert data.test_dataloader() == []
    assert data.test is None


def test_splits_and_columns_may_have_any_name(module, hub_folder):
    renamed = hub_folder(
        "renamed", splits=("train", "test"), shape=(24, 24, 3), columns=("picture", "sign")
    )
    names = {"train_split": "test", "val_split": "train", "image": "picture", "label": "sign"}
    data = module(renamed, **names)
    assert torch.equal(collected(data.val_dataloader())[0], floats("train", 24, 24, 3))
    data.setup("fit")
    assert [int(sample[1]) for sample in data.train] == labels_of("test")


def test_preprocessing_and_augmentation_are_those_of_cifar(hub_folder, module):
    cifar = hub_folder("cifar", shape=(32, 32, 3), columns=("img", "label"))
    settings: dict[str, Any] = {"preprocessing": ["scale", "zca"], "validation": 6, "seed": 3}
    augmentation: dict[str, Any] = {"crop": 4, "flip": "both", "noise": 0.1}
    sizes: dict[str, Any] = {"batch_size": 5, "cache_dir": str(cifar.parent / "cache")}
    ours = module(cifar, val_split=None, test_split="test", augmentation=augmentation, **settings)
    theirs = CIFARDataModule(dataset=str(cifar), **settings, **augmentation, **sizes)
    for loader in ("train_dataloader", "val_dataloader", "test_dataloader"):
        assert all(
            map(torch.equal, *(collected(getattr(data, loader)()) for data in (ours, theirs)))
        )


def test_images_are_preprocessed_once_a_process(module):
    """Runs one after the other, and the trials before them, share memory and time."""

    def images(**settings: Any) -> torch.Tensor:
        data = module(**settings)
        data.setup("fit")
        return data.train.tensors[0]

    first = images(preprocessing=["unit", "mean"], seed=1)
    assert images(preprocessing=["unit", "mean"], seed=2) is first
    assert images(preprocessing=["scale"]) is not first


def test_class_folders_may_have_a_validation_set_and_no_test_set(module, tmp_path):
    places = [
        f"{part}/{n}.png"
        for part in ("train/cat", "train/dog", "val/cat", "val/dog")
        for n in range(4)
    ]
    data = module(
        write_pictures(tmp_path / "pets", dict.fromkeys(places, np.zeros((9, 7, 3), np.uint8)))
    )
    assert data.input_shape == (3, 9, 7)
    assert sorted(collected(data.val_dataloader())[1].tolist()) == [0] * 4 + [1] * 4


def test_what_does_not_fit_is_named(module):
    for options, words in (
        ({"validation": 6}, "data.val_split: expected .* with data.validation .* got 'validation'"),
        (
            {"train_on_all": True},
            "data.val_split: expected .* data.train_on_all.* got 'validation'",
        ),
        ({"test_split": "test"}, "images in the split 'test', got the splits train, validation"),
        ({"val_split": "dev"}, "images in the split 'dev', got the splits train, validation"),
        ({"channels": 2}, "channels: expected 1 or 3, got 2"),
        ({"test": 0.1}, "data.test_split: expected auto with data.test, got None"),
        ({"val_split": None, "validation": 1.5}, "validation: expected .*, got 1.5"),
        (
            {"size": [4, 4, 4]},
            r"data.size: expected a number or \[height, width\], got \[4, 4, 4\]",
        ),
        (
            {"leave_out": ["a.png"]},
            "data.leave_out: expected class folders of pictures, got parquet files",
        ),
        (
            {"augmentation": {"crops": 4}},
            "Augmentation: unknown argument crops. Allowed: crop, flip, noise",
        ),
        (
            {"augmentation": {"flip": "up"}},
            "Augmentation: flip: expected 'none', 'random' or 'both', got 'up'",
        ),
        (
            {"augmentation": {"crop": 24}},
            "crop: expected fewer than the 24 pixels of an image, got 24",
        ),
        ({"image": "picture"}, "expected a column picture, got image, label"),
        ({"label": "kind"}, r"got image, label\. Set data\.label of ImageDataModule"),
    ):
        with pytest.raises(ActlabError, match=words):
            module(**options).prepare_data()


CONFIG = """\
seed_everything: 0
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    activation: elu
    network: {class_path: actlab.networks.MLP, init_args: {hidden: [16]}}
    optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.001}}
data:
  class_path: actlab.datamodules.ImageDataModule
  init_args: {dataset: FOLDER, val_split: validation, test_split: null, batch_size: 10}
trainer:
  max_epochs: 1
  logger: false
  enable_progress_bar: false
  callbacks:
    - {class_path: actlab.callbacks.TestEveryEpoch}
    - class_path: pytorch_lightning.callbacks.ModelCheckpoint
      init_args: {filename: last, save_on_train_epoch_end: true}
"""


@pytest.fixture
def config(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "signs.yaml"
    path.write_text(CONFIG.replace("FOLDER", str(folder)))
    return path


def test_a_fit_without_a_test_set_has_no_test_metrics(cli, config):
    words = ["-c", config, "--data.augmentation", "{noise: 0.1}"]
    assert "next: actlab validate -c " in cli("fit", *words).succeeded()
    outcome = cli("test", *words, "--ckpt_path", "last")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert (
        "ImageDataModule has no test samples. Use actlab validate, or train again with another "
        "data.test_split" in outcome.err
    )


def test_a_study_without_a_test_set_has_no_test_metrics(cli, config):
    """Of a stack of two seeds and of runs alone; a fit is of one, too."""
    study: dict[str, Any] = {
        "base": str(config),
        "seeds": 2,
        "set": {"data.augmentation": {"crop": 2, "flip": "random"}},
    }
    study["grid"] = {"model.activation": ["elu"]}
    study["table"] = [{"metric": "val/error", "at": "last"}]
    Path("signs_study.yaml").write_text(yaml.safe_dump(study))
    words = ["signs_study.yaml", "--runs-dir", "runs"]
    for most in ("2", "1"):
        cli("study", "run", *words, "--max-stack", most).succeeded()
        assert "val error (last)" in cli("study", "show", *words).out
        tables = [pd.read_parquet(path) for path in Path("runs").rglob("metrics.parquet")]
        assert len(tables) == 2
        assert {split for table in tables for split in table["split"]} == {"train", "val"}
        shutil.rmtree("runs")
