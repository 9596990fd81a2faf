"""Training transforms that draw: the same images alone and in a stack."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from actlab.datamodules.augmentation import Augmentation, BothWays, cropped
from actlab.datamodules.base import Batch, TensorDataModule, TensorDataset
from actlab.datamodules.samplers import SeededBatches
from actlab.errors import ActlabError
from actlab.random.positions import Position, integers_at, normal_at, uniform_at

SIZE, BATCH, SHAPE, PADDING = 40, 8, (3, 5, 6), 2
IMAGES = torch.arange(1, SIZE * 90 + 1, dtype=torch.float32).view(SIZE, *SHAPE)
LABELS = torch.arange(SIZE)
ALL = Augmentation(crop=PADDING, flip="random", noise=0.1)


class Images(TensorDataModule):
    """The images with all augmentations in training; the labels number them."""

    num_classes, input_shape = SIZE, SHAPE

    def load(self, device: torch.device) -> None:
        self.train = TensorDataset(IMAGES, LABELS, transform=ALL)
        self.val = self.test = TensorDataset(IMAGES, LABELS, transform=Augmentation())


def epoch_of(seed: int, epoch: int) -> list[Batch]:
    """The training batches of an epoch that a fresh datamodule gives, as after a resume."""
    data = Images(BATCH, 15, seed)
    loader: Any = data.train_dataloader()
    assert isinstance(loader.batch_sampler, SeededBatches)
    loader.batch_sampler.set_epoch(epoch)
    return list(loader)


def at(seed: int, epoch: int = 0, index: Tensor = LABELS) -> Position:
    return Position((seed,), epoch, index)


def by_hand(seed: int, epoch: int, number: int) -> np.ndarray:
    """One image, changed by numpy with what it draws on its own."""
    position = at(seed, epoch, torch.tensor([number]))
    c, h, w = SHAPE
    padded = np.zeros((c, h + 2 * PADDING, w + 2 * PADDING), np.float32)
    padded[:, PADDING:-PADDING, PADDING:-PADDING] = IMAGES[number]
    row, column = integers_at(position, "crop", 2 * PADDING + 1, (2,))[0].tolist()
    window = padded[:, row : row + h, column : column + w]
    if uniform_at(position, "flip").item() < 0.5:
        window = window[..., ::-1]
    return window + np.float32(0.1) * normal_at(position, "noise", SHAPE)[0].numpy()


@pytest.mark.parametrize(("seed", "epoch"), [(3, 0), (3, 2), (8, 0)])
def test_each_image_is_changed_as_its_position_says(seed, epoch):
    for images, labels in epoch_of(seed, epoch):
        expected = [by_hand(seed, epoch, number) for number in labels.tolist()]
        assert np.allclose(images.numpy(), expected, rtol=0, atol=1e-3)


def test_every_window_and_both_sides_are_seen_about_equally_often():
    count = 5000
    images = torch.zeros(count, 1, 4, 4)
    images[:, :, 1, 2] = 1
    index = torch.arange(count)
    windows = cropped(images, at(0, 0, index), 1)
    places = windows.flatten(1).nonzero()
    seen = torch.bincount(places[:, 1], minlength=16).view(4, 4)[:3, 1:]
    assert seen.sum() == count
    assert (seen - count / 9).abs().max() < 4 * (count * 8 / 81) ** 0.5
    turned = Augmentation(flip="random")((images, index), at(0, 0, index))[0][:, 0, 1, 1].sum()
    assert abs(turned - count / 2) < 4 * (count / 4) ** 0.5


def test_evaluation_is_untouched():
    data = Images(BATCH, 15, 5)
    data.seed = [5, 11]
    for loader in (data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()):
        images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
        assert torch.equal(images, IMAGES)
        assert torch.equal(labels, LABELS)


def test_evaluation_draws_the_same_for_every_seed_and_size_of_batches():
    def noisy(seed: Any, size: int) -> Tensor:
        data = Images(BATCH, size, 0)
        data.seed = seed
        data.setup("test")
        data.test = TensorDataset(IMAGES, LABELS, transform=ALL)
        return torch.cat([images for images, _ in data.test_dataloader()])

    assert torch.equal(noisy(5, 15), noisy([1, 2, 3], 15))
    assert torch.equal(noisy(5, 15), noisy(5, 40))


def test_an_epoch_of_both_ways_shows_each_image_as_it_is_and_mirrored_with_noise_of_its_own():
    data = BothWays(IMAGES, LABELS, Augmentation())
    assert len(data) == 2 * SIZE
    batches = [data.__getitems__(position) for position in SeededBatches(len(data), 8, 0)]
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    for number in range(SIZE):
        found = {tuple(image.flatten().tolist()) for image in images[labels == number]}
        assert found == {
            tuple(x.flatten().tolist()) for x in (IMAGES[number], IMAGES[number].flip(-1))
        }
    noisy = BothWays(IMAGES, LABELS, Augmentation(noise=1))
    first, second = (noisy.__getitems__(at(0, 0, torch.tensor([n])))[0] for n in (3, 3 + SIZE))
    assert not torch.isclose(first - IMAGES[3], second - IMAGES[3].flip(-1)).any()


def test_data_are_left_as_they_are():
    before = IMAGES.clone()
    ALL((IMAGES, LABELS), at(0))
    BothWays(IMAGES, LABELS, ALL).__getitems__(at(0, 0, torch.arange(2 * SIZE)))
    assert torch.equal(IMAGES, before)


@pytest.mark.parametrize(
    ("name", "value"),
    [("crop", -1), ("crop", 1.5), ("crop", "four"), ("noise", -0.1), ("noise", float("nan"))],
)
def test_impossible_settings_are_refused(name, value):
    with pytest.raises(ActlabError, match=f"Augmentation: {name}: expected a .*, got {value!r}"):
        Augmentation(**{name: value})


@pytest.mark.parametrize("kind", [TensorDataset, BothWays])
def test_all_is_done_on_the_device_of_the_images(kind):
    meta = torch.device("meta")  # refuses tensors of another device, as an accelerator does
    data = kind(IMAGES.to(meta), LABELS.to(meta), transform=ALL)
    for seeds, index in (((1,), torch.arange(4)), ((1, 2), torch.arange(8).view(2, 4))):
        images, labels = data.__getitems__(Position(seeds, 0, index))
        assert (images.device, labels.device) == (meta, meta)
        assert images.shape == (*index.shape, *SHAPE)
