"""Pipes and devices in place of data: one line names them, and no reader waits without end."""

import itertools
import os
import shutil
from functools import partial

import pytest
import torch

from actlab.datamodules.cache import made_once
from actlab.storage.resources import resource
from fuzzing import within
from hub_folders import write_hub_folder


def make_irregular(file, kind):
    """Put a pipe or a link to a device in the place of a file."""
    file.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")


def write_copy(name, folder):
    """A copy of a data set's sample."""
    if name == "mnist":
        write_hub_folder(folder.parent, folder.name, splits=("train", "test"))
    else:
        shutil.copytree(resource("data/samples") / {"wikitext": "text"}.get(name, name), folder)


KINDS = ("fifo", "device")
every_kind = pytest.mark.parametrize("kind", KINDS)
FILES = {
    "timit": [f"train/dr1/faaa0/sx1.{suffix}" for suffix in ("wav", "phn")],
    "twitter_pos": ["oct27.train", "oct27.dev", "oct27.test", "50mpaths2"],
    "mnist": [f"data/{part}-00000-of-00001.parquet" for part in ("train", "test")],
    "wikitext": ["sample.txt"],
}
CONFIGS = {
    "timit": ["-c", "timit_frames", "--data.partial", "true"],
    "twitter_pos": ["-c", "twitter_pos"],
    "mnist": ["-c", "mnist_classifier"],
    "wikitext": ["-c", "gpt_plain"],
}


@pytest.mark.parametrize("name", FILES)
def test_what_never_ends_in_place_of_data_is_named(cli, tmp_path, name):
    folder = tmp_path / "copy"
    write_copy(name, folder)
    for file, kind in itertools.product(FILES[name], KINDS):
        kept = (folder / file).rename(tmp_path / "kept")
        make_irregular(folder / file, kind)
        with within():
            rejection = cli("fit", *CONFIGS[name], "--data.dataset", folder).rejection
        assert file in rejection
        assert "not a regular file" in rejection
        kept.rename(folder / file)


@every_kind
def test_what_never_ends_in_place_of_the_cache_is_replaced(tmp_path, kind):
    made = partial(made_once, "x", "content", str(tmp_path), lambda: {"a": torch.arange(3)})
    made()
    (file,) = tmp_path.glob("x-*.safetensors")
    make_irregular(file, kind)
    with within():
        assert made()["a"].tolist() == [0, 1, 2]
    assert file.is_file()
