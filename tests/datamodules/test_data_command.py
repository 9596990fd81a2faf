"""``actlab data``: what there is, how to get it, whether a copy is whole."""

from pathlib import Path

import pytest
from hub_folders import write_hub_folder

from actlab.datamodules import command, twitter_pos
from actlab.datamodules.command import DATA
from actlab.datamodules.speech.sample import write_sample
from actlab.resources import resource


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
        ("mnist", "train 5,000, test 1,000"),
        ("cifar10", "train 200, test 50"),
        ("cifar100", "train 200, test 100"),
        ("imagenet", "train 40, val 20, classes 10"),
    ],
)
def test_a_copy_that_is_not_whole_is_told(cli, name, counts):
    outcome = cli("data", "check", name, resource("data/samples") / name)
    assert outcome.code == 2
    assert outcome.out.splitlines()[0] == counts
    assert "expected are" in outcome.out
    assert "is not whole" in outcome.err


def test_a_whole_copy_is_as_expected(cli, tmp_path, monkeypatch):
    folder = write_hub_folder(tmp_path)
    digits = DATA["mnist"]._replace(check=command._images({"train": 30, "test": 12}, 1))
    monkeypatch.setitem(DATA, "mnist", digits)
    outcome = cli("data", "check", "mnist", folder)
    assert (outcome.code, outcome.out) == (0, "train 30, test 12\nmnist: as expected\n")


def test_what_timit_lacks_is_told(cli, tmp_path):
    write_sample(tmp_path)
    sentence = next(tmp_path.rglob("*.phn"))
    sentence.unlink()
    outcome = cli("data", "check", "timit", tmp_path)
    assert outcome.code == 2
    assert any(sentence.stem in line for line in outcome.out.splitlines())


def test_fetch_puts_files_where_it_says(cli, monkeypatch):
    asked = []
    fetched = DATA["twitter_pos"]._replace(fetch=lambda folder: asked.append(folder) or [Path(folder, "a")])
    monkeypatch.setitem(DATA, "twitter_pos", fetched)
    assert cli("data", "fetch", "twitter_pos").out == f"{twitter_pos.FOLDER}/a\n"
    assert cli("data", "fetch", "twitter_pos", "--folder", "there").out == "there/a\n"
    assert asked == [twitter_pos.FOLDER, "there"]
    assert "not fetched by this command: it comes from the hub" in cli("data", "fetch", "mnist").err
    assert "unknown data set 'mnst'; did you mean 'mnist'" in cli("data", "fetch", "mnst").err
