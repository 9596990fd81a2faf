"""CIFAR-10 and CIFAR-100: split, preprocessing, samples, training by the command line, mistakes."""

import hashlib
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from actlab.datamodules import CIFARDataModule
from actlab.datamodules.base import TensorDataset
from actlab.datamodules.samplers import SeededBatches
from actlab.errors import ActlabError
from actlab.random.positions import Position
from actlab.storage.resources import resource
from hub_folders import SIZES, HubFolder, collected, floats, labels_of
from text_files import refusal

VALIDATION = 6
AUGMENTED = {"preprocessing": ["scale", "zca"], "crop": 4, "flip": "random", "noise": 0.15}


@pytest.fixture
def module(hub_folder: HubFolder) -> Callable[..., CIFARDataModule]:
    def build(folder: Path | None = None, **options: Any) -> CIFARDataModule:
        folder = folder or hub_folder("cifar", shape=(32, 32, 3), columns=("img", "label"))
        options = {"validation": VALIDATION, "batch_size": 5, "eval_batch_size": 4} | options
        return CIFARDataModule(
            dataset=str(folder), cache_dir=str(folder.parent / "cache"), **options
        )

    return build


Build = Callable[..., CIFARDataModule]


@pytest.mark.parametrize(("train_on_all", "first"), [(False, VALIDATION), (True, 0)])
def test_some_images_to_train_on_are_the_first(module, train_on_all, first):
    """Statistics cover the images that are trained on; validation and test keep all images."""
    limited = module(
        preprocessing=["mean"], train_on_all=train_on_all, train_images=7, batch_size=7
    )
    images, labels = collected(limited.train_dataloader())
    assert sorted(labels.tolist()) == sorted(labels_of("train")[first : first + 7])
    assert torch.allclose(images.mean(0), torch.zeros(()), atol=1e-3)
    assert collected(limited.val_dataloader())[1].tolist() == labels_of("train")[:VALIDATION]
    assert collected(limited.test_dataloader())[1].tolist() == labels_of("test")

    message = rf"data.train_images: expected at most the {SIZES['train'] - first} training images"
    with pytest.raises(ActlabError, match=message):
        module(train_on_all=train_on_all, train_images=1000).train_dataloader()


@pytest.mark.parametrize(("train_on_all", "first"), [(False, VALIDATION), (True, 0)])
def test_statistics_are_of_what_is_trained_on(module, train_on_all, first):
    data = module(
        preprocessing=["mean"], train_on_all=train_on_all, batch_size=SIZES["train"] - first
    )
    train, test = (floats(split, 32, 32, 3) * 255 for split in ("train", "test"))
    mean = train[first:].mean(0)
    images, labels = collected(data.train_dataloader())
    assert torch.allclose(images.mean(0), torch.zeros(()), atol=1e-3)
    assert sorted(labels.tolist()) == sorted(labels_of("train")[first:])
    assert torch.allclose(collected(data.val_dataloader())[0], train[:VALIDATION] - mean, atol=1e-3)
    assert torch.allclose(collected(data.test_dataloader())[0], test - mean, atol=1e-3)


def test_training_images_are_augmented_and_the_others_are_not(module):
    plain, data = module(preprocessing=["scale", "zca"]), module(**AUGMENTED)
    for loader in ("val_dataloader", "test_dataloader"):
        assert torch.equal(
            collected(getattr(plain, loader)())[0], collected(getattr(data, loader)())[0]
        )
    before, after = (collected(one.train_dataloader()) for one in (plain, data))
    assert torch.equal(before[1], after[1])
    assert not torch.isclose(before[0], after[0]).flatten(1).all(1).any()


def test_zeros_around_a_crop_are_zeros_after_preprocessing(module):
    data = module(preprocessing=["unit", "mean"], crop=4)
    images, _ = collected(data.train_dataloader())
    assert isinstance(data.train, TensorDataset)
    plain = data.train.tensors[0]
    assert plain.ne(0).float().mean() > 0.99
    edges = torch.cat((images[..., :4, :].flatten(), images[..., -4:, :].flatten()))
    assert 0.1 < edges.eq(0).float().mean() < 0.9


