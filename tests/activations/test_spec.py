"""An activation as a value: parsed once, carried to the network, written as text."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from actlab import experiments
from actlab.activations import Spec, factory, plugins
from actlab.api import spec_of
from actlab.config.paths import get_dotted
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.storage.contents import texts
from actlab.storage.mappings import parse, written
from actlab.studies import reading
from actlab.tasks import ClassificationTask

SPELLINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "elu": ("", "elu", {}),
    "torch.nn:ELU": ("torch.nn", "ELU", {}),
    "torch:nn.functional.elu": ("torch", "nn.functional.elu", {}),
    "./mine.py:Mine": ("./mine.py", "Mine", {}),
    "./mine.py": ("", "./mine.py", {}),
    "mine.py": ("", "mine.py", {}),
}
MODULE = """\
import pytorch_lightning as pl


class Own(pl.LightningModule):
    def __init__(self, activation: str | dict = "relu"):
        super().__init__()
        self.activation = activation
"""
PARAMETERS = {"name": "torch.nn:ELU", "alpha": 0.5}


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_text_is_parsed_and_written_again(text):
    spec = Spec.of(text)
    assert (spec.source, spec.name, spec.params) == SPELLINGS[text]
    assert (spec.plain, Spec.of(spec)) == (text, spec)
    assert Spec.of({"name": text}) == spec


@pytest.mark.parametrize(
    "spelling",
    [
        PARAMETERS,
        {"name": "torch.nn.ELU", "alpha": 0.5},
        {"class_path": "torch.nn.ELU", "init_args": {"alpha": 0.5}},
    ],
    ids=["colon", "dots", "class path"],
)
def test_spellings_with_parameters_are_one_value(spelling):
    spec = Spec.of(spelling)
    assert spec == Spec.of(PARAMETERS)
    assert parse(written({"activation": spec})) == {"activation": PARAMETERS}
    assert texts([spec]) == ["torch.nn:ELU"]
    for twin in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert twin == spec


@pytest.mark.parametrize(
    "value", [3, None, {"alpha": 1}, {"name": 3}, {"name": "elu", 1: 2}, ["elu"]]
)
def test_other_values_are_no_activation(value):
    with pytest.raises(ActlabError, match="activation: expected a name or a mapping with a name"):
        Spec.of(value)


def test_a_file_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Spec.of("./mine.py:Mine").located() == Spec(str(Path.cwd() / "mine.py"), "Mine")
    assert Spec.of("torch.nn:ELU").located() == Spec("torch.nn", "ELU")


def test_a_factory_imports_its_class_once(monkeypatch):
    found = []
    resolve = plugins.resolve
    monkeypatch.setattr(plugins, "resolve", lambda spec: found.append(spec) or resolve(spec))
    act = factory("torch.nn:ELU")
    made = [act(4) for _ in range(5)]
    assert len({id(activation) for activation in made}) == 5
    assert found == [Spec("torch.nn", "ELU")]


def test_a_run_carries_the_value_and_stores_text():
    (run, *_) = reading.load("demo", smoke=True, overrides=["model.activation=torch.nn.ELU"]).runs()
    (same, *_) = reading.load(
        "demo", smoke=True, overrides=["model.activation=torch.nn:ELU"]
    ).runs()
    spec = Spec("torch.nn", "ELU")
    assert (get_dotted(run.config, "model.activation"), run.activation) == (spec, spec)
    assert run.identity == same.identity
    task = experiments.build(run.config).task
    assert {type(unit) for unit in task.activations} == {nn.ELU}
    assert task.hparams["activation"] == "torch.nn:ELU"
    assert task.config["model"]["init_args"]["activation"] == "torch.nn:ELU"


def test_a_task_in_a_script_takes_the_value_and_stores_text():
    arguments: Any = {
        "activation": Spec.of(PARAMETERS),
        "network": MLP,
        "num_classes": 2,
        "input_shape": [3],
    }
    task = ClassificationTask(**arguments)
    assert {unit.alpha for unit in task.activations} == {0.5}
    assert task.hparams["activation"] == task.arguments.plain["activation"] == PARAMETERS


def test_parameters_from_python_become_plain_values():
    found: Any = spec_of(
        {"name": "adaptive_dropout", "alpha": np.float64(0.5), "activation": nn.ELU}
    )
    assert found == {
        "name": "adaptive_dropout",
        "alpha": 0.5,
        "activation": "torch.nn.modules.activation:ELU",
    }
    assert type(found["alpha"]) is float


def test_a_third_party_module_gets_text(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "module_with_name.py").write_text(MODULE)
    model = {"class_path": "module_with_name.Own", "init_args": {"activation": "torch.nn.ELU"}}
    data = {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": {"sample": True}}
    assert experiments.build({"model": model, "data": data}).task.activation == "torch.nn:ELU"
