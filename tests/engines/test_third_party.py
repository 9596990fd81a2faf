"""Activations that exit, end loops, change torch or raise strange errors: each fails alone, by name."""

import json

import pytest
import torch

from late_units import COUNTING

UNITS = (
    COUNTING
    + """
import os
import sys

import torch


class Quits(Counting):
    def act(self):
        os._exit(0)


class Ends(Counting):
    def act(self):
        raise StopIteration


class Exits(nn.Module):
    def forward(self, x):
        sys.exit(0)


class Ending(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Ending.calls += 1
        if Ending.calls > 6:
            raise StopIteration
        return gradient


class EndsBackward(nn.Module):
    def forward(self, x):
        return Ending.apply(x).relu()


class Doubles(nn.Module):
    def forward(self, x):
        torch.set_default_dtype(torch.float64)
        return x.relu()


class DoublesFirst(nn.ReLU):
    def __init__(self):
        super().__init__()
        torch.set_default_dtype(torch.float64)


class Breaks(nn.Module):
    def forward(self, x):
        raise BrokenPipeError


class Strange(Exception):
    def __str__(self):
        raise KeyError("no text")


class Obscure(nn.Module):
    def forward(self, x):
        raise Strange
"""
)
STUDY = """\
base: mnist_classifier
set: {data.sample: true, trainer.max_epochs: 2, trainer.limit_train_batches: 4, model.network.hidden: [8]}
grid: {model.activation: [relu]}
seeds: 1
"""
REASONS = {  # unit → what its run says
    "Exits": "activation Exits cannot be tried: the process exited with code 0",
    "Doubles": "activation Doubles fails: an activation, network or task set torch's default dtype to",
    "DoublesFirst": "activation DoublesFirst fails: an activation, network or task set torch's default dtype",
    "Breaks": "activation Breaks fails: an activation, network or task raised BrokenPipeError",
    "Obscure": "activation Obscure fails: Strange, whose text raises KeyError",
    "Quits": "the process that trained it exited with code 0",
    "Ends": "an activation, network or task raised StopIteration",
    "EndsBackward": "of 4 training batches without a stop request",
}
FIT = [
    *("-c", "mnist_classifier", "--data.sample", "true", "--model.network.hidden", "[8]"),
    *("--trainer.limit_train_batches", "4", "--trainer.logger", "false", "--trainer.max_epochs", "2"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "units.py").write_text(UNITS)
    (tmp_path / "dies.py").write_text("import os\n\nos._exit(3)\n")
    (tmp_path / "tiny.yaml").write_text(STUDY)


def test_each_fails_by_name_and_the_others_are_trained(cli, tmp_path):
    units = [word for unit in REASONS for word in ("--activation", f"./units.py:{unit}")]
    outcome = cli("study", "run", "tiny.yaml", *units, "--activation", "./dies.py:Unit")
    assert outcome.code == 1, outcome.err
    assert "1 of 10 runs finished" in outcome.out
    reasons = {**REASONS, "Unit": "activation Unit cannot be tried: the process exited with code 3"}
    for unit, reason in reasons.items():
        (failed,) = tmp_path.glob(f"runs/tiny/{unit}-seed0-*/failed.json")
        assert reason in json.loads(failed.read_text())["error"]
        assert reason in outcome.out
    (result,) = tmp_path.glob("runs/tiny/relu-*/result.json")
    assert json.loads(result.read_text())["ended"] == "planned"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.activation", "./units.py:Ends"], "raised StopIteration"),
        (
            ["--model.activation", "./units.py:EndsBackward"],
            "of 4 training batches without a stop request",
        ),
        (["--model.activation", "./units.py:Exits"], "asked to exit with code 0 while `actlab fit` ran"),
        (["--model.activation", "./units.py:Breaks"], "raised BrokenPipeError"),
        (["--model.activation", "./units.py:DoublesFirst"], "set torch's default dtype"),
        (["--model.optimizer.lr", ".inf"], "model.optimizer.lr is inf: give a finite number"),
    ],
)
def test_a_fit_says_so_in_one_line(cli, words, message):
    outcome = cli("fit", *FIT, *words)
    assert outcome.code == 2
    assert message in outcome.err.strip().splitlines()[-1]
    assert "Traceback" not in outcome.err
    assert torch.get_default_dtype() == torch.float32


def test_help_still_exits_by_itself(cli):
    assert cli("fit", "--help").code == 0
    assert cli("study", "run", "--help").code == 0


PROBE = '''\
import os

from actlab.probes import Measured


class Strict:
    """Lets the activation know that it is in a probe."""

    def __call__(self, subject, data):
        os.environ["IN_PROBE"] = "1"
        batch = next(iter(data.test_dataloader()))
        found = subject.measured(batch, shared=True)
        yield Measured("test", "loss", "", found["loss"].values.mean(-1))
'''
TOUCHY = """\
import os

from torch import nn


class Touchy(nn.Module):
    def forward(self, x):
        if "IN_PROBE" in os.environ:
            raise KeyError("not here")
        return x.relu()
"""


def test_an_activation_that_fails_in_a_probe_alone_is_one_line(cli, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "strict_probe.py").write_text(PROBE)
    (tmp_path / "touchy.py").write_text(TOUCHY)
    probes = "probes: [{name: strict, class_path: strict_probe.Strict, at: last}]\n"
    (tmp_path / "tiny.yaml").write_text(STUDY + probes)
    outcome = cli("study", "run", "tiny.yaml", "--activation", "./touchy.py:Touchy")
    assert outcome.code == 1
    assert outcome.err == ""
    assert "2 of 2 runs finished" in outcome.out
    assert "probe strict failed on 1 runs such as Touchy-seed0" in outcome.out
    assert "KeyError: 'not here'" in outcome.out
    assert len(list(tmp_path.glob("runs/tiny/*/probes/strict.parquet"))) == 1


@pytest.mark.parametrize("where", ["--set", "grid", "nested"])
def test_a_study_rejects_numbers_that_are_not_finite(cli, tmp_path, where):
    words = ["--set", "model.optimizer.lr=[1e-3, nan]"] if where == "--set" else []
    grid = {"grid": "model.optimizer.lr: [1e-3, .inf]", "nested": "model.activation: [{name: elu, alpha: nan}]"}
    if where in grid:
        lines = STUDY.replace("grid: {model.activation: [relu]}", f"grid: {{{grid[where]}}}")
        (tmp_path / "tiny.yaml").write_text(lines)
    for command in ("plan", "run"):
        outcome = cli("study", command, "tiny.yaml", *words)
        assert outcome.code == 2
        assert "give a finite number" in outcome.err
    assert not (tmp_path / "runs").exists()
