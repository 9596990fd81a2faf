"""A dataset beside ``data.sample: true`` is rejected; the sample replaces a default dataset."""

import inspect

import pytest
import yaml

from actlab import datamodules
from actlab.errors import ActlabError
from actlab.storage.resources import resource
from actlab.studies.reading import load

BRIEF = [
    "--trainer.fast_dev_run",
    "1",
    "--trainer.logger",
    "false",
    "--trainer.enable_progress_bar",
    "false",
]
SAMPLED = ["--data.sample", "true"]


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write the config of MNIST with other values of its datamodule; return the path."""
    monkeypatch.chdir(tmp_path)

    def write(name="mine.yaml", **values):
        given = yaml.safe_load((resource("configs") / "mnist_classifier.yaml").read_text())
        given["data"]["init_args"].update(values)
        (tmp_path / name).write_text(yaml.safe_dump(given))
        return name

    return write


def test_the_sample_is_taken_over_the_dataset_of_a_config(cli, config):
    for name in (config(dataset="./nowhere"), "mnist_classifier"):
        assert cli("fit", "-c", name, *SAMPLED, *BRIEF).code == 0


@pytest.mark.parametrize(
    ("values", "words", "places"),
    [
        ({}, [*SAMPLED, "--data.dataset", "here"], ("the command line", "the command line")),
        ({}, ["--data.init_args.dataset=here", *SAMPLED], ("the command line", "the command line")),
        ({"sample": True, "dataset": "here"}, [], ("mine.yaml", "mine.yaml")),
        (
            {"sample": True, "dataset": None},
            ["--data.dataset", "here"],
            ("the command line", "mine.yaml"),
        ),
    ],
    ids=["command line", "other order", "file", "over a file"],
)
def test_a_dataset_that_the_sample_would_replace_is_rejected(cli, config, values, words, places):
    code, _, err = cli("fit", "-c", config(**values), *words, *BRIEF)
    assert (code, err.count("\n")) == (2, 1)
    dataset, sample = places
    assert "data.dataset 'here' (" in err
    assert f"{dataset}) has no effect, because data.sample is true (" in err
    assert f"{sample}). Remove one of them, or set data.sample to false" in err


def test_a_dataset_is_taken_over_a_sample_that_is_switched_off(cli, config):
    code, _, err = cli(
        "fit", "-c", config(sample=True, dataset=None), "--data.dataset", "./nowhere", *BRIEF
    )
    assert "has no effect" in err
    code, _, err = cli(
        "fit", "-c", "mine.yaml", "--data.dataset", "./nowhere", "--data.sample", "false", *BRIEF
    )
    assert code == 2
    assert (
        "data.dataset: expected a folder or a dataset of the Hugging Face Hub, got './nowhere'"
        in err
    )


def test_the_recorded_config_of_a_fit_on_the_sample_runs_again(cli, config, tmp_path):
    config()
    few = ["--trainer.limit_train_batches", "1"]
    assert (
        cli("fit", "-c", "mine.yaml", *SAMPLED, *BRIEF[2:], "--trainer.max_epochs", "1", *few).code
        == 0
    )
    (recorded,) = tmp_path.glob("runs/**/config.yaml")
    arguments = yaml.safe_load(recorded.read_text())["data"]["init_args"]
    assert (arguments["sample"], arguments["dataset"]) == (True, None)
    assert cli("fit", "-c", recorded, *BRIEF).code == 0


def test_both_arguments_are_rejected():
    kinds = [getattr(datamodules, name) for name in datamodules.__all__]
    with_sample = [kind for kind in kinds if "sample" in inspect.signature(kind).parameters]
    assert len(with_sample) > 5
    for kind in with_sample:
        assert kind.sample_replaces_dataset
        assert inspect.signature(kind).parameters["dataset"].default is None
        with pytest.raises(ActlabError, match=r"null with data\.sample true, got 'here'"):
            kind(dataset="here", sample=True)
        assert kind(sample=True).dataset != "here"


STUDY = "base: {base}\nset: {{{set}}}\ngrid: {{model.activation: [relu]}}\nseeds: 1\n"


@pytest.mark.parametrize(
    ("settings", "overrides", "rejected"),
    [
        ("data.sample: true, data.dataset: here", [], True),
        ("data.sample: true", ["data.dataset=here"], True),
        ("", ["data.dataset=here", "data.sample=true"], True),
        ("data.dataset: here", ["data.sample=true"], False),
        ("data.sample: true", ["data.dataset=here", "data.sample=false"], False),
    ],
    ids=["file", "over the file", "command line", "sample over a dataset", "sample switched off"],
)
def test_studies_follow_the_same_rule(cli, config, tmp_path, settings, overrides, rejected):
    (tmp_path / "study.yaml").write_text(STUDY.format(base="mnist_classifier", set=settings))
    words = [f"--set={text}" for text in overrides]
    if not rejected:
        assert load("study.yaml", overrides=overrides).runs()
        return
    code, _, err = cli("study", "plan", "study.yaml", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert "data.dataset 'here' (" in err
    assert "has no effect, because data.sample is true" in err
    assert cli("study", "plan", "study.yaml", *words, "--smoke").code == 0
