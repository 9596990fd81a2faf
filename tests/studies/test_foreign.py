"""A user's own LightningModule and DataModule in a study, and a study on several devices."""

import json
import re

import pandas as pd
import pytest

from tolerances import ROUNDED

pytestmark = pytest.mark.tries_stacks

STUDY = """\
base: ./base.yaml
grid: {model.activation: [relu], model.lr: [0.5, 0.01]}
seeds: 2
select: {tune: [model.lr]}
table: [{metric: val/loss, at: last}, {metric: train_loss, at: last}]
"""
BASE = {
    "seed_everything": 0,
    "model": {"class_path": "plain_lightning.MyModule", "init_args": {"activation": "relu"}},
    "data": {"class_path": "plain_lightning.MyData"},
    "trainer": {"max_epochs": 4, "accelerator": "cpu"},
}


@pytest.fixture
def study(own_study):
    run = own_study("plain_lightning", BASE)
    return lambda command, *words, text=STUDY: run(text, command, *words)


def rows(tmp_path):
    return {p.parent.name: pd.read_parquet(p) for p in tmp_path.glob("runs/own/*/metrics.parquet")}


def test_a_users_module_and_data_in_a_study(study, tmp_path):
    assert "4 not finished" in study("plan").out
    outcome = study("run")
    assert outcome.code == 0, outcome.err
    assert "4 of 4 runs finished." in outcome.out
    assert (
        "instead of stacked: MyModule is a LightningModule, but not an actlab.tasks.Task"
        in outcome.out
    )
    assert "stackable" not in outcome.out
    for frame in rows(tmp_path).values():
        counts = frame.groupby(["split", "metric"]).size().to_dict()
        assert counts == {("", "train_loss"): 4, ("val", "loss"): 4, ("", "every_second_epoch"): 2}
        every = frame[frame["metric"] == "every_second_epoch"]
        assert every["value"].tolist() == [1, 3]
        assert every["epoch"].tolist() == [2, 4]
    chosen = [line.split()[1] for line in outcome.out.splitlines() if line.startswith("relu")]
    assert chosen == ["0.5"]


def test_a_metric_that_no_run_records_leaves_the_rest_of_the_table(study):
    text = STUDY.replace("table: [", "table: [{metric: test/error}, ")
    words = ["--set", "model.lr=0.5", "--set", "seeds=1"]
    outcome = study("plan", *words, text=text)
    remedy = "Add actlab.callbacks.TestEveryEpoch to trainer.callbacks"
    assert re.search(
        rf"^test/error is in the table, but no callback records it\. .*{remedy}", outcome.out, re.M
    )
    outcome = study("run", *words, text=text)
    assert outcome.code == 0, outcome.err
    shown = study("show", *words, text=text)
    text = " ".join((outcome.out + shown.out).split())
    assert "The table leaves out what no finished run recorded: unknown metric 'test/error'" in text
    assert remedy in text
    assert "val loss (last)" in text
    assert "test error" not in text


def test_keys_of_a_later_stage_are_checked_before_the_first_is_trained(study, tmp_path):
    text = (
        f"{STUDY}stages: [{{name: choose, seeds: 1}}, {{name: compare, seeds: 5-6, "
        "set: {model.depth: 3}}]\n"
    )
    for command in ("plan", "run"):
        outcome = study(command, text=text)
        assert outcome.code == 2
        assert "model.depth" in outcome.err
    assert not [*tmp_path.glob("runs/own/*/config.yaml")]


def test_a_loss_of_any_name_that_is_not_finite_ends_the_run(study, tmp_path):
    outcome = study("run", "--set", "model.broken=true", "--set", "seeds=1")
    assert outcome.code == 0, outcome.err
    for path in tmp_path.glob("runs/own/*/result.json"):
        assert json.loads(path.read_text())["status"] == "diverged"


def test_a_task_with_a_step_of_its_own_runs_one_by_one(study):
    text = """\
base: mnist_classifier
set:
  model.class_path: plain_lightning.OwnStep
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 1
  trainer.limit_train_batches: 2
  model.network.hidden: [8]
grid: {model.activation: [relu]}
seeds: 2
"""
    outcome = study("run", text=text)
    assert outcome.code == 0, outcome.err
    line = (
        "one by one instead of stacked: OwnStep overrides 'training_step', which a stack "
        "does not call"
    )
    assert line in outcome.out
    assert "2 of 2 runs finished." in outcome.out


def test_runs_of_a_study_have_the_same_devices(study):
    text = STUDY.replace("model.lr: [0.5, 0.01]", "trainer.devices: [1, 2]")
    outcome = study("run", text=text.replace("select: {tune: [model.lr]}\n", ""))
    assert outcome.code == 2
    assert "the runs of a study must use the same devices" in outcome.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "end", ["raise ValueError('no')", "os._exit(3)", "os.kill(os.getpid(), 9)"]
)
def test_a_module_that_ends_its_devices_is_a_failed_run(study, tmp_path, end):
    ends = f"\n\nclass Ends(MyModule):\n    def on_train_start(self):\n        {end}\n"
    file = tmp_path / "plain_lightning.py"
    file.write_text(f"import os\n{file.read_text()}{ends}")
    words = [
        "trainer.devices=2",
        "trainer.strategy=ddp",
        "model.class_path=plain_lightning.Ends",
        "seeds=1",
    ]
    words += ["model.activation=relu", "model.lr=0.1"]
    outcome = study("run", *(part for word in words for part in ("--set", word)))
    assert outcome.code == 1, outcome.err
    how = {"os": "exited with code 3", "ki": "was ended by signal 9", "ra": "ValueError: no"}
    assert how["ki" if "kill" in end else end[:2]] in outcome.out


@pytest.mark.slow
def test_a_study_on_two_devices(tmp_path, succeed):
    text = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 2
  trainer.limit_train_batches: 4
  trainer.precision: 64-true
  trainer.accelerator: cpu
  model.network.hidden: [8]
grid: {model.activation: [soi]}
seeds: 2
table: [{metric: test/error, at: last, percent: true}]
"""
    (tmp_path / "two.yaml").write_text(text)

    words = ["study", "run", str(tmp_path / "two.yaml"), "--runs-dir"]
    succeed(*words, tmp_path / "one", "--max-stack", "1")
    two = ["--set", "trainer.devices=2", "--set", "trainer.strategy=ddp"]
    outcome = succeed(*words, tmp_path / "two", *two)
    assert outcome.out.count("2 of 2 runs finished.") == 1
    assert "one by one instead of stacked: several devices" in outcome.out

    def values(where):
        frames = [
            pd.read_parquet(p) for p in sorted((tmp_path / where).glob("two/*/metrics.parquet"))
        ]
        return pd.concat(frames)["value"].to_numpy()

    assert len(values("one")) == len(values("two")) > 20
    assert values("two") == pytest.approx(values("one"), rel=ROUNDED)
