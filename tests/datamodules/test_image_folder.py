"""A folder of pictures as people have them: no splits, any mode and size, some files damaged."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from actlab.cli.predictions import files_of
from actlab.datamodules import ImageDataModule, ImageNetDataModule
from actlab.storage.resources import resource
from hub_folders import write_pictures
from text_files import refusal

MODES = ("L", "RGB", "RGBA", "P", "CMYK", "1", "I;16")
KINDS = {"CMYK": "jpg"}
CONFIG = """\
seed_everything: 0
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    activation: gelu
    network: {class_path: actlab.networks.MLP, init_args: {hidden: [8]}}
data:
  class_path: actlab.datamodules.ImageDataModule
  init_args: {dataset: pets, size: 8, batch_size: 4}
trainer:
  max_epochs: 1
  logger: false
  enable_progress_bar: false
  callbacks:
    - class_path: actlab.callbacks.TestEveryEpoch
    - class_path: pytorch_lightning.callbacks.ModelCheckpoint
      init_args: {filename: last, save_on_train_epoch_end: true}
"""


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten pictures of cats and ten of dogs, of every mode and several sizes, without splits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACTLAB_CACHE", str(tmp_path / "cache"))
    for number in range(20):
        mode = MODES[number % len(MODES)]
        path = (
            tmp_path / "pets" / ("cat", "dog")[number // 10] / f"{number}.{KINDS.get(mode, 'png')}"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((9 + number, 12, 3), 10 * number, np.uint8)
        Image.fromarray(pixels).convert("L" if mode == "I;16" else mode).convert(mode).save(path)
    return tmp_path / "pets"


def module(folder: Path, **options: Any) -> ImageDataModule:
    data = ImageDataModule(str(folder), **{"size": 8, "batch_size": 2, **options})
    data.setup("fit")
    return data


def split_of(data: ImageDataModule) -> dict[str, list[int]]:
    """The labels of each part."""
    parts: dict[str, Any] = {"train": data.train, "val": data.val, "test": data.test}
    return {name: part.tensors[1].tolist() for name, part in parts.items() if part is not None}


def test_a_folder_is_trained_tested_and_predicted_at_the_first_try(cli, pets):
    Path("pets.yaml").write_text(CONFIG)
    cli("fit", "-c", "pets.yaml").succeeded()
    cli("predict", "-c", "pets.yaml", "--ckpt_path", "last").succeeded()
    (path,) = Path("runs").rglob("predictions.parquet")
    table = pd.read_parquet(path)
    columns = ["label", "label_class", "predicted", "predicted_class", "probability"]
    assert list(table) == ["index", "file", *columns, "probability_cat", "probability_dog"]
    assert [Path(file).parts[0] for file in table["file"]] == table["label_class"].tolist()
    assert len({*table["file"]}) == 4
    assert all((pets / file).is_file() for file in table["file"])
    for row in table.to_dict("records"):
        assert row["probability"] == row[f"probability_{row['predicted_class']}"]
        assert row["probability"] == max(row["probability_cat"], row["probability_dog"])
        assert ("cat", "dog")[row["predicted"]] == row["predicted_class"]


def test_files_of_predictions_are_those_whose_pixels_were_seen(pets):
    """The brightness of a picture says which file it is."""
    data = module(pets, leave_out=["cat/3.png", "cat/5.png", "dog/12.png", "dog/19.png"])
    test: Any = data.test
    for image, file in zip(test.tensors[0], test.file_names, strict=True):
        assert image.float().mean().item() == pytest.approx(10 * int(Path(file).stem), abs=6)


def test_photographs_and_folders_of_torchvision_have_names_too(tmp_path):
    folders = pytest.importorskip("torchvision.datasets")
    places = [
        f"{part}/{kind}/{number}.png"
        for part in ("train", "val")
        for kind in "ab"
        for number in range(3)
    ]
    folder = write_pictures(tmp_path / "pets", dict.fromkeys(places, np.zeros((8, 8, 3), np.uint8)))
    data = ImageNetDataModule(
        str(folder), size=8, crop=8, val_images=2, workers=0, cache_dir=str(tmp_path / "cache")
    )
    data.setup("test")
    assert data.class_names == ["a", "b"]
    names = files_of(data.test)
    assert names is not None
    assert [Path(name).parent.name for name in names] == [
        data.class_names[label] for _, label in data.test or ()
    ]
    assert files_of(folders.ImageFolder(folder / "train")) == [
        str(folder / place) for place in places[:6]
    ]
    assert files_of([1, 2]) is None


def test_without_splits_a_share_of_each_class_is_drawn_by_a_seed(pets):
    first, again, other = (
        module(pets, split_seed=seed, seed=run) for seed, run in ((0, 1), (0, 2), (1, 1))
    )
    labels = {part: sorted(found) for part, found in split_of(first).items()}
    assert labels == {"train": [0] * 7 + [1] * 7, "val": [0, 1], "test": [0, 0, 1, 1]}
    for part in ("train", "val", "test"):
        one, two, three = (getattr(data, part).tensors[0] for data in (first, again, other))
        assert torch.equal(one, two)
        assert not torch.equal(one, three)
    assert torch.equal(torch.cat([*first.rows.values()]).sort().values, torch.arange(20))


def test_shares_and_numbers_may_be_given(pets):
    sizes: list[tuple[dict[str, Any], tuple[int, ...]]] = [
        ({"validation": 0.3, "test": 0.4}, (6, 6, 8)),
        ({"validation": 0.3, "test_split": None}, (14, 6)),
        ({"validation": 5, "test": 3}, (12, 5, 3)),
        ({"validation": 5, "test": 0.2, "train_on_all": True}, (16, 5, 4)),
        ({"train_on_all": True, "test_split": None}, (20, 2)),
    ]
    for options, expected in sizes:
        assert tuple(map(len, split_of(module(pets, **options)).values())) == expected, options


@pytest.mark.parametrize(
    ("parts", "sizes"),
    [
        (("train", "val", "test"), (8, 8, 8)),
        (("train", "validation"), (6, 8, 2)),
        (("train", "test"), (6, 2, 8)),
        (("train",), (4, 2, 2)),
    ],
)
def test_parts_without_a_folder_are_taken_from_the_training_pictures(tmp_path, parts, sizes):
    places = [
        f"{part}/{kind}/{number}.png" for part in parts for kind in "ab" for number in range(4)
    ]
    write_pictures(tmp_path / "pets", dict.fromkeys(places, np.zeros((8, 8, 3), np.uint8)))
    data = module(tmp_path / "pets", cache_dir=str(tmp_path / "cache"))
    assert tuple(map(len, split_of(data).values())) == sizes


def test_tables_of_the_hub_without_a_test_split_are_divided_too(hub_folder, tmp_path):
    folder = hub_folder(splits=("train",))
    data = module(folder, channels=1, cache_dir=str(tmp_path / "cache"))
    assert tuple(map(len, split_of(data).values())) == (10, 10, 10)  # three images of each class
    assert data.class_names == [*"0123456789"]
    assert data.test is not None
    assert data.test.file_names is None
    both = hub_folder("both", splits=("train", "validation"))
    data = module(both, channels=1, cache_dir=str(tmp_path / "cache"))
    assert tuple(map(len, split_of(data).values())) == (20, 12, 10)


@pytest.mark.parametrize(("fit", "first_column"), [("crop", 100), ("resize", 0)])
def test_a_picture_is_cropped_or_resized(tmp_path, fit, first_column):
    """A wide picture: black, grey in its central square, black."""
    pixels = np.zeros((8, 24, 3), np.uint8)
    pixels[:, 8:16] = 100
    places = [f"{kind}/{number}.png" for kind in "ab" for number in range(3)]
    folder = write_pictures(tmp_path / "wide", dict.fromkeys(places, pixels))
    data = module(folder, size=[8, 8], fit=fit, cache_dir=str(tmp_path / "cache"))
    image = data.images.tensors["train_images"][0]
    assert image.shape == (3, 8, 8)
    assert image[0, 0, 0] == first_column
    assert image[0, 0, 4] == 100
    assert module(folder, size=[4, 6], cache_dir=str(tmp_path / "cache")).input_shape == (3, 4, 6)


def test_pictures_of_several_sizes_need_one(pets):
    message = refusal(module, pets, size=None)
    assert "has images of 20 different sizes: " in message
    assert re.search(
        r"pets/\w+/\d+\.\w+ has size \d+×12, .*\. Set data.size, and data.fit to crop or resize\.$",
        message,
    )


def damaged(folder: Path, number: int) -> list[str]:
    """The first pictures, now damaged, half of them in the middle of a file."""
    files = sorted(folder.rglob("*.*"))[:number]
    for position, file in enumerate(files):
        file.write_bytes(b"" if position % 2 else file.read_bytes()[:40])
    return [str(file.relative_to(folder)) for file in files]


def test_all_unreadable_pictures_are_in_one_list_and_can_be_left_out(pets):
    names = damaged(pets, 4)
    message = refusal(module, pets)
    assert message.startswith("4 unreadable pictures: ")
    assert all(f"{pets / name} cannot be decoded (" in message for name in names)
    (listed,) = re.findall(r"or set data\.leave_out to (\[.*?\])", message)
    assert json.loads(listed) == names
    assert sum(map(len, split_of(module(pets, leave_out=names)).values())) == 16


def test_many_unreadable_pictures_can_be_left_out_at_once(pets):
    (pets / "eel").mkdir()
    for number in range(20):
        Image.new("L", (8, 8)).save(pets / f"eel/{number}.png")
    damaged(pets, 9)
    (pets / "dog/12.png").write_bytes(b"")
    (pets / "dog/13.png").write_bytes(b"")
    message = refusal(module, pets)
    assert message.startswith("11 unreadable pictures: ")
    (listed,) = re.findall(r"or set data\.leave_out to (\[.*?\])", message)
    assert sum(map(len, split_of(module(pets, leave_out=json.loads(listed))).values())) == 29
    assert (
        sum(
            map(len, split_of(module(pets, leave_out=["cat", "dog/12.png", "dog/13.png"])).values())
        )
        == 28
    )


def test_sizes_are_told_beside_unreadable_pictures(pets):
    damaged(pets, 1)
    message = refusal(module, pets, size=None)
    assert "cannot be decoded" in message
    assert ". The other images have 19 different sizes: " in message


def test_links_that_lead_back_are_not_followed(pets):
    """Three links to the dataset's folder: a walk that follows them takes more than any time."""
    names = module(pets).class_names
    count = len(module(pets).images.tensors["train_labels"])
    for folder in (pets, pets / "cat", pets / "dog"):
        (folder / "again").symlink_to(pets)
    (pets / "loop").symlink_to("loop")

    assert module(pets).class_names == names
    assert len(module(pets).images.tensors["train_labels"]) == count


