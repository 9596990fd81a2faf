"""Crops, mirroring and noise: each image is changed as its position says, alone and in a stack."""

import numpy as np
import pytest
import torch
from torch import Tensor

from actlab.datamodules.augmentation import Augmentation, BothWays, cropped
from actlab.datamodules.base import SeededBatches, TensorDataset
from actlab.errors import ActlabError
from actlab.random.positions import Position, integers_at, normal_at, uniform_at

SIZE, SHAPE, PADDING = 40, (3, 5, 6), 2
IMAGES = torch.arange(1, SIZE * 90 + 1, dtype=torch.float32).view(SIZE, *SHAPE)
LABELS = torch.arange(SIZE)
ALL = Augmentation(crop=PADDING, flip=True, noise=0.1)


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
def test_each_image_is_changed_as_its_position_says(seed: int, epoch: int) -> None:
    images, labels = ALL((IMAGES, LABELS), at(seed, epoch))
    assert torch.equal(labels, LABELS)
    assert np.allclose(images.numpy(), [by_hand(seed, epoch, n) for n in range(SIZE)], rtol=0, atol=1e-3)


def test_every_window_and_both_sides_are_seen_about_equally_often() -> None:
    count = 5000
    images = torch.zeros(count, 1, 4, 4)
    images[:, :, 1, 2] = 1
    index = torch.arange(count)
    windows = cropped(images, at(0, 0, index), 1)
    places = windows.flatten(1).nonzero()
    seen = torch.bincount(places[:, 1], minlength=16).view(4, 4)[:3, 1:]
    assert seen.sum() == count
    assert (seen - count / 9).abs().max() < 4 * (count * 8 / 81) ** 0.5
    turned = Augmentation(flip=True)((images, index), at(0, 0, index))[0][:, 0, 1, 1].sum()
    assert abs(turned - count / 2) < 4 * (count / 4) ** 0.5


def test_noise_has_its_deviation_and_no_two_values_share_it() -> None:
    images, _ = Augmentation(noise=0.15)((torch.zeros(400, 3, 8, 8), LABELS), at(1, 0, torch.arange(400)))
    assert images.std().item() == pytest.approx(0.15, rel=0.01)
    assert images.mean().abs().item() < 4 * 0.15 / images.numel() ** 0.5
    assert np.abs(np.corrcoef(images.flatten(1).T.numpy())[~np.eye(192, dtype=bool)]).max() < 0.3


def test_nothing_is_changed_unless_asked_for() -> None:
    images, _ = Augmentation()((IMAGES, LABELS), at(0))
    assert torch.equal(images, IMAGES)


@pytest.mark.parametrize("seed", [5, [5, 11]])
def test_two_devices_hold_the_halves_of_each_batch(seed: int | list[int]) -> None:
    data = TensorDataset(IMAGES, LABELS, transform=ALL)
    whole, *halves = (
        [data.__getitems__(position) for position in SeededBatches(SIZE, 8, seed, rank=rank, world_size=size)]
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    for (x, y), *parts in zip(whole, *halves, strict=True):
        assert torch.equal(x, torch.cat([part[0] for part in parts], dim=-4))
        assert torch.equal(y, torch.cat([part[1] for part in parts], dim=-1))


@pytest.mark.parametrize("kind", [TensorDataset, BothWays])
def test_member_of_a_stack_gets_what_it_has_alone(kind: type[TensorDataset] | type[BothWays]) -> None:
    data, seeds = kind(IMAGES, LABELS, transform=ALL), (5, 11, 5)
    stack, *alone = (SeededBatches(len(data), 8, seed) for seed in (seeds, *seeds))
    for batches in (stack, *alone):
        batches.set_epoch(1)
    for together, *parts in zip(stack, *alone, strict=True):
        images, labels = data.__getitems__(together)
        assert images.shape == (3, 8, *SHAPE)
        for member, part in enumerate(parts):
            x, y = data.__getitems__(part)
            assert torch.equal(images[member], x)
            assert torch.equal(labels[member], y)


def test_an_epoch_of_both_ways_shows_each_image_as_it_is_and_mirrored() -> None:
    data = BothWays(IMAGES, LABELS, Augmentation())
    assert len(data) == 2 * SIZE
    batches = [data.__getitems__(position) for position in SeededBatches(len(data), 8, 0)]
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    for number in range(SIZE):
        found = {tuple(image.flatten().tolist()) for image in images[labels == number]}
        assert found == {tuple(x.flatten().tolist()) for x in (IMAGES[number], IMAGES[number].flip(-1))}


def test_the_two_ways_of_an_image_draw_numbers_of_their_own() -> None:
    data = BothWays(IMAGES, LABELS, Augmentation(noise=1))
    first, second = (data.__getitems__(at(0, 0, torch.tensor([n])))[0] for n in (3, 3 + SIZE))
    assert not torch.isclose(first - IMAGES[3], second - IMAGES[3].flip(-1)).any()


def test_data_are_left_as_they_are() -> None:
    before = IMAGES.clone()
    ALL((IMAGES, LABELS), at(0))
    BothWays(IMAGES, LABELS, ALL).__getitems__(at(0, 0, torch.arange(2 * SIZE)))
    assert torch.equal(IMAGES, before)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"crop": -1}, "crop -1"),
        ({"noise": -0.1}, "noise -0.1"),
        ({"noise": float("nan")}, "noise nan"),
        ({"crop": 1.5}, "crop 1.5"),
        ({"crop": "four"}, "crop 'four'"),
        ({"noise": "x"}, "noise 'x'"),
        ({"noise": float("inf")}, "noise inf"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ActlabError, match=words):
        Augmentation(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [TensorDataset, BothWays])
def test_all_is_done_on_the_device_of_the_images(kind: type[TensorDataset] | type[BothWays]) -> None:
    meta = torch.device("meta")  # refuses tensors of another device, as an accelerator does
    data = kind(IMAGES.to(meta), LABELS.to(meta), transform=ALL)
    for seeds, index in (((1,), torch.arange(4)), ((1, 2), torch.arange(8).view(2, 4))):
        images, labels = data.__getitems__(Position(seeds, 0, index))
        assert (images.device, labels.device) == (meta, meta)
        assert images.shape == (*index.shape, *SHAPE)
