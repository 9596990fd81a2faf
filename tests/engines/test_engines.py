"""The engines: identical folders, resume after a kill, divergence, and the command line around them."""

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from actlab import experiments
from actlab.datamodules import MNISTDataModule
from actlab.engines import packing, training
from actlab.errors import ActlabError
from actlab.stacking import StackedTask
from actlab.studies import folders, reading
from actlab.studies.locks import holding
from actlab.studies.plan import Keep
from actlab.tasks import ClassificationTask
from tiny_study import RELU, KilledError, assert_same, execute, ignore, kill_after, load, metrics, result
from tolerances import EXACT, ROUNDED, counted

EARLY_STOPPING = (
    "{class_path: pytorch_lightning.callbacks.EarlyStopping, init_args: {monitor: val/loss, patience: 9}}"
)


@pytest.fixture
def study(tmp_path):
    return partial(load, tmp_path)


def test_engines_leave_the_same_folders_rows_errors_and_weights(study, tmp_path):
    """In float64, where no rounding flips a mask of SOI."""
    wanted = study(overrides=["trainer.precision=64-true", "trainer.max_epochs=2"]).runs()
    plan = packing.pack(wanted, tmp_path / "stacked")
    assert not plan.reasons
    assert [len(job.runs) for job in plan.jobs] == [4] * 4
    wanted = [run for run in wanted if run.point["model.optimizer.lr"] == 0.01]
    execute(wanted, tmp_path / "sequential", stacked=False)
    execute(wanted, tmp_path / "together")
    for run in wanted:
        one, many = metrics(tmp_path / "sequential", run), metrics(tmp_path / "together", run)
        assert list(one.columns) == ["epoch", "step", "split", "metric", "condition", "value"]
        assert set(one["condition"]) == {""}
        both = one.merge(many, on=["epoch", "step", "split", "metric"], validate="1:1")
        assert len(both) == len(one) == len(many)
        errors = both["metric"] == "error"
        # A run alone keeps its means in float32; of 1,000 images one error more would be 1e-3.
        assert (both["value_x"] - both["value_y"])[errors].abs().max() < 1e-6
        assert ((both["value_x"] - both["value_y"]).abs() / both["value_x"].abs()).max() < 1e-6
        alone, stacked = (torch.load(f, weights_only=True)["state_dict"] for f in checkpoints_of(tmp_path, run))
        assert alone.keys() == stacked.keys()
        for name, value in alone.items():
            assert torch.allclose(value, stacked[name], rtol=1e-8, atol=1e-10), name
        assert {p.name for p in (tmp_path / "sequential" / run.id).iterdir()} == {
            p.name for p in (tmp_path / "together" / run.id).iterdir()
        }
        ours = result(tmp_path / "together", run)
        assert (ours["status"], ours["last_good_epoch"], ours["updates"]) == ("finished", 2, 16)
        assert ours.keys() - {"stack"} == result(tmp_path / "sequential", run).keys()
        assert ours["scored"] == result(tmp_path / "sequential", run)["scored"] == {"val": 1000, "test": 1000}


def checkpoints_of(folder, run):
    return [folder / engine / run.id / "checkpoints" / "last.ckpt" for engine in ("sequential", "together")]


def test_validation_is_three_times_an_epoch_and_test_once(study, tmp_path):
    run = study().runs()[0]
    execute([run], tmp_path)
    rows = metrics(tmp_path, run)
    steps = rows[rows["metric"] == "loss"].groupby("split")["step"].apply(list)
    assert steps["val"] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24]  # int(8 · 0.334) = 2
    assert steps["test"] == steps["train"] == [8, 16, 24]
    assert rows["epoch"].max() == 3


