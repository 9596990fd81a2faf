"""``actlab data``: what there is, how to get it; a fit of one batch: whether a copy is whole."""

from pathlib import Path

import pytest

from actlab.cli.data import DATA
from actlab.datamodules import TextDataModule, twitter_pos
from hub_folders import write_text_hub_folder


def test_every_data_set_is_listed_with_how_to_get_it(cli):
    out = cli("data", "list").succeeded()
    for name, data in DATA.items():
        assert f"{name}: {data.content}, from {data.source}" in out
        assert data.access in out


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        (
            "mnist_classifier",
            ["train: 5,000 (published: 60,000)", "test: 1,000 (published: 10,000)"],
        ),
        ("cifar100_elu11", ["train: 200 (published: 50,000)", "test: 100 (published: 10,000)"]),
        pytest.param(
            "imagenet_elu15",
            ["train: 40 (published: 1,281,167)", "validation: 20 (published: 50,000)"],
            marks=pytest.mark.slow,  # pictures of 224 pixels
        ),
        (
            "timit_frames",
            [
                "train: 128 (published: 3,696)",
                "val: 8 (published: 1,152)",
                "test: 8 (published: 192)",
            ],
        ),
        (
            "twitter_pos",
            [
                "oct27.train: 120 (published: 1,000)",
                "oct27.dev: 40 (published: 327)",
                "oct27.test: 40 (published: 500)",
            ],
        ),
        ("gpt_plain", ["train: 189", "validation: 11", "test: 12"]),
    ],
)
def test_a_fit_of_one_batch_prints_counts_beside_the_published_ones(cli, config, lines):
    words = ["fit", "-c", config, "--data.sample", "true", "--data.batch_size", "2"]
    words += ["--data.workers", "0"] if config == "imagenet_elu15" else []
    quiet = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
    said = cli(*words, "--trainer.fast_dev_run", "true", *quiet).succeeded()
    place, *counted = said.splitlines()[-len(lines) - 1 :]
    assert place.startswith("fast_dev_run: ")
    assert counted == lines


def test_rows_of_text_are_counted(tmp_path):
    data = TextDataModule(str(write_text_hub_folder(tmp_path)))
    assert data.counts == {"train": 40, "validation": 40, "test": 40}
    assert data.published == {}
    assert TextDataModule(name="wikitext-2-raw-v1").published["test"] == 4358


def test_fetch_puts_files_where_it_says(cli, monkeypatch):
    asked = []
    monkeypatch.setattr(
        twitter_pos, "fetch", lambda folder: asked.append(folder) or [Path(folder, "a")]
    )
    assert cli("data", "fetch", "twitter_pos").out == f"{twitter_pos.FOLDER}/a\n"
    assert cli("data", "fetch", "twitter_pos", "--folder", "there").out == "there/a\n"
    assert asked == [twitter_pos.FOLDER, "there"]
    assert "cannot fetch mnist, which is downloaded from" in cli("data", "fetch", "mnist").err
    assert "unknown dataset 'mnst'; did you mean 'mnist'" in cli("data", "fetch", "mnst").err
