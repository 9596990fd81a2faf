"""MNIST and its look-alikes: split, batches, a real fit; mistakes are one clear line."""

from pathlib import Path
from typing import Any

import pytest
import torch

from actlab.datamodules import CIFARDataModule, MNISTDataModule
from actlab.datamodules import images as image_module
from actlab.datamodules.base import TensorDataset
from hub_folders import SIZES, collected, floats, labels_of
from text_files import refusal


def module(folder: Path, kind: Any = MNISTDataModule, **options: Any) -> Any:
    options = {"validation": 6, "batch_size": 5, "eval_batch_size": 4} | options
    return kind(dataset=str(folder), cache_dir=str(folder.parent / "cache"), **options)


@pytest.mark.parametrize(
    ("kind", "shape"), [(MNISTDataModule, (8, 8)), (CIFARDataModule, (32, 32, 3))]
)
def test_validation_is_the_first_images_in_file_order(hub_folder, kind, shape):
    data = module(hub_folder(shape=shape), kind)
    images, labels = collected(data.val_dataloader())
    assert torch.equal(images, floats("train", *shape)[:6])
    assert labels.tolist() == labels_of("train")[:6]
    images, labels = collected(data.test_dataloader())
    assert torch.equal(images, floats("test", *shape))
    assert (labels.tolist(), labels.dtype) == (labels_of("test"), torch.int64)
    assert torch.equal(collected(data.predict_dataloader())[0], images)
    assert (data.num_classes, data.input_shape) == (10, images.shape[1:])


def test_training_uses_the_rest_and_drops_the_partial_batch(hub_folder):
    data = module(hub_folder(), batch_size=7)  # 24 images: 3 batches of 7, 3 images left out
    images, labels = collected(data.train_dataloader())
    assert images.shape == (21, 1, 8, 8)
    assert labels.dtype == torch.int64
    rest = {tuple(image.flatten().tolist()) for image in floats("train", 8, 8)[6:]}
    seen = {tuple(image.flatten().tolist()) for image in images}
    assert len(seen) == 21
    assert seen < rest


def sort_labels(files: list[Any], labels: list[Any]) -> None:
    labels.sort()  # three images of each class: 0 0 0 1 1 1 2 …


def test_files_sorted_by_class_are_refused(hub_folder):
    folder = hub_folder(change=sort_labels)
    message = refusal(module(folder).train_dataloader)
    assert (
        f"data.validation 6: the first 6 training images of {folder} have 2 classes, 2 of which no "
        "other image has. Shuffle the dataset, which seems sorted by class" in message
    )
    assert len(module(folder, validation=2).train_dataloader()) == 28 // 5
    assert len(module(folder, train_on_all=True).train_dataloader()) == 30 // 5
    colour = hub_folder("colour", shape=(32, 32, 3), change=sort_labels)
    before_anything_is_fitted = module(colour, CIFARDataModule, preprocessing=["zca"]).prepare_data
    assert "the first 6 training images" in refusal(before_anything_is_fitted)


def test_validation_of_one_class_is_refused(hub_folder, monkeypatch):
    """Also where some of that class are left to be trained on."""
    monkeypatch.setattr(image_module, "SORTED", 2)
    data = module(hub_folder(change=sort_labels), validation=2)
    assert "data.validation 2: the first 2 training images" in refusal(data.train_dataloader)


def test_a_test_class_that_is_not_trained_on_is_no_mistake(hub_folder):
    def change(files: list[Any], labels: list[Any]) -> None:
        labels[:] = [number % 4 + (len(files) == SIZES["test"]) for number in range(len(labels))]

    _, labels = collected(module(hub_folder(change=change)).test_dataloader())
    assert labels.max() == 4


def test_pixels_stay_bytes_in_memory_and_become_floats_in_the_batch(hub_folder):
    data = module(hub_folder())
    images, _ = next(iter(data.train_dataloader()))
    assert images.dtype == torch.float32
    assert 0 <= images.min() < images.max() <= 1
    assert isinstance(data.train, TensorDataset)
    assert data.train.tensors[0].dtype == torch.uint8


@pytest.mark.parametrize("names", [["T-shirt", "Trouser", "Bag"], None])
def test_look_alike_brings_its_own_classes_and_size(hub_folder, names):
    data = module(
        hub_folder("fashion", shape=(5, 7), classes=3, names=names, columns=("img", "labels"))
    )
    assert data.num_classes == 3
    assert data.input_shape == (1, 5, 7)
    assert next(iter(data.train_dataloader()))[0].shape == (5, 1, 5, 7)


def test_sample_is_the_first_digits_of_mnist():
    data = MNISTDataModule(sample=True)
    _, labels = collected(data.val_dataloader())
    assert labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]  # as everyone knows them
    _, test_labels = collected(data.test_dataloader())
    assert test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert (len(labels), len(test_labels)) == (1000, 1000)
    assert isinstance(data.train, TensorDataset)
    assert len(data.train) == 4000
    assert (data.num_classes, data.input_shape) == (10, (1, 28, 28))
    # Mean of MNIST's training pixels is 0.1307; of 4,000 of them, the same to a percent.
    assert data.train.tensors[0].float().mean().item() / 255 == pytest.approx(0.1307, abs=0.002)


def test_impossible_numbers_of_validation_images_are_named(hub_folder):
    folder = hub_folder()
    for validation in (0, 30):
        message = refusal(module(folder, validation=validation).train_dataloader)
        assert "data.validation: expected at least 1 and fewer than the 30 training" in message
        assert f"got {validation}." in message


def test_a_checkpoint_is_not_selected_by_images_that_are_trained_on(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["-c", "mnist_classifier", "--data.sample", "true", "--trainer.max_epochs", "1"]
    words += ["--trainer.limit_train_batches", "1", "--trainer.logger", "false"]
    words += ["--trainer.enable_progress_bar", "false"]
    code, _, err = cli("fit", *words, "--data.train_on_all", "true")
    assert (code, err.count("\n")) == (2, 1)
    assert "monitors val/loss, but data.train_on_all trains on the validation images" in err
    assert cli("fit", *words, "--data.train_on_all", "true", "--trainer.callbacks", "[]").code == 0