@pytest.mark.parametrize("activation", ["relu", "soi"])
def test_without_randomness_clean_and_training_loss_are_one_number(study, tmp_path, activation):
    run = next(r for r in study().runs() if r.point["model.activation"] == activation)
    execute([run], tmp_path)
    rows = metrics(tmp_path, run)
    clean = rows[rows["metric"] == "clean_loss"]["value"].to_numpy()
    training = rows[(rows["metric"] == "loss") & (rows["split"] == "train")]["value"].to_numpy()
    assert (clean == training).all() == (activation == "relu")


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Folders of four runs of SOI with dropout that nothing has interrupted, by whether they were stacked."""
    found = {kind: tmp_path_factory.mktemp(f"stacked-{kind}") for kind in (True, False)}
    for kind, folder in found.items():
        execute(soi_runs(folder), folder, stacked=kind)
    return found


def soi_runs(folder):
    return load(folder, overrides=["model.activation=soi", "model.network.dropout=0.3"]).runs()


@pytest.mark.parametrize(("stacked", "moment"), [(True, 0), (True, 5), (False, 5)])
def test_an_interrupted_study_goes_on_as_if_nothing_had_happened(straight, tmp_path, stacked, moment):
    wanted = soi_runs(tmp_path)
    with pytest.raises(KilledError):
        execute(wanted, tmp_path, stacked, kill_after(moment))
    partial = next(tmp_path.glob("*/metrics.csv"))
    with partial.open("a") as file:
        file.write("3.0,24,val,lo")  # a line cut short
    execute(wanted, tmp_path, stacked)
    assert_same(wanted, tmp_path, straight[stacked])


@pytest.mark.slow
def test_killed_with_sigkill_at_three_moments(study, tmp_path):
    study()  # writes the file
    words = [sys.executable, "-m", "actlab", "study", "run", str(tmp_path / "tiny.yaml")]
    words += ["--set", "trainer.max_epochs=30", "--runs-dir"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    subprocess.run([*words, tmp_path / "straight"], check=True, **quiet)
    for seconds in (9, 13, 11):
        process = subprocess.Popen([*words, tmp_path / "killed"], **quiet)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*words, tmp_path / "killed"], check=True, **quiet)
    runs = reading.load(str(tmp_path / "tiny.yaml"), overrides=["trainer.max_epochs=30"]).runs()
    assert_same(runs, tmp_path / "killed" / "tiny", tmp_path / "straight" / "tiny")


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_run_that_diverges_is_recorded_and_the_study_goes_on(study, tmp_path, engine):
    rates = ["model.optimizer.class_path=torch.optim.SGD", "model.optimizer.lr=[1e30, 1e-2]"]
    wanted = study(overrides=[*rates, "seeds=1", *RELU]).runs()
    execute(wanted, tmp_path, stacked=engine == "stacked")
    wild, calm = (result(tmp_path, run) for run in wanted)
    assert (wild["status"], wild["last_good_epoch"]) == (folders.DIVERGED, 0)
    assert (calm["status"], calm["last_good_epoch"]) == (folders.FINISHED, 3)
    assert metrics(tmp_path, wanted[0]).empty
    assert not metrics(tmp_path, wanted[1]).empty
    assert not folders.RunFolder(tmp_path, wanted[0]).checkpoint.exists(), "there are no good weights"


class Bomb(pl.Callback):
    """Makes the weights of every run with a high rate infinite in the second epoch, in stacks as well."""

    stackable = True

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            with torch.no_grad():
                for group in trainer.optimizers[0].param_groups:
                    if group["lr"] > 0.005:
                        for parameter in group["params"]:
                            parameter.fill_(float("inf"))


@pytest.mark.parametrize("stacked", [True, False])
def test_a_diverged_run_keeps_its_last_good_weights(study, tmp_path, monkeypatch, stacked):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    bomb = "trainer.callbacks=[{class_path: test_engines.Bomb}]"
    wanted = study(overrides=[bomb, "seeds=1", *RELU]).runs()
    execute(wanted, tmp_path, stacked)
    wild, calm = (folders.RunFolder(tmp_path, run) for run in wanted)
    assert [result(tmp_path, one.run)["status"] for one in (wild, calm)] == ["diverged", "finished"]
    assert result(tmp_path, wild.run)["last_good_epoch"] == 1
    saved = torch.load(wild.checkpoint, weights_only=True)
    assert saved["epoch"] == 0
    assert all(value.isfinite().all() for value in saved["state_dict"].values())


@pytest.mark.parametrize(("stacked", "number"), [(True, 0), (True, 1), (False, 0)])
def test_a_kill_while_runs_are_closed_loses_nothing(straight, tmp_path, monkeypatch, stacked, number):
    wanted = soi_runs(tmp_path)
    finish, calls = folders.RunFolder.finish, iter(range(number))

    def killed(self, *args, **facts):
        if next(calls, None) is None:
            raise KilledError
        finish(self, *args, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(folders.RunFolder, "finish", killed)
        with pytest.raises(KilledError):
            execute(wanted, tmp_path, stacked)
    trained = []
    execute(wanted, tmp_path, stacked, progress=lambda run, fraction: trained.append(fraction))
    if stacked:
        assert set(trained) == {1.0}, "nothing was trained again"
    assert_same(wanted, tmp_path, straight[stacked])


@pytest.mark.parametrize("stacked", [True, False])
def test_a_run_records_the_revision_of_its_data(study, tmp_path, monkeypatch, stacked):
    monkeypatch.setattr(MNISTDataModule, "revisions", {"someone/digits": "abc"})
    options = [*RELU, "seeds=1", "trainer.max_epochs=1"]
    wanted = study(overrides=options).runs()
    execute(wanted, tmp_path, stacked)
    assert [result(tmp_path, run)["revisions"] for run in wanted] == [{"someone/digits": "abc"}] * 2


def begin(wanted, folder, most):
    """Train the first stack until its first checkpoint; return the job."""
    first = packing.pack(wanted, folder, max_stack=most).jobs[0]
    with pytest.raises(KilledError):
        training.work(first, folder, kill_after(0))
    assert first.checkpoint(folder).exists()
    return first


def test_a_stack_that_has_begun_stays_as_it_was_decided(study, tmp_path):
    wanted = study().runs()
    assert packing.pack(wanted, tmp_path, max_stack=2) == packing.pack(wanted, tmp_path, max_stack=2)
    first = begin(wanted, tmp_path, most=2)
    for runs in (wanted, study(overrides=["seeds=3"]).runs()):
        jobs = packing.pack(runs, tmp_path, max_stack=4).jobs
        assert jobs[0] == first
        assert sorted(name for job in jobs for name in job.names) == sorted(run.id for run in runs)


def test_what_has_finished_changes_no_other_stack(study, tmp_path):
    wanted = study().runs()
    before = packing.pack(wanted, tmp_path, max_stack=2).jobs
    assert training.work(before[1], tmp_path, ignore)
    assert packing.pack(wanted, tmp_path, max_stack=2).jobs == [before[0], *before[2:]]


def test_a_stack_that_lost_a_member_says_so(study, tmp_path):
    begin(study().runs(), tmp_path, most=4)
    with pytest.raises(ActlabError, match="which this study no longer has"):
        packing.pack(study(overrides=["seeds=1"]).runs(), tmp_path)


def test_the_members_of_a_failed_stack_stay_alone_after_a_kill(study, tmp_path, monkeypatch):
    """With unit statistics: the stack's checkpoint was resumed, and what the members had recorded was cut."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    callbacks = "[{class_path: test_engines.FailsLate}, {class_path: actlab.callbacks.UnitStatistics}]"
    options = [f"trainer.callbacks={callbacks}", *RELU, EXACT]
    wanted = study(overrides=options).runs()
    execute(wanted, tmp_path / "straight")
    with pytest.raises(KilledError):  # in the third epoch of the second run alone
        execute(wanted, tmp_path / "killed", progress=kill_after(len(wanted) * 2 + 3 + 1))
    execute(wanted, tmp_path / "killed")
    for run in wanted:
        assert not folders.RunFolder(tmp_path / "killed", run).failure_file.exists()
        assert result(tmp_path / "killed", run).get("stack") is None
    assert_same(wanted, tmp_path / "killed", tmp_path / "straight")


