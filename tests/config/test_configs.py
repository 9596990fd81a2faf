"""The keys of a config, against classes of actlab's, of Lightning's and of a user's own."""

import copy
import inspect

import pytest
import yaml

from actlab import networks
from actlab.config import messages
from actlab.config.class_paths import NETWORKS, with_import_paths
from actlab.config.paths import get_dotted, set_dotted
from actlab.config.resolved import resolved
from actlab.config.sections import check, gives, linked_shapes, top_level
from actlab.errors import ActlabError
from actlab.storage.resources import config_file, names_in, resource

CONFIGS = [config_file(name) for name in names_in("configs")]


def typed(config):
    check(config)
    with messages.one_line_errors(config):
        return resolved(config, {}, linked_shapes(config))


@pytest.fixture
def config():
    return yaml.safe_load((resource("configs") / "mnist_classifier.yaml").read_text())


@pytest.fixture
def theirs(config, program, tmp_path, monkeypatch):
    program("odd_signatures")
    monkeypatch.syspath_prepend(tmp_path)
    return {**config, "model": {"class_path": "odd_signatures.Model", "init_args": {"required": 1}}}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_passes_unchanged(path):
    config = yaml.safe_load(path.read_text())
    before = copy.deepcopy(config)
    typed(config)
    assert config == before


def test_no_config_selects_a_checkpoint_by_images_that_it_trains_on():
    configs = {path.stem: yaml.safe_load(path.read_text()) for path in CONFIGS}
    on_all = {
        name: c for name, c in configs.items() if (c["data"]["init_args"]).get("train_on_all")
    }
    assert len(on_all) == 8
    arguments = [
        cb.get("init_args", {}) for c in on_all.values() for cb in c["trainer"]["callbacks"]
    ]
    assert not any("monitor" in given for given in arguments)


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("ckpt_path", "last", ["'ckpt_path'"]),
        (
            "model.network.hiden",
            [1],
            ["network.hiden'", "'model.network.hidden'", "actlab.networks.MLP"],
        ),
        ("model.network.act", "gelu", ["model.network.act"]),
        ("model.optimizer.params", [], ["model.optimizer.params"]),
        ("model.network", "actlab.networks.MLPP", ["'MLPP'"]),
        ("model.seed", 1, ["seed_everything"]),
        ("data.seed", 1, ["seed_everything"]),
        ("model.sed", 1, ["'model.sed'"]),
        ("trainer.logger", {"class_path": "Callback"}, ["trainer.logger", "Logger"]),
        ("trainer.plugins", [{"class_path": "torch.nn.ReLU"}], ["trainer.plugins", "CheckpointIO"]),
        ("data", None, ["--data CLASS"]),
        ("optimizer", {"class_path": "torch.optim.SGD"}, ["model.optimizer"]),
        ("data.batch_size", "many", ["data.batch_size", "'many'", "expected a whole number"]),
        ("model.network.hidden", ["a"], ["model.network.hidden", "['a']", "Sequence[int]"]),
        (
            "model.scheduler_interval",
            "year",
            ["model.scheduler_interval", "'year'", "'epoch' or 'step'"],
        ),
        (
            "trainer.max_epochs",
            1.5,
            ["trainer.max_epochs", "1.5", "expected a whole number or null"],
        ),
    ],
)
def test_malformed_keys_and_values_are_rejected(config, key, value, parts):
    set_dotted(config, key, value)
    with pytest.raises(ActlabError) as error:
        typed(config)
    assert all(part in str(error.value) for part in parts)
    assert "'seed'" not in str(error.value)  # suggested for 'sed', it would be rejected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.activation", {"name": "elu", "alpha": 0.5}),
        ("model.activation", {"class_path": "no.class"}),  # for the activations to refuse
        ("model.network", "MLP"),
        ("model.scheduler", None),
        (
            "model.schedules",
            {"lr": {"class_path": "actlab.optim.Linear", "init_args": {"start": 1, "end": 2}}},
        ),
        ("trainer.strategy", "ddp"),
        ("trainer.callbacks", None),
        ("trainer.callbacks", {"class_path": "ModelCheckpoint"}),
        ("optimizer", None),
    ],
)
def test_values_that_are_none_of_its_business(config, key, value):
    set_dotted(config, key, value)
    given = with_import_paths(config)
    before = copy.deepcopy(given)
    typed(given)
    assert given == before


def test_ambiguous_bare_names_are_those_of_our_networks():
    ours = {name for name in networks.__all__ if inspect.isclass(getattr(networks, name))}
    assert {*NETWORKS} == ours - {"Dropout"}  # a layer
    assert with_import_paths({"model": {"network": "MLP"}}) == {
        "model": {"network": "actlab.networks.MLP"}
    }
    given = {"class_path": "MLP", "init_args": {"hidden": [4]}}
    found = with_import_paths({"model": {"init_args": {"network": given}}})
    assert found["model"]["init_args"]["network"] == {**given, "class_path": "actlab.networks.MLP"}


def test_a_command_brings_its_arguments(config):
    check({**config, "ckpt_path": "last", "weights_only": None}, "fit")
    check({**config, "verbose": False}, "validate")
    assert "datamodule" not in top_level("fit")


def test_a_class_of_a_users_own(theirs):
    typed(theirs)
    set_dotted(theirs, "model.options", {"class_path": "free"})
    set_dotted(
        theirs, "model.anything", {"class_path": "torch.nn.Linear", "init_args": {"in_features": 1}}
    )
    typed(theirs)


def test_an_argument_without_type_and_default_is_needed(config, theirs):
    """The parser would put None."""
    set_dotted(config, "model.network", {"class_path": "odd_signatures.Net"})
    with pytest.raises(
        ActlabError, match=r"odd_signatures\.Net requires 'width'. Set model\.network\.width"
    ):
        typed(config)
    set_dotted(config, "model.network.width", 3)
    typed(config)


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        (
            "model",
            {"class_path": "odd_signatures.Model"},
            ["'required'", "model.required", "tures.Model"],
        ),
        ("model.requird", 1, ["'model.requird'", "'model.required'"]),
        ("model", "odd_signatures.model", ["model: expected a class, got"]),
    ],
)
def test_mistakes_about_a_class_of_a_users_own(theirs, key, value, parts):
    set_dotted(theirs, key, value)
    with pytest.raises(ActlabError) as error:
        typed(theirs)
    assert all(part in str(error.value) for part in parts)


def test_given_arguments_of_the_model(config):
    assert not gives(config, "num_classes")
    set_dotted(config, "model.num_classes", 3)
    assert gives(config, "num_classes")
    assert not gives({"model": "a.B"}, "num_classes")


def test_only_writing_a_key_creates_the_arguments_of_a_class():
    config = {"model": {"class_path": "a.B"}}
    assert get_dotted(config, "model.lr", 0.1) == 0.1
    assert config == {"model": {"class_path": "a.B"}}
    set_dotted(config, "model.lr", 1)
    assert config == {"model": {"class_path": "a.B", "init_args": {"lr": 1}}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.batch_size", "many" * 1_000),
        ("model.network.hidden", ["a"] * 1_000),
        ("model.network.init_args", "hidden" * 1_000),
        ("trainer.max_epochs", [1.5] * 1_000),
        ("seed_everything", [1] * 1_000),
    ],
)
def test_a_message_shortens_a_long_value(config, key, value):
    set_dotted(config, key, value)
    with pytest.raises(ActlabError, match=" … ") as error:
        typed(config)
    assert len(str(error.value)) < 300