def test_both_ways_doubles_the_epoch(module):
    data = module(flip="both", batch_size=7)
    loader: Any = data.train_dataloader()
    assert len(loader) == 2 * (SIZES["train"] - VALIDATION) // 7
    assert isinstance(loader.batch_sampler, SeededBatches)
    assert data.train is not None
    images, _ = data.train.__getitems__(Position((0,), 0, torch.tensor([2, 2 + 24])))
    assert torch.equal(images[0], images[1].flip(-1))
    assert torch.equal(images[0], floats("train", 32, 32, 3)[VALIDATION + 2])


def test_labels_of_cifar100():
    fine, coarse = (
        CIFARDataModule("cifar100", sample=True, label=label) for label in (None, "coarse_label")
    )
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    parents: dict[int, set[int]] = {}
    for split in ("train", "test"):
        pairs = (data.images.tensors[f"{split}_labels"].tolist() for data in (fine, coarse))
        for child, parent in zip(*pairs, strict=True):
            parents.setdefault(child, set()).add(parent)
    assert len(parents) == 100
    assert {len(found) for found in parents.values()} == {1}
    assert sorted(parent for found in parents.values() for parent in found) == sorted(
        5 * list(range(20))
    )
    assert parents[0] == {4}  # apple: fruit and vegetables
    assert parents[99] == {13}  # worm: invertebrates but insects


def test_the_sample_of_cifar10_is_what_its_program_draws():
    """Ten kinds of patterns, each as often as the others, and no kind of CIFAR-100's sample."""
    drawn = runpy.run_path(str(Path(__file__).parents[2] / "data/make_cifar_samples.py"))
    data = CIFARDataModule(sample=True)
    _, labels = collected(data.val_dataloader())
    _, test_labels = collected(data.test_dataloader())
    assert data.train is not None
    assert (len(data.train), len(labels), len(test_labels)) == (150, 50, 50)
    for split in ("train", "test"):
        images = data.images.tensors[f"{split}_images"]
        kinds = data.images.tensors[f"{split}_labels"].tolist()
        assert kinds[:10] == [0, 7, 4, 1, 8, 5, 2, 9, 6, 3]
        assert {kinds.count(kind) for kind in range(10)} == {len(kinds) // 10}
        for number, (image, kind) in enumerate(zip(images, kinds, strict=True)):
            expected = drawn["pattern"](100 + kind, number, split)
            assert torch.equal(image, torch.from_numpy(expected).permute(2, 0, 1))
        others = CIFARDataModule("cifar100", sample=True).images.tensors[f"{split}_images"]
        assert not (images[:, None] == others).flatten(2).all(2).any()


@pytest.mark.parametrize("variant", ["cifar10", "cifar100"])
def test_samples_are_small_and_are_what_the_document_says(variant):
    files = sorted(resource(f"data/samples/{variant}").rglob("*.parquet"))
    assert sum(file.stat().st_size for file in files) < 600 * 1024
    document = (Path(__file__).parents[2] / "data" / "README.md").read_text(encoding="utf-8")
    told = dict(re.findall(rf"`samples/({variant}/\S+)` \| `(\w+)`", document))
    found = {
        str(file.relative_to(resource("data/samples"))): hashlib.md5(file.read_bytes()).hexdigest()
        for file in files
    }
    assert found
    assert told == found


def test_impossible_settings_are_refused(module):
    for options, words in (
        ({"variant": "cifar11"}, "variant: expected 'cifar10' or 'cifar100', got 'cifar11'"),
        ({"flip": "vertical"}, "flip: expected 'none', 'random' or 'both', got 'vertical'"),
        ({"variant": "cifar100"}, "data.dataset: expected the 100 classes of cifar100, got 10 in"),
    ):
        assert words in refusal(lambda options=options: module(**options).train_dataloader())


def test_the_hub_is_asked_for_the_variant():
    for variant in ("cifar10", "cifar100"):
        assert f"'uoft-cs/{variant}'" in refusal(CIFARDataModule(variant).train_dataloader)
