"""A user's unit through the papers' tasks, by one command."""

import json
import re

import pytest

from actlab.cli import scoreboard


@pytest.fixture
def here(program, tmp_path, monkeypatch):
    program("learnt_swish")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_task_is_a_study_that_the_unit_joins():
    for name in scoreboard.TASKS:
        study = scoreboard.small(name, ["silu"])
        assert {run.point["model.activation"] for run in study.runs()} >= {"gelu_tanh", "relu", "elu", "silu"}
        assert all(run.config["data"]["init_args"]["sample"] for run in study.runs())
        assert "published" not in json.dumps(study.figures)


def test_a_unit_of_ones_own_gets_its_ranks(here, cli, monkeypatch):
    monkeypatch.setattr(
        scoreboard, "TASKS", {"gelu_mnist_autoencoder": "mnist", "gelu_twitter_pos": "twitter_pos"}
    )
    monkeypatch.setitem(scoreboard._SMALL, "trainer.max_epochs", 1)
    outcome = cli("scoreboard", "--activation", "./learnt_swish.py:Mine")
    assert outcome.code == 0, outcome.err
    assert re.search(r"^task +\w+ +\w+ +\w+ +\w+$", outcome.out, re.M)
    assert re.search(r"^gelu_mnist_autoencoder( +\S+ \([1-4]\)){4}$", outcome.out, re.M)
    assert "nothing here says which unit is best" in outcome.out
    page = (here / "runs/scoreboard-small/index.html").read_text()
    for word in ("Mine", "gelu_tanh", "gelu_mnist_autoencoder"):
        assert word in page
    assert (here / "runs/scoreboard-small/gelu_mnist_autoencoder/report.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "paper"], "--data NAME=FOLDER"),
        (["--budget", "paper", "--data", "mnist"], "give NAME=FOLDER"),
        (["--budget", "paper", "--data", "minst=/x"], "did you mean 'mnist'"),
    ],
)
def test_mistakes_are_one_line(here, cli, words, message):
    outcome = cli("scoreboard", "--activation", "silu", *words)
    assert outcome.code == 2
    assert message in outcome.err