class FailsLate(pl.Callback):
    """Raises in the third epoch of a stack."""

    stackable = True

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 2 and isinstance(pl_module, StackedTask):
            raise RuntimeError("no stack may pass")


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("with_config", [True, False])
def test_a_run_leaves_an_ordinary_checkpoint_that_knows_its_config(study, tmp_path, cli, stacked, with_config):
    keep = Keep(epochs=(1,), best="val/loss")
    wanted = [replace(run, keep=keep) for run in study(overrides=["model.activation=elu"]).runs()[:4]]
    execute(wanted, tmp_path, stacked)
    run = wanted[2]
    folder = tmp_path / run.id
    checkpoint = folder / "checkpoints" / "last.ckpt"
    given = ("-c", folder / "config.yaml") if with_config else ()
    outcome = cli("test", *given, "--ckpt_path", checkpoint, "--trainer.logger", "false")
    assert outcome.code == 0, outcome.err
    final = result(tmp_path, run)["summary"]["test/error"][""]["last"]
    assert float(outcome.out.split("test/error")[1].split()[1]) == counted(final)
    for path in checkpoint.parent.glob("*.ckpt"):
        task = ClassificationTask.load_from_checkpoint(path)
        assert (task.seed, task.config["model"]["init_args"]["activation"]) == (run.seed, "elu")
    assert {path.stem for path in checkpoint.parent.glob("*.ckpt")} == {"last", "best", "epoch=1"}


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("trainer.gradient_clip_val=1.0", None),
        ("trainer.devices=2", "devices"),
        ("trainer.overfit_batches=2", "overfit_batches"),
        ("trainer.precision=bf16-mixed", None),
        ("data.class_path=actlab.datamodules.MNISTDataModule", None),
        (f"trainer.callbacks=[{EARLY_STOPPING}]", "EarlyStopping does not declare"),
        ("trainer.max_epochs=2", None),
    ],
)
def test_reasons_against_stacking(study, override, word):
    run = study(overrides=[override, "trainer.accelerator=cpu"]).runs()[0]
    reason = packing.reason_against(experiments.build(run.config))
    assert reason is None if word is None else word in reason


