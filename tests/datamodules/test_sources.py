"""Folders and hub ids become tensors, once; what cannot be read is named."""

import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import text_files
from actlab.datamodules import images as module
from actlab.datamodules.cache import made_once
from actlab.datamodules.images import ImageDataModule, Images
from actlab.datamodules.pictures import decode
from actlab.errors import ActlabError
from hub_folders import SIZES, HubFolder, labels_of, pixels_of, png

SPLITS = ("train", "test")


def load(folder: Path | str, cache: str, channels: int = 1, **options: Any) -> Images:
    options = {"test_split": "test", **options}
    return ImageDataModule(str(folder), channels=channels, cache_dir=cache, **options).images  # type: ignore[arg-type]


def refusal(folder: Path | str, cache: str, channels: int = 1) -> str:
    return text_files.refusal(load, folder, cache, channels)


def test_pixels_and_labels_come_in_file_order(hub_folder, cache):
    images = load(hub_folder(), cache)
    for split in SPLITS:
        assert np.array_equal(images.tensors[f"{split}_images"], pixels_of(split, 8, 8)[:, None])
        assert images.tensors[f"{split}_labels"].tolist() == labels_of(split)
        assert images.tensors[f"{split}_images"].dtype == torch.uint8
        assert images.tensors[f"{split}_labels"].dtype == torch.int64
    assert images.num_classes == 10


def test_colour_goes_channels_first(hub_folder, cache):
    images = load(hub_folder(shape=(6, 4, 3), columns=("img", "label")), cache, channels=3)
    assert np.array_equal(
        images.tensors["train_images"], pixels_of("train", 6, 4, 3).transpose(0, 3, 1, 2)
    )


@pytest.mark.parametrize("mode", ["1", "P"])
def test_losslessly_packed_images_keep_their_values(hub_folder, cache, mode):
    black_and_white = np.zeros((8, 8), np.uint8)
    black_and_white[2:5, 3] = 255
    images = load(hub_folder(change=at(1, png(black_and_white, mode))), cache)
    assert np.array_equal(images.tensors["train_images"][1, 0], black_and_white)


def test_label_column_can_be_chosen(hub_folder, cache):
    folder = hub_folder(columns=("image", "coarse_label"))
    assert "a column label or fine_label or labels, got image, coarse_label" in refusal(
        folder, cache
    )
    assert load(folder, cache, label="coarse_label").tensors["test_labels"].tolist() == labels_of(
        "test"
    )


def test_second_load_decodes_nothing(hub_folder, cache, monkeypatch):
    folder = hub_folder()
    first = load(folder, cache)
    monkeypatch.setattr(module, "open_tables", None)
    second = load(folder, cache)
    assert all(torch.equal(first.tensors[name], second.tensors[name]) for name in first.tensors)
    assert second.num_classes == 10
    # Another place with the same bytes is the same dataset; nothing but the tensors and a lock is
    # kept.
    load(folder.rename(folder.with_name("elsewhere")), cache)
    assert sorted(path.suffix for path in Path(cache).iterdir()) == [".lock", ".safetensors"]


def test_changed_files_are_read_again_whatever_their_times(hub_folder, cache):
    folder = hub_folder()
    file = folder / "data" / "train-00000-of-00001.parquet"
    before, times = load(folder, cache), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    hub_folder(change=lambda files, labels: labels.reverse())
    os.utime(file, ns=times)
    after = load(folder, cache)
    assert after.tensors["train_labels"].tolist() == before.tensors["train_labels"].tolist()[::-1]


@pytest.mark.parametrize("damage", ["empty", "zeros", "cut", "bit"])
def test_damaged_cache_is_rebuilt(hub_folder, cache, damage):
    folder = hub_folder()
    load(folder, cache)
    (file,) = Path(cache).glob("*.safetensors")
    content = file.read_bytes()
    flipped = content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]
    file.write_bytes(
        {"empty": b"", "zeros": bytes(64), "cut": content[:-100], "bit": flipped}[damage]
    )
    assert load(folder, cache).tensors["train_labels"].tolist() == labels_of("train")
    assert np.array_equal(
        load(folder, cache).tensors["train_images"], pixels_of("train", 8, 8)[:, None]
    )


def test_cache_that_cannot_be_written_is_named(hub_folder, tmp_path):
    (tmp_path / "file").touch()
    message = refusal(hub_folder(), str(tmp_path / "file" / "cache"))
    assert str(tmp_path / "file" / "cache") in message
    assert "$ACTLAB_CACHE" in message


