"""The words of a command line as one nested config."""

import pytest

from actlab.cli.arguments import joined, nested, options_of, put
from actlab.errors import ActlabError
from actlab.storage.mappings import read_mapping


def config_of(*words):
    return nested(options_of([str(word) for word in words]), "fit")


def test_the_last_value_counts():
    config = config_of("--trainer.max_epochs=3", "--seed_everything", "-1", "--trainer.max_epochs", "4")
    assert config == {"trainer": {"max_epochs": 4}, "seed_everything": -1}


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
def test_ways_to_write_a_class_and_its_arguments(words):
    network = {"hidden": [8], "init": "he"}
    assert config_of(*words) == {"model": {"class_path": "a.Model", "init_args": {"network": network}}}


def test_a_mapping_that_is_no_class_is_set_as_a_whole():
    words = ["--model=a.Model", "--model.rates={4: 0.1}", "--model.rates={2: 0.5}"]
    assert config_of(*words)["model"]["init_args"] == {"rates": {2: 0.5}}
    words = ["--trainer={max_time: {hours: 1}, devices: 1}", "--trainer={max_time: {minutes: 5}}"]
    assert config_of(*words) == {"trainer": {"max_time": {"minutes": 5}, "devices": 1}}


def test_files_and_options_are_set_over_each_other(tmp_path):
    (tmp_path / "one.yaml").write_text("trainer: {max_epochs: 3, devices: 1}\nmodel: {class_path: a.Model}\n")
    (tmp_path / "two.yaml").write_text("trainer.max_epochs: 5\nmodel: {init_args: {width: 3}}\n")
    config = config_of("-c", tmp_path / "one.yaml", f"--config={tmp_path / 'two.yaml'}", "--model.depth", "2")
    assert config["trainer"] == {"max_epochs": 5, "devices": 1}
    assert config["model"] == {"class_path": "a.Model", "init_args": {"width": 3, "depth": 2}}


def test_another_class_begins_with_its_own_defaults():
    words = ["--model=a.Model", "--model.width=3", "--model.net.depth=2"]
    assert config_of(*words, "--model=a.Model") == config_of(*words)
    config = config_of(*words, "--model=b.Model")
    assert config["model"] == "b.Model"
    put(config, "model.net.size", 4)
    assert config["model"] == {"class_path": "b.Model", "init_args": {"net": {"size": 4}}}
    words = [*words, "--model={class_path: c.Model, init_args: {depth: 5}}"]
    assert config_of(*words)["model"] == {"class_path": "c.Model", "init_args": {"depth": 5}}


def test_a_plus_appends_and_a_key_below_a_list_means_its_last_item():
    words = ["--trainer.callbacks=[{class_path: A}]", "--trainer.callbacks+=B", "--trainer.callbacks.monitor=x"]
    assert config_of(*words)["trainer"]["callbacks"] == [
        {"class_path": "A"},
        {"class_path": "B", "init_args": {"monitor": "x"}},
    ]


def test_values_are_nested_where_yaml_nests_them():
    words = ["--trainer.logger=false", "--trainer.max_time=00:01:00", "--trainer.profiler=null", "--data=[a"]
    trainer = {"logger": False, "max_time": "00:01:00", "profiler": None}
    assert config_of(*words) == {"trainer": trainer, "data": "[a"}


def test_what_lightning_answers_itself_passes_untouched():
    words = [
        "--model.help",
        "MLP",
        "-h",
        "--print_config",
        "--trainer.devices",
        "-1",
    ]
    options = options_of(words)
    assert joined(options) == ["--model.help=MLP", "-h", words[3], "--trainer.devices=-1"]
    assert [option.asks_help for option in options] == [True, True, False, False]
    assert [option.asks for option in options] == [True, True, True, False]
    assert nested(options, "fit") == {"trainer": {"devices": -1}}


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
        (["--print_config=skip_null"], "takes no value"),
        (["--model", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_malformed_words_are_rejected(words, part):
    with pytest.raises(ActlabError) as error:
        config_of(*words)
    assert part in str(error.value)


def test_a_key_that_yaml_merges_in_is_not_there_twice(tmp_path):
    text = "a: &a {x: 1, y: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, y: 3}\n"
    (tmp_path / "config.yaml").write_text(text)
    assert read_mapping(tmp_path / "config.yaml")["c"] == {"x": 2, "y": 3}


@pytest.mark.parametrize(
    "text", ["x: 1\ny: 2\nx: 3\n", "a: {x: 1,\n b: 2,\n x: 3}\n", "- [1]\n- {x: 1,\n x: 3}\n"]
)
def test_a_key_that_stands_twice_is_refused(text, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ActlabError, match="line 3: duplicate key 'x'"):
        read_mapping(tmp_path / "config.yaml")
