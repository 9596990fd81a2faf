"""A user's unit through the papers' tasks and today's, by one command."""

import json
import math
import re

import pytest

from actlab.cli import estimates, scoreboard
from actlab.engines.workers import Inline
from actlab.studies import reading
from actlab.studies.folders import FINISHED, RunFolder, StudyFolder


@pytest.fixture
def here(program, tmp_path, monkeypatch):
    program("learnt_swish")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_task_is_a_study_that_the_unit_joins():
    for name in scoreboard.TASKS:
        study = scoreboard.minutes(name, ["silu"])
        known = {run.point["model.activation"] for run in study.runs()}
        assert known >= {"relu", "elu", "silu"}
        assert known & {"gelu", "gelu_tanh"}
        data = [run.config["data"]["init_args"] for run in study.runs()]
        assert all(given.get("sample", name == "pinn_helmholtz") for given in data)
        assert study.samples  # else it would drive all others off the board, as the only one on its full data
        assert "published" not in json.dumps(study.figures)


@pytest.mark.parametrize(
    ("name", "updates"), [("gpt_plain", 800), ("pinn_helmholtz", 2000), ("inr_image", 1000)]
)
def test_todays_tasks_have_all_their_updates_in_minutes(name, updates):
    for run in scoreboard.minutes(name, ["silu"]).runs():
        of_epoch = run.config["data"]["init_args"]["updates_per_epoch"]
        assert run.epochs * of_epoch == updates
        assert run.config["trainer"]["limit_train_batches"] == of_epoch


def test_a_unit_of_ones_own_is_compared_on_each_task_and_over_tasks(here, cli, monkeypatch):
    few = ("gelu_mnist_autoencoder", "gelu_twitter_pos")
    monkeypatch.setattr(scoreboard, "TASKS", {name: scoreboard.TASKS[name] for name in few})
    monkeypatch.setattr(scoreboard, "_FEW_EPOCHS", 1)
    monkeypatch.setitem(scoreboard.BUDGETS, "minutes", math.inf)
    outcome = cli("scoreboard", "--activation", "./learnt_swish.py:Mine")
    assert outcome.code == 0, outcome.err
    total = r"^gelu_twitter_pos: about .*\nall tasks: about .* one by one; --budget minutes allows any time$"
    assert re.search(total, outcome.out, re.M)
    assert outcome.out.index("all tasks: about") < outcome.out.index("8 runs, 0 finished")
    assert re.search(r"^  > Mine +[+-]\S+  2 pairs$", outcome.out, re.M)
    assert re.search(r"^task( +(> )?\w+){4}$", outcome.out, re.M)
    assert re.search(
        r"^over tasks\n  probability of being better than gelu_tanh .*\n  > Mine +[01]\.\d\d", outcome.out, re.M
    )
    assert re.search(r"^gelu_mnist_autoencoder( +\d\S+( \([01]\.\d\d\))?){4}$", outcome.out, re.M)
    assert "nothing here says which activation is best" in outcome.out
    page = (here / "runs/scoreboard-minutes/index.html").read_text()
    for word in ("Mine", "gelu_tanh", "gelu_mnist_autoencoder"):
        assert word in page
    assert (here / "runs/scoreboard-minutes/gelu_mnist_autoencoder/report.html").exists()


def test_tasks_that_do_not_fit_into_the_budget_are_left_out_by_name(here, cli, monkeypatch):
    """Each task takes 400 s of 900 s where 100 s were estimated: the third is not begun. None is trained."""
    clock, first = iter(range(10**6)), [*scoreboard.TASKS][:3]
    passed = 0.0

    def trained(folder, engine):
        nonlocal passed
        passed += 400
        return 0

    def remaining(folder, worker, rounds):
        nonlocal passed
        passed += 20
        return 60.0

    monkeypatch.setattr(scoreboard, "TASKS", {name: scoreboard.TASKS[name] for name in (*first, "inr_image")})
    monkeypatch.setattr("time.monotonic", lambda: passed + 1e-9 * next(clock))
    monkeypatch.setattr(estimates, "remaining", remaining)
    monkeypatch.setattr(scoreboard, "run", trained)
    monkeypatch.setattr(scoreboard, "Worker", Inline)
    monkeypatch.setattr("actlab.reports.output.write", lambda *given, **options: [])
    out = cli("scoreboard", "--activation", "silu").out
    assert "all tasks: about 7 min one by one; --budget minutes allows 15 min" in out
    assert f"left out, because they do not fit into 15 min: {first[2]}, inr_image" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "paper"], "--data NAME=FOLDER"),
        (
            ["--budget", "hours", "--data", "cifar100=/x"],
            "one of mnist, twitter_pos, timit, wikitext, cifar10; ",
        ),
        (["--budget", "paper", "--data", "mnist"], "give NAME=FOLDER"),
        (["--budget", "paper", "--data", "minst=/x"], "did you mean 'mnist'"),
    ],
)
def test_mistakes_are_one_line(here, cli, words, message):
    outcome = cli("scoreboard", "--activation", "silu", *words)
    assert outcome.code == 2
    assert message in outcome.err


def test_hours_train_the_papers_networks_at_one_learning_rate_with_seeds_for_an_interval():
    given = {"mnist": "/m", "twitter_pos": "/t", "cifar10": "/c"}
    studies = {study.name: study for study in scoreboard.planned("hours", ["silu"], given)}
    papers = ["gelu_mnist_classifier", "gelu_mnist_autoencoder", "gelu_twitter_pos"]
    assert [*studies] == [*papers, "pinn_helmholtz", "inr_image"]  # an equation needs no data
    for name, study in studies.items():
        assert len(study.seeds) == 6
        assert study.more_seeds == ""  # the budget sets them
        assert not study.stages
        assert {run.epochs for run in study.runs()} == {25 if name in papers else 4}
        assert {run.point["model.optimizer.lr"] for run in study.runs()} == {1e-3 if name in papers else 1e-2}
        assert study.is_own("model.activation", "silu")
        assert not study.is_own("model.activation", "relu")
        assert "published" not in json.dumps(study.figures)
    assert studies["gelu_mnist_classifier"].cut == "25 epochs, not 50"
    full = reading.load("gelu_mnist_classifier")
    assert studies["gelu_mnist_classifier"].runs()[0].config["model"] == full.runs()[0].config["model"]


def test_the_time_of_later_stages_is_counted_and_of_finished_runs_not(monkeypatch, tmp_path):
    """One second an update, ten updates an epoch: an epoch is 10 s."""
    study = scoreboard.paper("gelu_mnist_classifier", ["silu"], {"data.dataset": "/m"})
    monkeypatch.setattr(estimates, "faults_of", lambda runs, helper: {})
    cost = {"seconds_per_update": 0.75, "seconds_added": 0.25}
    timed = {run.id: {"point": run.point, **cost} for run in study.runs()}
    monkeypatch.setattr(estimates, "measure_costs", lambda *given, rounds: [*timed.values()])

    helper = Inline()
    monkeypatch.setattr(helper, "call", lambda function, run: 10)
    # Four activations, two dropouts: 3 learning rates × 5 seeds to choose, then 15 seeds; 50 epochs each.
    assert estimates.remaining(StudyFolder(study, tmp_path), helper, 1) == 4 * 2 * (3 * 5 + 15) * 50 * 10
    for run in study.runs()[:2]:
        RunFolder(tmp_path, run).open()
        RunFolder(tmp_path, run).finish(FINISHED, [], seconds=1.0)
    assert estimates.remaining(StudyFolder(study, tmp_path), helper, 1) == (4 * 2 * (3 * 5 + 15) - 2) * 50 * 10
