"""The pixels of a picture: which train and which are held out, their coordinates and colours."""

import numpy as np
import pytest
import torch
from PIL import Image

from actlab.datamodules import CIFARDataModule, PixelDataModule
from actlab.errors import ActlabError
from actlab.studies import reading


@pytest.fixture
def picture(tmp_path):
    """A picture of 5 × 6 pixels, red their row and green their column."""
    pixels = np.zeros((5, 6, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.indices((5, 6)) * 10
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return str(tmp_path / "picture.png")


def made(**options):
    data = PixelDataModule(**{"batch_size": 8, "updates_per_epoch": 50, **options})
    data.setup("fit")
    return data


def pixels_of(data):
    """The pixels that training draws from."""
    return data.train.draw.args[0]


def places(colours):
    return {tuple(place) for place in (colours[:, :2] * 25.5).round().int().tolist()}


def test_each_pixel_belongs_to_one_part(picture):
    data = made(dataset=picture)
    parts = [places(part.tensors[1]) for part in (pixels_of(data), data.val, data.test)]
    assert parts[0] == {(r, c) for r in range(5) for c in range(6) if (r + c) % 2 == 0}
    assert parts[1] == {(r, c) for r in range(0, 5, 2) for c in range(1, 6, 2)}
    assert parts[2] == {(r, c) for r in range(1, 5, 2) for c in range(0, 6, 2)}
    assert (data.num_outputs, data.input_shape) == (3, (2,))


def test_coordinates_span_the_picture(picture):
    coordinates, colours = pixels_of(made(dataset=picture)).tensors
    rows, columns = (colours[:, :2] * 25.5).round().T
    torch.testing.assert_close(coordinates, torch.stack([columns / 2.5 - 1, rows / 2 - 1], 1))


def test_training_draws_its_pixels_with_replacement(picture):
    first = [colours for _, colours in made(dataset=picture, seed=1).train_dataloader()]
    again = [colours for _, colours in made(dataset=picture, seed=1).train_dataloader()]
    assert len(first) == 50
    assert all(map(torch.equal, first, again))
    counts = torch.cat(first).unique(dim=0, return_counts=True)[1]
    assert len(counts) == 15
    assert 0 < counts.min() < counts.max() < 60  # 27 on average


def test_the_mosaic_has_the_first_test_images_in_rows(tmp_path):
    data = made(sample=True, cache_dir=str(tmp_path))
    images = CIFARDataModule(sample=True, cache_dir=str(tmp_path)).images.tensors["test_images"]
    assert data.image.shape == (3, 128, 128)
    assert data.image[:, 32:64, 96:].equal(images[7])
    assert [len(part.tensors[0]) for part in (pixels_of(data), data.val, data.test)] == [
        8192,
        4096,
        4096,
    ]


def test_the_commit_of_a_hub_dataset_is_recorded(picture, tmp_path):
    data = PixelDataModule("uoft-cs/cifar10")
    sample = CIFARDataModule(sample=True, cache_dir=str(tmp_path)).images
    vars(data.cifar)["images"] = sample._replace(revision="0abc")  # as read from the hub
    assert data.revisions == {"uoft-cs/cifar10": "0abc"}
    assert (
        made(dataset=picture).revisions
        == made(sample=True, cache_dir=str(tmp_path)).revisions
        == {}
    )


def test_a_picture_takes_the_place_of_the_dataset_of_a_shipped_study(picture):
    first = reading.load("inr_image", overrides=[f"data.dataset={picture}"]).runs()[0]
    data = made(**first.config["data"]["init_args"])
    assert data.image.shape == (3, 5, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dataset": "no.png"},
            r"a picture or CIFAR-10, got 'no.png' .*No such file.*\. Use another file",
        ),
        ({"dataset": __file__}, "expected a picture or CIFAR-10, got .* Use another file"),
        ({"dataset": "a.png", "sample": True}, "null with data.sample true"),
        (
            {"sample": True, "tiles": 8},
            "tiles: expected at most 50 tiles, one per test image, got 8×8",
        ),
        (
            {"sample": True, "tiles": 0},
            "tiles: expected a number greater than or equal to 1, got 0",
        ),
        ({"sample": True, "updates_per_epoch": 0}, "updates_per_epoch: .*, got 0"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ActlabError, match=message):
        made(**options)
