"""The engines: identical folders, resume after a kill, divergence, and the command line around them."""

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from actlab import experiments
from actlab.engines import folders, packing, sequential, stacked
from actlab.studies import plan, reading

STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 500
  trainer.max_epochs: 3
  model.network.hidden: [16, 16]
grid:
  model.activation: [relu, soi]
  model.network.dropout: [0.0, 0.3]
  model.optimizer.lr: [1.0e-2, 1.0e-3]
seeds: 2
select: {tune: [model.optimizer.lr]}
"""


@pytest.fixture
def study(tmp_path):
    def write(**options):
        path = tmp_path / "tiny.yaml"
        path.write_text(STUDY)
        return reading.load(str(path), **options)

    return write


def ignore(run, fraction):
    """No progress display."""


def metrics(root, run):
    return pd.read_parquet(root / run.id / "metrics.parquet")


def result(root, run):
    entries = json.loads((root / run.id / "result.json").read_text())
    return {name: value for name, value in entries.items() if name != "seconds"}


def test_engines_write_the_same_folders(study, tmp_path):
    wanted = study().runs()
    parts, alone, reasons = packing.plan_stacks(wanted, tmp_path / "stacked")
    assert not alone
    assert not reasons
    assert [len(stack.members) for stack in parts] == [4] * 4
    sequential.execute(wanted, tmp_path / "sequential", ignore)
    stacked.execute(wanted, parts, tmp_path / "stacked", ignore)
    for run in wanted:
        one, many = metrics(tmp_path / "sequential", run), metrics(tmp_path / "stacked", run)
        assert list(one.columns) == ["epoch", "step", "split", "metric", "condition", "value"]
        assert set(one["condition"]) == {""}
        both = one.merge(many, on=["epoch", "step", "split", "metric"], validate="1:1")
        assert len(both) == len(one) == len(many)
        losses = both[both["metric"].isin(["loss", "clean_loss"])]
        assert ((losses["value_x"] - losses["value_y"]).abs() / losses["value_x"]).max() < 1e-3
        assert {p.name for p in (tmp_path / "sequential" / run.id).iterdir()} == {
            p.name for p in (tmp_path / "stacked" / run.id).iterdir()
        }
        ours = result(tmp_path / "stacked", run)
        assert (ours["status"], ours["last_good_epoch"], ours["updates"]) == ("finished", 3, 24)
        assert ours.keys() - {"stack"} == result(tmp_path / "sequential", run).keys()


def test_validation_is_three_times_an_epoch_and_test_once(study, tmp_path):
    run = study().runs()[0]
    sequential.execute([run], tmp_path, ignore)
    rows = metrics(tmp_path, run)
    steps = rows[rows["metric"] == "loss"].groupby("split")["step"].apply(list)
    assert steps["val"] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24]  # int(8 · 0.334) = 2
    assert steps["test"] == steps["train"] == [8, 16, 24]
    assert rows["epoch"].max() == 3


@pytest.mark.parametrize("activation", ["relu", "soi"])
def test_without_randomness_clean_and_training_loss_are_one_number(study, tmp_path, activation):
    run = next(r for r in study().runs() if r.point[plan.ACTIVATION] == activation)
    sequential.execute([run], tmp_path, ignore)
    rows = metrics(tmp_path, run)
    clean = rows[rows["metric"] == "clean_loss"]["value"].to_numpy()
    training = rows[(rows["metric"] == "loss") & (rows["split"] == "train")]["value"].to_numpy()
    assert (clean == training).all() == (activation == "relu")


class KilledError(Exception):
    """Stands for a kill between two epochs."""


def kill_after(number):
    calls = iter(range(number))

    def progress(run, fraction):
        if next(calls, None) is None:
            raise KilledError

    return progress


@pytest.mark.parametrize("moment", [0, 5])
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_an_interrupted_study_goes_on_as_if_nothing_had_happened(study, tmp_path, engine, moment):
    wanted = [run for run in study().runs() if run.point[plan.ACTIVATION] == "soi"]

    def execute(root, progress):
        if engine == "stacked":
            parts, _, _ = packing.plan_stacks(wanted, root)
            stacked.execute(wanted, parts, root, progress)
        else:
            sequential.execute(wanted, root, progress)

    execute(tmp_path / "straight", ignore)
    with pytest.raises(KilledError):
        execute(tmp_path / "killed", kill_after(moment))
    partial = next((tmp_path / "killed").glob("*/metrics.jsonl"))
    with partial.open("a") as file:
        file.write('[3.0, 24, "val", "lo')  # a line cut short
    execute(tmp_path / "killed", ignore)
    for run in wanted:
        assert metrics(tmp_path / "killed", run).equals(metrics(tmp_path / "straight", run))
        assert result(tmp_path / "killed", run) == result(tmp_path / "straight", run)


@pytest.mark.slow
def test_killed_with_sigkill_at_three_moments(study, tmp_path):
    study()  # writes the file
    words = [
        sys.executable,
        "-m",
        "actlab",
        "study",
        "run",
        str(tmp_path / "tiny.yaml"),
        "--set",
        "trainer.max_epochs=30",
        "--runs-dir",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    subprocess.run([*words, tmp_path / "straight"], check=True, **quiet)
    for seconds in (9, 13, 11):
        process = subprocess.Popen([*words, tmp_path / "killed"], **quiet)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*words, tmp_path / "killed"], check=True, **quiet)
    for run in reading.load(str(tmp_path / "tiny.yaml"), overrides=["trainer.max_epochs=30"]).runs():
        killed, straight = tmp_path / "killed" / "tiny", tmp_path / "straight" / "tiny"
        assert metrics(killed, run).equals(metrics(straight, run))
        assert result(killed, run) == result(straight, run)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_run_that_diverges_is_recorded_and_the_study_goes_on(study, tmp_path, engine):
    options = [
        "model.optimizer.class_path=torch.optim.SGD",
        "model.optimizer.lr=[1e30, 1e-2]",
        "seeds=1",
        "model.activation=relu",
        "model.network.dropout=0.0",
    ]
    wanted = study(overrides=options).runs()
    if engine == "stacked":
        parts, _, _ = packing.plan_stacks(wanted, tmp_path)
        stacked.execute(wanted, parts, tmp_path, ignore)
    else:
        sequential.execute(wanted, tmp_path, ignore)
    wild, calm = (result(tmp_path, run) for run in wanted)
    assert (wild["status"], wild["last_good_epoch"]) == (folders.DIVERGED, 0)
    assert (calm["status"], calm["last_good_epoch"]) == (folders.FINISHED, 3)
    assert metrics(tmp_path, wanted[0]).empty
    assert not metrics(tmp_path, wanted[1]).empty


def test_members_may_finish_at_different_epochs(study, tmp_path):
    path = tmp_path / "lengths.yaml"
    text = STUDY.replace("model.optimizer.lr: [1.0e-2, 1.0e-3]", "trainer.max_epochs: [1, 2, 3]")
    path.write_text(
        text.replace("select: {tune: [model.optimizer.lr]}", "").replace("  trainer.max_epochs: 3\n", "")
    )
    wanted = reading.load(str(path), overrides=["model.activation=elu", "model.network.dropout=0.3"]).runs()
    parts, alone, _ = packing.plan_stacks(wanted, tmp_path / "stacked")
    assert (len(parts), alone) == (1, [])
    stacked.execute(wanted, parts, tmp_path / "stacked", ignore)
    sequential.execute(wanted, tmp_path / "sequential", ignore)
    for run in wanted:
        one, many = metrics(tmp_path / "sequential", run), metrics(tmp_path / "stacked", run)
        assert len(one) == len(many)
        assert one["value"].to_numpy() == pytest.approx(many["value"].to_numpy(), rel=1e-3)


def test_stacks_stay_as_they_were_decided(study, tmp_path):
    wanted = study().runs()
    first, _, _ = packing.plan_stacks(wanted, tmp_path, max_size=2)
    again, _, _ = packing.plan_stacks(wanted, tmp_path, max_size=4)
    assert first == again
    more, _, _ = packing.plan_stacks(study(overrides=["seeds=3"]).runs(), tmp_path)
    assert more[: len(first)] == first
    assert len(more) > len(first)


def test_a_member_is_an_ordinary_checkpoint(study, tmp_path, cli):
    wanted = study().runs()[:4]
    parts, _, _ = packing.plan_stacks(wanted, tmp_path)
    stacked.execute(wanted, parts, tmp_path, ignore)
    run = wanted[2]
    folder = tmp_path / run.id
    outcome = cli(
        "test",
        "-c",
        folder / "config.yaml",
        "--ckpt_path",
        folder / "checkpoints" / "last.ckpt",
        "--trainer.logger",
        "false",
    )
    assert outcome.code == 0
    final = result(tmp_path, run)["final"]["test/error"]
    assert float(outcome.out.split("test/error")[1].split()[1]) == pytest.approx(final)


def test_reasons_against_stacking(study):
    run = study().runs()[0]
    task = experiments.build(run.config).task
    assert packing.reason_against(run, task) is None
    for key, value, word in (
        ("trainer.precision", "16-mixed", "scaler"),
        ("trainer.gradient_clip_val", 1.0, "clip"),
        ("trainer.devices", 2, "devices"),
    ):
        other = study(overrides=[f"{key}={value}"]).runs()[0]
        assert word in (packing.reason_against(other, task) or "")


def test_the_best_size_is_one_that_was_timed(study, monkeypatch):
    wanted = study(overrides=["seeds=4", "model.activation=relu", "model.network.dropout=0.0"]).runs()
    timed = []

    def assemble(runs, watch, path, original=stacked.assemble):
        timed.append((len(runs), watch))
        return original(runs, watch, path)

    monkeypatch.setattr(stacked, "assemble", assemble)
    best = stacked.find_size(wanted, most=1000)
    assert [size for size, _ in timed] == [5, 8]
    assert best == min(timed, key=lambda entry: entry[1].seconds / entry[0])[0]
    assert all(len(watch.times) == 20 for _, watch in timed)
    assert stacked.find_size(wanted, most=3) == 3


def test_a_size_that_was_found_is_used(study, tmp_path):
    wanted = study().runs()
    parts, _, _ = packing.plan_stacks(wanted, tmp_path, find_size=lambda runs, most: 2)
    assert {len(part.members) for part in parts} == {2}