def test_cache_folder_comes_from_the_environment(hub_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ACTLAB_CACHE", str(tmp_path / "mine"))
    _ = ImageDataModule(str(hub_folder()), channels=1).images
    assert list((tmp_path / "mine").glob("*.safetensors"))


def test_two_that_ask_at_once_make_tensors_once(cache, monkeypatch):
    """A thread asks while this one makes them; file locks hold between threads and processes."""
    made, found, asked = [], [], threading.Event()

    class Lock(FileLock):
        def acquire(self, *arguments: Any, **options: Any) -> Any:
            if threading.current_thread() is other:
                asked.set()
            return super().acquire(*arguments, **options)

    def make() -> dict[str, torch.Tensor]:
        made.append(threading.current_thread())
        if len(made) == 1:
            other.start()
            assert asked.wait(60)
        return {"a": torch.arange(3)}

    other = threading.Thread(target=lambda: found.append(made_once("x", "content", cache, make)))
    monkeypatch.setattr("actlab.datamodules.cache.FileLock", Lock)
    assert made_once("x", "content", cache, make)["a"].tolist() == [0, 1, 2]
    other.join()
    assert found[0]["a"].tolist() == [0, 1, 2]
    assert len(made) == 1


def test_importing_a_datamodule_loads_no_datasets_of_the_hub():
    files = sorted(Path(module.__file__).parent.rglob("*.py"))
    assert files
    assert not [
        file
        for file in files
        if re.search("^(from|import) datasets", file.read_text("utf-8"), re.M)
    ]


@pytest.mark.parametrize(
    "dataset", ["./nowhere", "~/nowhere/at/all", "src/mnits", "", "ylecun/mnist", "mnist"]
)
def test_what_is_neither_a_folder_nor_on_the_hub_is_named(cache, dataset):
    message = refusal(dataset, cache)
    assert f"a folder or a dataset of the Hugging Face Hub, got {dataset!r} (" in message
    assert "data.sample" in message


def test_a_folder_has_no_revisions(hub_folder, cache):
    with pytest.raises(
        ActlabError, match=r"data\.revision: expected null for the folder .*, got 'v1'"
    ):
        load(hub_folder(), cache, revision="v1")


def test_a_folder_may_have_any_name(hub_folder, tmp_path):
    folder = hub_folder()
    names = ("a[1]", "[x]", "b*", "c?", "d e", "f{1,2}", "g#h", "x::y", "zip:a", "ü")
    for number, name in enumerate(names):
        folder, cache = folder.rename(tmp_path / name), str(tmp_path / f"cache {number}")
        assert load(folder, cache).tensors["train_labels"].tolist() == labels_of("train"), name


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda file: file.symlink_to("not-there")], ids=["pipe", "link"]
)
def test_what_is_no_file_is_named(hub_folder, cache, make):
    make((folder := hub_folder()) / "data" / "train-1.parquet")
    assert "train-1.parquet cannot be read (" in refusal(folder, cache)


def test_missing_and_empty_splits_are_named(hub_folder, cache):
    message = refusal(hub_folder("one", splits=("train",)), cache)
    assert "expected images in the split 'test'" in message
    assert (
        "got the splits train. Set data.train_split and data.test_split (null without test"
        in message
    )

    def empty(files: list[Any], labels: list[Any]) -> None:
        if len(files) == SIZES["test"]:
            del files[1:], labels[1:]
            files[0] = None

    assert "image 0 of the test split" in refusal(hub_folder("two", change=empty), cache)


def at(number: int, file: Any) -> Any:
    def change(files: list[Any], labels: list[Any]) -> None:
        files[number] = file

    return change


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (None, "cannot be decoded"),
        (png(np.full((8, 8), 77, np.uint8))[:50], "cannot be decoded"),
        (png(np.zeros((8, 9), np.uint8)), "has size 8×9. Set data.size"),
    ],
    ids=["none", "truncated", "size"],
)
def test_unusable_image_is_named(hub_folder, cache, file, words):
    folder = hub_folder(change=at(5, file))
    message = refusal(folder, cache)
    assert "image 5 of the train split" in message
    assert str(folder) in message
    assert words in message


@pytest.mark.parametrize("label", [None, -1, 10, 2.5, "seven"])
def test_unusable_labels_are_named(hub_folder, cache, label):
    def change(files: list[Any], labels: list[Any]) -> None:
        kind = str if isinstance(label, str) else float if isinstance(label, float) else int
        labels[:] = map(kind, labels)
        labels[3] = label

    message = refusal(
        hub_folder(
            names=None if isinstance(label, (str, float)) else tuple("0123456789"), change=change
        ),
        cache,
    )
    assert "column 'label'" in message
    assert "Encode texts with class_encode_column of datasets" in message


def test_column_without_images_is_named(hub_folder, cache):
    assert "column" in refusal(hub_folder(columns=("label", "image"), names=None), cache)


def test_splits_of_different_sizes_are_refused(hub_folder, cache):
    hub_folder(splits=("train",))
    assert "different sizes" in refusal(hub_folder(splits=("test",), shape=(9, 9)), cache)


def test_a_folder_that_changes_while_it_is_read_is_not_kept(hub_folder, cache, monkeypatch):
    folder = hub_folder()

    def slowly(*arguments: Any) -> Any:
        found = decode(*arguments)
        hub_folder(change=at(5, png(np.zeros((8, 8), np.uint8))))
        return found

    monkeypatch.setattr(module, "decode", slowly)
    assert "changed while it was read. Run again" in refusal(folder, cache)
    assert not list(Path(cache).glob("*.safetensors"))


FUZZ = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def parquet(hub_folder: HubFolder) -> tuple[Path, bytes]:
    """A file of a dataset, and its content."""
    file = hub_folder() / "data" / "train-00000-of-00001.parquet"
    return file, file.read_bytes()


@FUZZ
@given(where=st.floats(0, 1, exclude_max=True))
def test_truncated_file_is_named(parquet, cache, where):
    file, content = parquet
    file.write_bytes(content[: int(where * len(content))])
    message = refusal(file.parents[1], cache)
    assert file.name in message
    assert "Fetch it again" in message


@FUZZ
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), run=st.integers(1, 20))
def test_flipped_bytes_give_images_or_a_clear_error(parquet, cache, where, flip, run):
    file, content = parquet[0], bytearray(parquet[1])
    start = int(where * len(content))
    content[start : start + run] = bytes(byte ^ flip for byte in content[start : start + run])
    file.write_bytes(content)
    try:
        images = load(file.parents[1], cache)
    except ActlabError as error:
        assert str(file.parents[1]) in str(error)  # noqa: PT017  (either outcome is right)
    else:
        assert images.tensors["train_images"].shape[2:] == (8, 8)
