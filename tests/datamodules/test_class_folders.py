"""Pictures in class folders, as torchvision's ImageFolder reads them, for configs of images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from actlab.datamodules import MNISTDataModule
from hub_folders import write_pictures
from text_files import refusal

CLASSES = ("cat", "dog", "eel")


def write_folder(folder: Path, size: tuple[int, ...] = (28, 28), each: int = 6) -> Path:
    """Pictures whose first pixel is 10 times their class plus their number."""
    for kind, name in enumerate(CLASSES):
        for number in range(each):
            picture = np.full(size, 10 * kind + number, np.uint8)
            write_pictures(
                folder,
                dict.fromkeys((f"{s}/{name}/{number}.png" for s in ("train", "test")), picture),
            )
    return folder


def module(folder: Path, tmp_path: Path, **options):
    return MNISTDataModule(
        dataset=str(folder),
        validation=6,
        batch_size=4,
        cache_dir=str(tmp_path / "cache"),
        **options,
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


def test_an_edited_picture_is_read_again(tmp_path):
    folder = write_folder(tmp_path / "pets")
    before = module(folder, tmp_path)
    before.setup("test")
    Image.fromarray(np.full((28, 28), 255, np.uint8)).save(folder / "test/cat/0.png")
    after = module(folder, tmp_path)
    after.setup("test")
    brightest = [
        max(float(batch[0].max()) for batch in data.test_dataloader()) for data in (before, after)
    ]
    assert brightest == [pytest.approx(25 / 255), 1.0]


def spoiled(change):
    """Write a folder and change it."""
    return lambda folder: change(write_folder(folder))


def test_pictures_are_found_as_torchvision_finds_them(tmp_path):
    folder = write_folder(tmp_path / "pets", each=4)
    for split in ("train", "test"):
        for kind, name in enumerate(CLASSES):
            place = folder / split / name
            (place / "more").mkdir()
            Image.fromarray(np.full((28, 28), 10 * kind + 4, np.uint8)).save(place / "more/4.png")
            for number, suffix in enumerate(("tif", "pgm"), 5):
                Image.fromarray(np.full((28, 28), 10 * kind + number, np.uint8)).save(
                    place / f"x.{suffix}"
                )
    (folder / "train/cat/Thumbs.db").write_bytes(b"")
    (folder / "train/cat/clip.gif").write_bytes(b"")
    data = module(folder, tmp_path)
    data.setup("fit")
    assert (len(data.train), len(data.val), len(data.test)) == (15, 6, 21)
    found = {round(255 * float(batch[0].max())) for batch in data.test}
    assert found == {10 * kind + number for kind in range(3) for number in range(7)}


def test_orientation_tags_are_applied(tmp_path):
    folder = write_folder(tmp_path / "pets")
    tag = Image.Exif()
    tag[ExifTags.Base.Orientation] = 3  # upside down
    picture = np.zeros((28, 28), np.uint8)
    picture[0, 0] = 255
    Image.fromarray(picture).save(folder / "test/cat/0.png", exif=tag)
    data = module(folder, tmp_path)
    data.setup("test")
    assert max(float(batch[0][0, -1, -1]) for batch in data.test) == 1


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            spoiled(lambda folder: (folder / "test").rename(folder / "text")),
            "expected images in the split 'test', got the splits train",
        ),
        (
            spoiled(lambda folder: (folder / "test/eel").rename(folder / "test/elk")),
            "got 'eel' only in",
        ),
        (
            spoiled(lambda folder: [file.unlink() for file in (folder / "train/cat").iterdir()]),
            ".tif, .tiff, .webp), got none. Add some, or remove the folders of this class.",
        ),
        (
            spoiled(lambda folder: (folder / "train/cat/0.png").write_bytes(b"")),
            "train/cat/0.png cannot be",
        ),
        (
            spoiled(lambda folder: (folder / "train").rename(folder / "rest")),
            "class folders, train/CLASS",
        ),
        (lambda folder: folder.mkdir(), "pets: expected parquet files, such as mnist/"),
    ],
)
def test_a_folder_of_another_layout_or_kind_names_the_remedy(tmp_path, write, message):
    write(tmp_path / "pets")
    assert message in refusal(module(tmp_path / "pets", tmp_path).setup, "fit")
