"""``actlab data``: what there is, how to get it, whether a copy is whole."""

import gzip
import hashlib
from functools import partial
from pathlib import Path

import pytest

from actlab.cli import data as command
from actlab.cli.data import DATA
from actlab.datamodules import twitter_pos
from actlab.datamodules.speech.sample import write_sample
from actlab.storage.resources import resource
from hub_folders import write_hub_folder, write_text_hub_folder


def test_every_data_set_is_listed_with_how_to_get_it(cli):
    outcome = cli("data", "list")
    assert outcome.code == 0
    for name, data in DATA.items():
        assert f"{name}: {data.what}, from {data.source}" in outcome.out
        assert data.get in outcome.out


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("twitter_pos", "oct27.train 120, oct27.dev 40, oct27.test 40"),
        ("cifar10", "train 200, test 50"),
        ("cifar100", "train 200, test 100"),
        ("imagenet", "train 40, val 20, classes 10"),
    ],
)
def test_an_incomplete_copy_is_named(cli, name, counts):
    outcome = cli("data", "check", name, resource("data/samples") / name)
    assert outcome.code == 2
    assert outcome.out.splitlines()[0] == counts
    assert ", expected " in outcome.out
    assert "is incomplete or damaged" in outcome.err


def test_a_whole_copy_is_as_expected_and_a_wrong_number_of_classes_is_named(cli, tmp_path, monkeypatch):
    folder = write_hub_folder(tmp_path)
    for classes, code, lines in ((10, 0, ["mnist: as expected"]), (100, 2, ["classes: 10, expected 100"])):
        check = partial(command._check_images, {"train": 30, "test": 12}, 1, classes, None)
        monkeypatch.setitem(DATA, "mnist", DATA["mnist"]._replace(check=check))
        outcome = cli("data", "check", "mnist", folder)
        assert (outcome.code, outcome.out.splitlines()) == (code, ["train 30, test 12", *lines])


def test_rows_of_text_are_counted(cli, tmp_path, monkeypatch):
    folder = write_text_hub_folder(tmp_path)
    monkeypatch.setattr(command, "WIKITEXT", dict.fromkeys(("train", "validation", "test"), 40))
    outcome = cli("data", "check", "wikitext", folder)
    assert (outcome.code, outcome.out) == (0, "train 40, validation 40, test 40\nwikitext: as expected\n")
    monkeypatch.setitem(command.WIKITEXT, "test", 41)
    assert cli("data", "check", "wikitext", folder).out.splitlines()[1:] == ["test: 40, expected 41"]


def test_files_that_differ_from_the_authors_are_named(cli, tmp_path, monkeypatch):
    sizes = {"oct27.train": 120, "oct27.dev": 40, "oct27.test": 40}
    monkeypatch.setattr(command, "TWEETS", sizes)
    sample = resource("data/samples") / "twitter_pos"
    for file in sample.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    digests = {
        name: hashlib.sha256(unpacked(twitter_pos.part_of(tmp_path, name))) for name in twitter_pos.FILES
    }
    files = {name: ("", digest.hexdigest()) for name, digest in digests.items()}
    monkeypatch.setattr(twitter_pos, "FILES", files)
    assert cli("data", "check", "twitter_pos", tmp_path).out.endswith("twitter_pos: as expected\n")
    clusters = twitter_pos.part_of(tmp_path, twitter_pos.CLUSTERS)
    clusters.write_bytes(gzip.compress(unpacked(clusters)[:300]))
    outcome = cli("data", "check", "twitter_pos", tmp_path)
    assert (outcome.code, outcome.out.splitlines()[1:]) == (
        2,
        [f"{clusters} differs from the authors' file"],
    )


def unpacked(path):
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def test_missing_files_of_timit_are_named(cli, tmp_path):
    write_sample(tmp_path)
    sentence = next(tmp_path.rglob("*.phn"))
    sentence.unlink()
    outcome = cli("data", "check", "timit", tmp_path)
    assert outcome.code == 2
    assert any(sentence.stem in line for line in outcome.out.splitlines())


def test_fetch_puts_files_where_it_says(cli, monkeypatch):
    asked = []
    monkeypatch.setattr(twitter_pos, "fetch", lambda folder: asked.append(folder) or [Path(folder, "a")])
    assert cli("data", "fetch", "twitter_pos").out == f"{twitter_pos.FOLDER}/a\n"
    assert cli("data", "fetch", "twitter_pos", "--folder", "there").out == "there/a\n"
    assert asked == [twitter_pos.FOLDER, "there"]
    assert "cannot fetch mnist: it is downloaded from the hub" in cli("data", "fetch", "mnist").err
    assert "unknown dataset 'mnst'; did you mean 'mnist'" in cli("data", "fetch", "mnst").err
