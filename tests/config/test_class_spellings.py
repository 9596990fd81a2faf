"""Classes of configs and studies, named like activations: ``module:Class``, ``./file.py:Class``."""

import pytest
import yaml

from actlab.studies import reading

NET = """\
from torch import nn


class Net(nn.Sequential):
    def __init__(self, act, num_classes, input_shape):
        super().__init__(nn.Flatten(), act(), nn.LazyLinear(num_classes))
"""
STUDY = """\
title: Networks
base: mnist_classifier
set:
  data: {{class_path: "{data}", init_args: {{sample: true}}}}
grid:
  model.activation: ["torch.nn:ELU"]
  model.network.class_path: ["{net}", actlab.networks.MLP]
compare: model.network.class_path
reference: "{net}"
probes: [{{name: noise, class_path: "{probe}"}}]
"""
DATA, PROBE = "actlab.datamodules.MNISTDataModule", "actlab.probes.InputNoise"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/nets.py").write_text(NET)
    return tmp_path


def colon(path):
    return ":".join(path.rsplit(".", 1))


@pytest.mark.parametrize("net", ["own.nets:Net", "./own/nets.py:Net", "{folder}/own/nets.py:Net"])
def test_runs_of_a_study_are_the_same_for_each_spelling(folder, net):
    def planned(**names: str):
        (folder / "s.yaml").write_text(STUDY.format(**names))
        return reading.load("s.yaml")

    dotted = planned(net="own.nets.Net", data=DATA, probe=PROBE)
    other = planned(net=net.format(folder=folder), data=colon(DATA), probe=colon(PROBE))
    assert [run.id for run in other.runs()] == [run.id for run in dotted.runs()]
    assert [run.config for run in other.runs()] == [run.config for run in dotted.runs()]
    assert {run.activation.path for run in other.runs()} == {"torch.nn:ELU"}
    assert (other.reference, other.probes) == ("own.nets.Net", dotted.probes)


@pytest.mark.parametrize("key", ["model.network", "model.network.class_path"])
def test_a_fit_records_import_paths(cli, folder, monkeypatch, key):
    monkeypatch.syspath_prepend(folder)
    words = ("fit", "-c", "mnist_classifier", "--print_config", "--data.sample", "true")
    shown = [
        cli(*words, f"--{key}", net)
        for net in ("own.nets.Net", "own.nets:Net", "./own/nets.py:Net")
    ]
    assert [one.out for one in shown] == [shown[0].out] * 3
    assert (
        yaml.safe_load(shown[0].out)["model"]["init_args"]["network"]["class_path"]
        == "own.nets.Net"
    )


def test_the_own_class_in_another_spelling_keeps_its_arguments(cli, folder):
    words = ("fit", "-c", "mnist_classifier", "--print_config", "--model.network.hidden", "[8]")
    shown = cli(*words, "--model.network.class_path", "actlab.networks:MLP")
    assert yaml.safe_load(shown.out)["model"]["init_args"]["network"]["init_args"]["hidden"] == [8]


@pytest.mark.parametrize("file", ["../nets.py", "./my-nets.py"])
def test_a_file_that_cannot_be_imported_is_one_line(cli, folder, file):
    outcome = cli("fit", "-c", "mnist_classifier", "--model.network.class_path", f"{file}:Net")
    assert f"named with letters, digits and _, got '{file}:Net'" in outcome.rejection


def test_a_class_that_is_set_alone_keeps_no_arguments_of_another_one(cli):
    outcome = cli(
        "study", "plan", "demo", "--set", "model.network.class_path=actlab.networks.ResNet"
    )
    fault = "Allowed: channels_last, depth, width. See the arguments of actlab.networks.ResNet."
    assert fault in outcome.rejection


def test_a_key_that_is_no_text_is_named(cli):
    outcome = cli(
        "study",
        "plan",
        "demo",
        "--set",
        "model.network={class_path: actlab.networks.MLP, init_args: {1: 2}}",
    )
    assert "unknown config key 'model.network.1'. Allowed: " in outcome.rejection


def test_a_module_that_requires_arguments_is_one_line(cli, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    lines = "import sys", "assert sys.argv == ['the code of the config']", "sys.exit(3)"
    (folder / "own/exiting.py").write_text("\n".join(lines))
    outcome = cli("fit", "-c", "mnist_classifier", "--model.network.class_path", "own.exiting.Net")
    fault = "the code of the config ends the process with code 3 when it is imported"
    assert fault in outcome.rejection
