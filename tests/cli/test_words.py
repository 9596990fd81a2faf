"""The words of a command line and of config files, as LightningCLI's parser receives them."""

from typing import Any

import pytest
import yaml
from jsonargparse import ArgumentParser

from actlab.cli.arguments import Words, options_of
from actlab.errors import ActlabError


def said(*words):
    return Words(options_of([str(word) for word in words]), "fit")


def test_words_reach_the_parser_as_they_stand():
    words = ["--seed_everything", "-1", "--trainer.devices=-1", "--model", "a.B", "--model.rates={4: 0.1}"]
    words += ["--data", "actlab.datamodules.MNISTDataModule", "--data.revision", "1.10"]
    found = said(*words, "--trainer.logger=false", "--trainer.profiler=null")
    assert found.words == [
        *("--seed_everything=-1", "--trainer.devices=-1", "--model=a.B", "--model.rates={4: 0.1}"),
        *("--data=actlab.datamodules.MNISTDataModule", "--data.revision=1.10"),
        *("--trainer.logger=false", "--trainer.profiler=null"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "a.Model", "--model.network.hidden", "[8]", "--model.network.init", "he"],
        ["--model=a.Model", "--model.init_args.network.hidden=[8]", "--model.init_args.network.init=he"],
        ["--model.class_path=a.Model", "--model.network={hidden: [8]}", "--model.network.init=he"],
        ["--model={class_path: a.Model, init_args: {network: {hidden: [8], init: he}}}"],
        ["--model={class_path: a.Model, init_args: {network: {hidden: [8]}}}", "--model.network.init=he"],
    ],
)
def test_what_is_given_is_known_in_each_spelling(words):
    network = {"hidden": [8], "init": "he"}
    assert said(*words).given == {"model": {"class_path": "a.Model", "init_args": {"network": network}}}


def test_files_become_words_between_the_options(tmp_path):
    (tmp_path / "one.yaml").write_text("trainer: {max_epochs: 3, devices: 1}\nmodel: {class_path: a.Model}\n")
    (tmp_path / "two.yaml").write_text("trainer.max_epochs: 5\ntrainer.precision: '32'\n")
    found = said("-c", tmp_path / "one.yaml", f"--config={tmp_path / 'two.yaml'}", "--model.depth", "2")
    model = "{class_path: a.Model}"
    assert found.words == [
        *("--trainer.max_epochs=3", "--trainer.devices=1", f"--model={model}"),
        *("--trainer.max_epochs=5", "--trainer.precision=32", "--model.depth=2"),
    ]
    assert found.given["trainer"] == {"max_epochs": 5, "devices": 1, "precision": "32"}
    assert found.given["model"] == {"class_path": "a.Model", "init_args": {"depth": 2}}


@pytest.mark.parametrize(
    "value", [{4: 0.1, "a: b": [None, True, 1e-9, "null"]}, [float("inf"), -float("inf")], "text"]
)
def test_a_value_of_a_file_reaches_the_parser_with_its_types(value, tmp_path):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--model", type=Any)
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"model": value}))
    assert parser.parse_args(said("-c", tmp_path / "one.yaml").words).model == value


def test_options_that_only_print_are_no_words():
    words = ["--model.help", "MLP", "-h", "--print_config", "--trainer.devices", "-1"]
    options = options_of(words)
    assert [option.word for option in options] == ["--model.help=MLP", "-h", words[3], "--trainer.devices=-1"]
    assert [option.asks_help for option in options] == [True, True, False, False]
    assert [option.asks for option in options] == [True, True, True, False]
    assert Words(options, "fit").words == ["--trainer.devices=-1"]


def test_a_config_is_named_without_its_path():
    (option,) = options_of(["-c", "mnist_classifier"])
    assert option.name == "--config"
    assert option.value.endswith("configs/mnist_classifier.yaml")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["word"], "'word'"),
        (["--data", "a.Data", "word"], "'word'"),
        (["--data"], "--data needs a value"),
        (["--data", "--model", "a.Model"], "--data needs a value"),
        (["-x", "1"], "'-x'"),
        (["--data.sample", "true"], "--data CLASS"),
        (["--verbose", "true"], "'--verbose'"),  # of `validate`
        (["-c", "nowhere"], "'nowhere'"),
        (["--model", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_malformed_words_are_rejected(words, part):
    with pytest.raises(ActlabError) as error:
        said(*words)
    assert part in str(error.value)
