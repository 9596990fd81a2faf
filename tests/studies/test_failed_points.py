"""An activation that fails stops no other: later stages open, and it stays planned."""

import json
import random
import re

import pytest

from actlab.engines import packing, running
from actlab.engines.jobs import Shard
from actlab.studies import reading
from tiny_study import study_text

FRAIL = """\
import os
import torch


def frail(x):
    fails = os.environ.get("FRAIL")
    if fails == "in the trial" or (fails and x.shape[0] > 100):
        if fails == "by diverging":
            return x * torch.nan
        raise RuntimeError("tired")
    return torch.relu(x)
"""
TABLE = "table: [{metric: test/error, at: last, percent: true}]\n"
STAGED = study_text(
    "model.activation: [relu, elu], model.optimizer.lr: [3.0e-2, 1.0e-3]",
    TABLE
    + "select: {tune: [model.optimizer.lr]}\n"
    + "stages: [{name: choose, seeds: 1}, {name: compare, seeds: 5-6}]\n",
    epochs=1,
)
SEARCHED = study_text(
    "model.activation: [relu]",
    TABLE
    + "stages:\n"
    + "  - {name: search, seeds: 1, search: {model.optimizer.lr: 1e-4..1e-2}, trials: 3}\n"
    + "  - {name: compare, seeds: 5-6}\n",
    epochs=1,
)


@pytest.fixture
def study(study, tmp_path, monkeypatch):
    """Run a command on a study with an activation that fails unless ``fails`` is empty."""
    # Costs take time, and say nothing here
    monkeypatch.setattr(running.Start, "measure", lambda start: 0)
    (tmp_path / "frail.py").write_text(FRAIL)

    def run(text, command, *words, fails=""):
        monkeypatch.setenv("FRAIL", fails)
        return study(text, command, "--activation", "./frail.py:frail", *words)

    return run


def results_of(tmp_path, activation, *seeds):
    """``result.json`` of the runs of an activation with some seeds, and when each was written."""
    files = (
        path
        for seed in seeds
        for path in tmp_path.glob(f"runs/mine/{activation}-*seed{seed}-*/result.json")
    )
    return {path: path.stat().st_mtime_ns for path in files}


def selection(tmp_path):
    return json.loads((tmp_path / "runs/mine/selection.json").read_text())["compare"]


def rows_of(outcome):
    return {
        row["point"]["model.activation"].rpartition(":")[2]: row
        for row in json.loads(outcome.out)["rows"]
    }


@pytest.mark.parametrize(
    "fails", ["in training", pytest.param("in the trial", marks=pytest.mark.slow)]
)
def test_the_next_stage_opens_for_the_others_and_then_for_what_was_fixed(study, tmp_path, fails):
    first = study(STAGED, "run", fails=fails)
    said = " ".join(first.out.split())
    assert first.code == 1
    assert len(results_of(tmp_path, "relu", 5, 6)) == len(results_of(tmp_path, "elu", 5, 6)) == 2
    assert not [*tmp_path.glob("runs/mine/frail-*seed[56]-*")]
    assert (
        said.count("Without values: frail. Runs that select settings failed or all diverged") == 2
    ), "before and below"
    assert "4 of 6 runs finished; the study is done except for 2 runs that failed: " in said
    assert (
        "Primary: 1 comparison of test error % (last) with relu. The other is secondary"
        in study(STAGED, "show").out
    )
    assert "No verdict yet against relu on 1 comparison: " in said
    assert "Repair what failed and repeat the command." in said
    row = rows_of(study(STAGED, "show", "--json"))["frail"]
    assert (row["planned"], row["finished"], row["chosen"], row["columns"][0]["median"]) == (
        2,
        0,
        {},
        None,
    )
    assert (
        "the stage is done except for 2 runs that failed"
        in study(STAGED, "show", "--stage", "choose").out
    )
    plan = study(STAGED, "plan").out
    assert (plan.count("finished  "), plan.count("failed  "), "waiting  " in plan) == (8, 2, False)
    assert "all runs have ended except 2 runs that failed" in study(STAGED, "status").out

    known, others = selection(tmp_path), results_of(tmp_path, "*elu", 0, 5, 6)
    assert len(known) == 2
    if fails == "in training":
        again = study(STAGED, "run", fails=fails)
        assert again.code == 1
        assert "tired" in again.out
        assert "stage compare: 4 runs, 4 finished, 0 to run" in again.out
        assert selection(tmp_path) == known
    else:  # other content, so other runs
        (tmp_path / "frail.py").write_text(FRAIL + "\n\nRUNS = 2\n")
    fixed = study(STAGED, "run")
    assert fixed.code == 0, fixed.out
    now = selection(tmp_path)
    assert len(now) == 3
    assert {point: entry for point, entry in now.items() if point in known} == known
    assert results_of(tmp_path, "*elu", 0, 5, 6) == others
    assert len(results_of(tmp_path, "frail", 5, 6)) == 2
    assert "6 of 6 runs finished." in fixed.out