def test_what_does_not_fit_a_folder_is_named(pets):
    assert "data.leave_out: expected paths from" in refusal(
        module, pets, leave_out=["cat/none.png"]
    )
    assert "at least two class folders, CLASS/*.png, got one" in refusal(
        module, pets, leave_out=["cat"]
    )
    assert "data.validation: expected at least 1 and fewer than the 16 training" in refusal(
        module, pets, validation=20
    )
    most = [
        str(file.relative_to(pets))
        for kind in ("cat", "dog")
        for file in [*(pets / kind).iterdir()][1:]
    ]
    assert "expected a share of at least one image per class, got 0." in refusal(
        module, pets, leave_out=most
    )
    assert "leave_out: expected " in refusal(module, pets, leave_out="cat/0.png")
    assert "expected parquet files, such as" in refusal(module, pets, train_split="Train")
    assert "data.size: expected [height, width] with data.fit resize, got null" in refusal(
        module, pets, size=None, fit="resize"
    )
    (pets / "dog").rename(pets / "Test")
    assert "class folders, train/CLASS/*.png and test/CLASS/*.png, or CLASS/*.png" in refusal(
        module, pets
    )


def test_the_document_has_each_argument_with_its_default():
    """The table of `ImageDataModule` in data/README.md agrees with the signature of --data.help."""
    text = (resource("data") / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Your own images") : text.index("## The cache")]
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.M))
    defaults = {
        name: "required" if of.default is of.empty else f"`{yaml_of(of.default)}`"
        for name, of in inspect.signature(ImageDataModule).parameters.items()
    }
    assert shown == defaults


def yaml_of(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return {"None": "null", "False": "false"}.get(str(value), str(value))
