"""Pictures in class folders, as torchvision's ImageFolder reads them, are data for configs of small images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from actlab.datamodules import CIFARDataModule, MNISTDataModule
from actlab.errors import ActlabError

CLASSES = ("cat", "dog", "eel")


def write_folder(folder: Path, size: tuple[int, ...] = (28, 28), each: int = 6) -> Path:
    """Pictures whose first pixel is 10 times their class plus their number."""
    for split in ("train", "test"):
        for kind, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for number in range(each):
                picture = np.full(size, 10 * kind + number, np.uint8)
                Image.fromarray(picture).save(folder / split / name / f"{number}.png")
    return folder


def module(folder: Path, tmp_path: Path, **options):
    return MNISTDataModule(
        dataset=str(folder), validation=6, batch_size=4, cache_dir=str(tmp_path / "cache"), **options
    )


def test_class_folders_become_labels_and_both_sets_have_all_classes(tmp_path):
    data = module(write_folder(tmp_path / "pets"), tmp_path)
    data.prepare_data()
    data.setup("fit")
    assert data.num_classes == 3
    for loader in (data.train_dataloader(), data.val_dataloader()):
        batches = list(loader)
        labels = np.concatenate([batch[1] for batch in batches])
        pixels = np.concatenate([batch[0][:, 0, 0, 0] for batch in batches])
        assert set(labels) == {0, 1, 2}
        assert np.array_equal(np.round(255 * pixels) // 10, labels)


def test_colour_pictures_are_data_for_cifar(tmp_path):
    folder = write_folder(tmp_path / "pets", (32, 32, 3))
    data = CIFARDataModule(dataset=str(folder), validation=3, batch_size=4, cache_dir=str(tmp_path / "cache"))
    data.prepare_data()
    data.setup("fit")
    assert next(iter(data.train_dataloader()))[0].shape == (4, 3, 32, 32)


def test_an_edited_picture_is_read_again(tmp_path):
    folder = write_folder(tmp_path / "pets")
    before = module(folder, tmp_path)
    before.setup("test")
    Image.fromarray(np.full((28, 28), 255, np.uint8)).save(folder / "test/cat/0.png")
    after = module(folder, tmp_path)
    after.setup("test")
    brightest = [max(float(batch[0].max()) for batch in data.test_dataloader()) for data in (before, after)]
    assert brightest == [pytest.approx(25 / 255), 1.0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "test").rename(folder / "text"), "has no 'test' images; it has train"),
        (lambda folder: (folder / "test/eel").rename(folder / "test/elk"), "'eel' is only in"),
        (
            lambda folder: [file.unlink() for file in (folder / "train/cat").iterdir()],
            "train/cat has no pictures",
        ),
        (lambda folder: (folder / "train/cat/0.png").write_bytes(b"no picture"), "train/cat/0.png cannot be"),
        (lambda folder: (folder / "train").rename(folder / "training"), "class folders, train/CLASS/*.png"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(tmp_path, spoil, message):
    folder = write_folder(tmp_path / "pets")
    spoil(folder)
    with pytest.raises(ActlabError) as caught:
        module(folder, tmp_path).setup("fit")
    assert message in str(caught.value)