def test_a_loss_scaler_is_a_reason_against_stacking(study, monkeypatch):
    experiment = experiments.build(study().runs()[0].config)
    monkeypatch.setattr(experiment.trainer.precision_plugin, "scaler", object(), raising=False)
    assert "scaler" in packing.reason_against(experiment)


def test_what_cannot_be_stacked_is_trained_one_by_one(study, tmp_path):
    stopping = f"trainer.callbacks=[{EARLY_STOPPING}]"
    wanted = study(overrides=[stopping, *RELU]).runs()
    plan = packing.pack(wanted, tmp_path)
    assert [len(job.runs) for job in plan.jobs] == [1] * 4
    (reason,) = plan.reasons
    assert "EarlyStopping" in reason
    execute(wanted, tmp_path)
    assert all(result(tmp_path, run)["status"] == folders.FINISHED for run in wanted)


@pytest.mark.parametrize("stacked", [True, False])
def test_updates_may_limit_a_run(study, tmp_path, stacked):
    wanted = study(overrides=["trainer.max_epochs=null", "trainer.max_steps=11", *RELU]).runs()
    execute(wanted, tmp_path, stacked)
    for run in wanted:
        assert result(tmp_path, run)["updates"] == 11
        assert metrics(tmp_path, run)["step"].max() == 11


@pytest.mark.parametrize(("seeds", "most", "sizes"), [(2, 2, {2}), (8, 3, {2, 3})])
def test_the_user_may_limit_the_size(study, tmp_path, seeds, most, sizes):
    jobs = packing.pack(study(overrides=[f"seeds={seeds}"]).runs(), tmp_path, max_stack=most).jobs
    assert {len(job.runs) for job in jobs} <= sizes


def test_two_processes_share_the_runs_of_a_study(study, tmp_path):
    wanted = [run for run in study().runs() if run.point["model.activation"] == "relu"]
    jobs = packing.pack(wanted, tmp_path).jobs
    with holding(tmp_path, [jobs[0].runs[0].id]) as held:
        assert held
        over = [training.work(job, tmp_path, ignore) for job in jobs]
    assert over == [job != jobs[0] for job in jobs]
    assert [folders.RunFolder(tmp_path, run).finished for run in wanted] == [
        run not in jobs[0].runs for run in wanted
    ]
    execute(wanted, tmp_path)
    assert all(folders.RunFolder(tmp_path, run).finished for run in wanted)


class Statistic(pl.Callback):
    """Logs a number of its own, in stacks as well."""

    stackable = True

    def on_train_epoch_end(self, trainer, pl_module):
        networks = pl_module.network
        if isinstance(pl_module, StackedTask):
            norms = torch.stack(
                [sum(v.square().sum() for v in networks.member_state(r).values()) for r in range(networks.size)]
            )
        else:
            norms = sum(v.square().sum() for v in networks.state_dict().values())
        pl_module.log_dict({"weights/norm": norms, "my_score": 2 * norms})


def test_what_callbacks_log_reaches_the_run_folder(study, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    callbacks = "trainer.callbacks=[{class_path: test_engines.Statistic}]"
    wanted = study(overrides=[callbacks, *RELU, EXACT]).runs()
    execute(wanted, tmp_path / "one", stacked=False)
    execute(wanted, tmp_path / "stack")
    assert "stack" in result(tmp_path / "stack", wanted[0])
    for run in wanted:
        one, many = metrics(tmp_path / "one", run), metrics(tmp_path / "stack", run)
        own = one[one["metric"].isin(["norm", "my_score"])]
        assert own.groupby(["split", "metric"]).size().to_dict() == {
            ("", "my_score"): 3,
            ("weights", "norm"): 3,
        }
        assert one["value"].to_numpy() == pytest.approx(many["value"].to_numpy(), rel=ROUNDED)


def test_trainers_of_finished_runs_are_released(study, tmp_path):
    wanted = study(overrides=["model.activation=relu", "trainer.max_epochs=1"]).runs()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    seen = []

    def count(run, fraction):
        seen.append(run)
        trainers = [o for o in gc.get_objects() if type(o) is pl.Trainer]
        alive.update(o for o in trainers if str(tmp_path) in o.default_root_dir)

    execute(wanted[:4], tmp_path, stacked=False, progress=count)
    assert seen
    assert len(alive) == 0