def test_a_stage_without_any_point_does_not_open(study):
    outcome = study(
        STAGED, "run", "--set", "model.activation=[./frail.py:frail]", fails="in the trial"
    )
    assert (outcome.code, "stage compare: " in outcome.out) == (1, False)
    assert "stage compare starts when all runs of the stages before it have ended" in outcome.out


def test_a_failed_trial_ends_the_search_of_its_activation_alone(study, tmp_path):
    first = study(SEARCHED, "run", fails="in training")
    said = " ".join(first.out.split())
    assert first.code == 1
    assert len(results_of(tmp_path, "relu", 0)) == 3
    assert len(results_of(tmp_path, "relu", 5, 6)) == 2
    assert len(re.findall(r"seed0-\w+ failed: RuntimeError: tired", said)) == 3, "each trial once"
    assert "Without values: frail" in said
    assert (
        "relu tried 3 settings (model.optimizer.lr 0.0001 to 0.01 on a log scale), frail tried 3"
        in said
    )
    assert "the study is done except for 3 runs that failed" in said
    known = selection(tmp_path)
    assert (len(known), rows_of(study(SEARCHED, "show", "--json"))["frail"]["finished"]) == (1, 0)
    fixed = study(SEARCHED, "run")
    assert fixed.code == 0, fixed.out
    assert len(results_of(tmp_path, "frail", 0, 5, 6)) == 5
    assert {point: entry for point, entry in selection(tmp_path).items() if point in known} == known


def test_a_side_whose_trials_all_diverge_stays_planned(study, tmp_path):
    outcome = study(SEARCHED, "run", fails="by diverging")
    said = " ".join(outcome.out.split())
    assert len(results_of(tmp_path, "relu", 0, 5, 6)) == 5, said
    assert "Without values: frail. Runs that select settings failed or all diverged" in said
    assert (
        "the study is done except for 3 runs that failed: all trials of a search diverged (3 runs)"
        in said
    )
    assert (outcome.code, len(selection(tmp_path))) == (0, 1)


@pytest.mark.slow  # four starts
def test_shards_open_the_next_stage_and_train_each_run_once(study, tmp_path):
    def start(shard, fails):
        before = {*results_of(tmp_path, "*", 0, 5, 6)}
        words = ("--shard", f"{shard}/2", "--jobs", "0", "--max-stack", "1")
        outcome = study(STAGED, "run", *words, fails=fails)
        return outcome.code, {
            path.parent.name for path in {*results_of(tmp_path, "*", 0, 5, 6)} - before
        }

    seen = [start(0, "in training"), start(1, "in training"), start(0, "")]
    assert [code for code, _ in seen] == [1, 1, 0]
    assert len(results_of(tmp_path, "*elu", 5, 6)) == 4, (
        "though the failure in the other shard stays"
    )
    seen.append(start(1, ""))
    names = [name for _, found in seen for name in found]
    assert len(names) == len({*names}) == 11, "all but a run that the first shard takes now"


def test_a_shard_has_the_same_runs_whatever_has_failed(tmp_path, monkeypatch):
    """The stacks of four processes shrink with fewer groups, and one activation has none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.py").write_text("raise ImportError('not here')\n")
    more = {
        "model.activation": ["relu", "./none.py:f", "soi", "elu"],
        "data.batch_size": [100, 500],
    }
    (tmp_path / "mine.yaml").write_text(
        study_text(json.dumps(more)[1:-1].replace('"', ""), seeds=3)
    )
    runs = reading.load("mine.yaml").runs()
    able = [run for run in runs if "none" not in str(run.spelling)]

    def shares(todo):
        parts = [packing.pack(runs, tmp_path, 4, 4, Shard(n, 2), todo) for n in (0, 1)]
        return {name: n for n, part in enumerate(parts) for job in part.jobs for name in job.names}

    whole = shares(able)
    assert sorted(whole) == sorted(run.id for run in able)
    assert [*whole.values()].count(0) == 9
    for failed in (
        random.Random(0).sample(able, 5),
        [run for run in able if run.spelling == "elu"],
    ):
        todo = [run for run in able if run not in failed]
        assert shares(todo) == {run.id: whole[run.id] for run in todo}
