"""Activations that exit, end loops, change torch or raise odd errors: each fails alone, by name."""

import json

import pytest
import torch

from tiny_study import study_text

STUDY = study_text(seeds=1, batches=4)
REASONS = {  # activation → the error of its run
    "Exits": "activation Exits cannot be tried: the process exited with code 0",
    "Doubles": (
        "activation Doubles fails: an activation, network or task set torch's default dtype to"
    ),
    "DoublesFirst": (
        "activation DoublesFirst fails: an activation, network or task set torch's default dtype"
    ),
    "Breaks": "activation Breaks fails: an activation, network or task raised BrokenPipeError",
    "Obscure": "activation Obscure fails: Strange, whose text raises KeyError",
    "Quits": "the process that trained it exited with code 0",
    "Ends": "an activation, network or task raised StopIteration",
    "EndsBackward": "of 4 training batches without a stop request",
}
ALONE = """
import os

from torch import nn


class Alone(nn.Module):
    elementwise, stochastic = True, False

    def forward(self, x):
        if x.dim() == 3 and len(x) == 1:  # of a stack
            os._exit(3)
        return x.tanh()
"""
LATE = ("Quits", "Ends")  # the others are failing_activations
FIT = [
    *("-c", "mnist_classifier", "--data.sample", "true", "--model.network.hidden", "[8]"),
    *(
        "--trainer.limit_train_batches",
        "4",
        "--trainer.logger",
        "false",
        "--trainer.max_epochs",
        "2",
    ),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]


@pytest.fixture(autouse=True)
def _folder(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program("failing_activations")
    program("late_activations")
    program("measured_activations")
    (tmp_path / "dies.py").write_text("import os\n\nos._exit(3)\n")
    (tmp_path / "tiny.yaml").write_text(STUDY)


def test_each_fails_by_name_and_the_others_are_trained(cli, tmp_path):
    files = {
        name: "late_activations" if name in LATE else "failing_activations" for name in REASONS
    }
    units = [
        word for name, file in files.items() for word in ("--activation", f"./{file}.py:{name}")
    ]
    units += ["--activation", "./dies.py:Unit"]
    for how in ("exit 0", "kill"):
        units += ["--activation", f"{{name: ./measured_activations.py:Ends, how: {how}}}"]
    outcome = cli("study", "run", "tiny.yaml", "--jobs", "1", *units)
    assert outcome.code == 1, outcome.err
    assert "1 of 12 runs finished" in outcome.out
    assert (
        "activation Ends(how=exit 0) cannot be tried: the process exited with code 0. "
        in outcome.out
    )
    assert (
        "activation Ends(how=kill) cannot be tried: the process was ended by signal 9. "
        in outcome.out
    )
    reasons = {**REASONS, "Unit": "activation Unit cannot be tried: the process exited with code 3"}
    for unit, reason in reasons.items():
        (failed,) = tmp_path.glob(f"runs/tiny/{unit}-seed0-*/failed.json")
        assert reason in json.loads(failed.read_text())["error"]
        assert reason in outcome.out
    (result,) = tmp_path.glob("runs/tiny/relu-*/result.json")
    assert json.loads(result.read_text())["status"] == "finished"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.activation", "./late_activations.py:Ends"], "raised StopIteration"),
        (
            ["--model.activation", "./failing_activations.py:EndsBackward"],
            "of 4 training batches without a stop request",
        ),
        (
            ["--model.activation", "./failing_activations.py:Exits"],
            "ended `actlab fit` with code 0",
        ),
        (["--model.activation", "./failing_activations.py:Breaks"], "raised BrokenPipeError"),
        (
            ["--model.activation", "./failing_activations.py:DoublesFirst"],
            "set torch's default dtype",
        ),
        (["--model.optimizer.lr", ".inf"], "model.optimizer.lr: expected a finite number, got inf"),
    ],
)
def test_a_fit_says_so_in_one_line(cli, words, message):
    outcome = cli("fit", *FIT, *words)
    assert outcome.code == 2
    assert message in outcome.err.strip().splitlines()[-1]
    assert "Traceback" not in outcome.err
    assert torch.get_default_dtype() == torch.float32


def test_an_activation_that_fails_in_a_probe_alone_is_one_line(cli, program, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    program("strict_probe")
    probes = "probes: [{name: strict, class_path: strict_probe.Strict, at: last}]\n"
    (tmp_path / "tiny.yaml").write_text(STUDY + probes)
    outcome = cli("study", "run", "tiny.yaml", "--activation", "./failing_activations.py:Touchy")
    assert outcome.code == 1
    assert outcome.err == ""
    assert "2 of 2 runs finished" in outcome.out
    assert "probe strict failed on 1 run such as Touchy-seed0" in outcome.out
    assert "KeyError: 'not here'" in outcome.out
    assert len(list(tmp_path.glob("runs/tiny/*/probes/strict-*.parquet"))) == 1


@pytest.mark.parametrize("where", ["--set", "grid", "nested"])
def test_a_study_rejects_numbers_that_are_not_finite(cli, tmp_path, where):
    words = ["--set", "model.optimizer.lr=[1e-3, .nan]"] if where == "--set" else []
    grid = {
        "grid": "model.optimizer.lr: [1e-3, .inf]",
        "nested": "model.activation: [{name: elu, alpha: .nan}]",
    }
    if where in grid:
        lines = STUDY.replace("grid: {model.activation: [relu]}", f"grid: {{{grid[where]}}}")
        (tmp_path / "tiny.yaml").write_text(lines)
    for command in ("plan", "run"):
        outcome = cli("study", command, "tiny.yaml", *words)
        assert outcome.code == 2
        assert "expected a finite number, got" in outcome.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.tries_stacks
def test_runs_whose_stacks_end_the_process_are_plain_modules(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("actlab.engines.running.opens_new_files", lambda *_: False)
    (tmp_path / "alone.py").write_text(ALONE)
    words = ("--set", "model.activation=./alone.py:Alone", "--set", "seeds=2", "--jobs", "1")
    outcome = cli("study", "run", "tiny.yaml", *words)
    assert outcome.code == 0, outcome.err
    assert (
        "one by one instead of stacked: the process that tried stacks exited with code 3"
        in outcome.out
    )
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/tiny/*/result.json")]
    assert [result["engine"] for result in results] == ["sequential"] * 2
