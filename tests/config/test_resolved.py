"""A config that is parsed once gives what it gives when it is parsed anew."""

import copy
import json
import sys
from typing import Any

import pytest
import yaml

from actlab import experiments
from actlab.config import resolved
from actlab.config.plain_values import plain
from actlab.config.record import record
from actlab.config.sections import linked_shapes
from actlab.storage.resources import config_file, names_in, resource


def read():
    """The configs that ship with actlab, by their paths."""
    paths = [config_file(name) for name in names_in("configs")]
    return {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths}


def config_of(path, seed, **model):
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "sample" in config["data"]["init_args"]:
        config["data"]["init_args"]["sample"] = True
    config["model"]["init_args"] |= model
    return {**config, "seed_everything": seed, "trainer": {"max_epochs": 1, "logger": False}}


def told(config):
    """The record of a resolved config, without the shapes that come from data."""
    copied = copy.deepcopy(config)
    return json.dumps(record(plain(resolved.resolved(copied, {}, linked_shapes(copied))), {}))


@pytest.fixture(autouse=True)
def forgotten():
    resolved._stored.cache_clear()


def number_kept():
    return resolved._stored.cache_info().currsize


def test_runs_that_differ_in_seed_are_what_they_are_alone():
    """One config of each task and kind of data."""
    classes = {
        (c["model"]["class_path"], c["data"]["class_path"]): path for path, c in read().items()
    }
    assert len(classes) > 8
    for path in classes.values():
        resolved._stored.cache_clear()
        told(config_of(path, 0))
        kept, found = number_kept(), told(config_of(path, 3))
        assert number_kept() == kept == 3, path
        resolved._stored.cache_clear()
        assert found == told(config_of(path, 3)), path


def test_a_section_that_differs_is_parsed_separately():
    path = resource("configs/mnist_classifier.yaml")
    for activation in ("relu", "elu", {"name": "elu", "alpha": 0.5}):
        found = json.loads(told(config_of(path, 0, activation=activation)))
        assert found["model"]["init_args"]["activation"] == activation
    assert number_kept() == 5  # three models, and the data and Trainer of all


def test_a_section_is_parsed_again_after_its_class_was_replaced(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path, text = resource("configs/mnist_classifier.yaml"), "from actlab.networks import MLP\n\n\n"
    for width in (8, 16):
        (tmp_path / "nets.py").write_text(
            f"{text}class Net(MLP):\n"
            f"    def __init__(self, act, num_classes, input_shape, width={width}):\n"
            "        super().__init__(act, num_classes, input_shape, hidden=(width,))\n"
        )
        sys.modules.pop("nets", None)
        config = config_of(path, 0, network={"class_path": "nets.Net"})
        assert (
            json.loads(told(config))["model"]["init_args"]["network"]["init_args"]["width"] == width
        )


def test_each_config_has_its_own_links_and_defaults():
    path = resource("configs/mnist_classifier.yaml")
    given = {"num_classes": 10, "input_shape": [1, 28, 28]}
    for model in ({}, given, {}):  # shapes are linked to the data where the config leaves them out
        task: Any = experiments.build(config_of(path, 1, **model)).task
        assert (task.config["model"]["init_args"]["num_classes"], task.seed) == (10, 1)
    for batches in (3, 4):
        assert experiments.build(config_of(path, 1), max_steps=batches).trainer.max_steps == batches
    assert experiments.build(config_of(path, 1)).trainer.max_steps == -1
