"""The engines: identical folders, divergence, begun stacks, and what cannot be stacked."""

import gc
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from actlab import experiments
from actlab.checks import forms
from actlab.datamodules import MNISTDataModule
from actlab.engines import packing, training
from actlab.errors import ActlabError
from actlab.stacking import StackedTask
from actlab.storage.files import DamagedError
from actlab.studies.locks import holding
from actlab.studies.plan import MAX_STACK, Keep
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import DIVERGED, FINISHED
from actlab.tasks import ClassificationTask
from tiny_study import (
    RELU,
    TWO,
    KilledError,
    assert_same,
    execute,
    kill_after,
    load,
    metrics,
    result,
    shown_by,
    untried,
)
from tolerances import EXACT, counted

DROPOUT = "model.network.dropout"

EARLY_STOPPING = (
    "{class_path: pytorch_lightning.callbacks.EarlyStopping, "
    "init_args: {monitor: val/loss, patience: 9}}"
)


@pytest.fixture
def study(tmp_path):
    return partial(load, tmp_path)


class Statistic(pl.Callback):
    """Logs a number of its own, in stacks as well."""

    stackable = True

    def on_train_epoch_end(self, trainer, pl_module):
        networks = pl_module.network
        if isinstance(pl_module, StackedTask):
            norms = torch.stack(
                [
                    sum(v.square().sum() for v in networks.member_state(r).values())
                    for r in range(networks.size)
                ]
            )
        else:
            norms = sum(v.square().sum() for v in networks.state_dict().values())
        pl_module.log_dict({"weights/norm": norms, "my_score": 2 * norms})


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Runs of ReLU, and of SOI with dropout, that each engine has trained in a folder of its name.

    In float64, where no rounding flips a mask of SOI.
    """
    callbacks = [
        f"{{class_path: {path}}}"
        for path in (f"{__name__}.Statistic", "actlab.callbacks.TestEveryEpoch")
    ]
    options = [EXACT, "trainer.max_epochs=2", f"trainer.callbacks=[{', '.join(callbacks)}]"]
    folder, keep = tmp_path_factory.mktemp("both"), Keep(epochs=(1,), best="val/loss")
    study = load(folder, overrides=[*options, "model.optimizer.lr=0.01"])
    kinds = {"relu": 0.0, "soi": 0.3}
    runs = [
        run for run in study.runs() if kinds[run.point["model.activation"]] == run.point[DROPOUT]
    ]
    runs = [replace(run, keep=keep) for run in runs]
    with untried(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(MNISTDataModule, "revisions", {"someone/digits": "abc"})
        plan = packing.pack(runs, folder / "stacked")
        assert not plan.reasons
        assert [len(job.runs) for job in plan.jobs] == [2, 2]
        for engine in ("sequential", "stacked"):
            execute(runs, folder / engine, stacked=engine == "stacked")
    return runs, folder


def test_engines_leave_the_same_folders_rows_errors_and_weights(both):
    runs, folder = both
    for run in runs:
        one, many = (metrics(folder / engine, run) for engine in ("sequential", "stacked"))
        assert list(one.columns) == ["epoch", "step", "split", "metric", "condition", "value"]
        assert set(one["condition"]) == {""}
        joined = one.merge(many, on=["epoch", "step", "split", "metric"], validate="1:1")
        assert len(joined) == len(one) == len(many)
        errors = joined["metric"] == "error"
        # A run alone keeps its means in float32; of 1,000 images one error more would be 1e-3.
        assert (joined["value_x"] - joined["value_y"])[errors].abs().max() < 1e-6
        assert (
            (joined["value_x"] - joined["value_y"]).abs() / joined["value_x"].abs()
        ).max() < 1e-6
        last = (
            folder / engine / run.id / "checkpoints/last.ckpt"
            for engine in ("sequential", "stacked")
        )
        alone, stacked = (torch.load(file, weights_only=True)["state_dict"] for file in last)
        assert alone.keys() == stacked.keys()
        for name, value in alone.items():
            assert torch.allclose(value, stacked[name], rtol=1e-8, atol=1e-10), name
        assert {p.name for p in (folder / "sequential" / run.id).iterdir()} == {
            p.name for p in (folder / "stacked" / run.id).iterdir()
        }
        own, ours = (result(folder / engine, run) for engine in ("sequential", "stacked"))
        assert (ours["status"], ours["last_good_epoch"], ours["updates"]) == ("finished", 2, 16)
        assert ours.keys() - {"stack"} == own.keys()
        assert ours["scored"] == own["scored"] == {"val": 1000, "test": 1000}
        assert {"val/loss", "test/loss"} <= ours["sampling_errors"].keys()
        assert ours["sampling_errors"] == pytest.approx(own["sampling_errors"], rel=1e-8)
        assert ours["revisions"] == own["revisions"] == {"someone/digits": "abc"}


def test_validation_is_three_times_an_epoch_and_test_once(both):
    runs, folder = both
    rows = metrics(folder / "sequential", runs[0])
    steps = rows[rows["metric"] == "loss"].groupby("split")["step"].apply(list)
    assert steps["val"] == [2, 4, 6, 8, 10, 12, 14, 16]  # int(8 · 0.334) = 2
    assert steps["test"] == steps["train"] == [8, 16]
    assert rows["epoch"].max() == 2


def test_without_randomness_clean_and_training_loss_are_one_number(both):
    runs, folder = both
    for run in runs:
        rows = metrics(folder / "sequential", run)
        clean = rows[rows["metric"] == "clean_loss"]["value"].to_numpy()
        training = rows[(rows["metric"] == "loss") & (rows["split"] == "train")]["value"].to_numpy()
        assert (clean == training).all() == (run.point["model.activation"] == "relu")


def test_what_callbacks_log_reaches_the_run_folder(both):
    """As engines leave the same rows, those of one say enough."""
    runs, folder = both
    rows = metrics(folder / "stacked", runs[1])
    own = rows[rows["metric"].isin(["norm", "my_score"])]
    assert own.groupby(["split", "metric"]).size().to_dict() == {
        ("", "my_score"): 2,
        ("weights", "norm"): 2,
    }


@pytest.mark.parametrize(
    ("engine", "with_config"), [("sequential", False), ("stacked", False), ("stacked", True)]
)
def test_a_run_leaves_an_ordinary_checkpoint_that_knows_its_config(
    both, succeed, engine, with_config
):
    runs, folder = both
    run = runs[1]
    checkpoint = folder / engine / run.id / "checkpoints" / "last.ckpt"
    given = ("-c", folder / engine / run.id / "config.yaml") if with_config else ()
    outcome = succeed("test", *given, "--ckpt_path", checkpoint, "--trainer.logger", "false")
    final = result(folder / engine, run)["summary"]["test/error"][""]["last"]
    assert float(outcome.out.split("test/error")[1].split()[1]) == counted(final)
    for path in checkpoint.parent.glob("*.ckpt"):
        task = ClassificationTask.load_from_checkpoint(path)
        assert (task.seed, task.config["model"]["init_args"]["activation"]) == (run.seed, "relu")
    assert {path.stem for path in checkpoint.parent.glob("*.ckpt")} == {"last", "best", "epoch=1"}


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_run_that_diverges_is_recorded_and_the_study_goes_on(study, tmp_path, engine):
    rates = ["model.optimizer.class_path=torch.optim.SGD", "model.optimizer.lr=[1e30, 1e-2]"]
    wanted = study(overrides=[*rates, "seeds=1", "trainer.max_epochs=2", *RELU]).runs()
    execute(wanted, tmp_path, stacked=engine == "stacked")
    wild, calm = (result(tmp_path, run) for run in wanted)
    assert (wild["status"], wild["last_good_epoch"]) == (DIVERGED, 0)
    assert (calm["status"], calm["last_good_epoch"]) == (FINISHED, 2)
    assert metrics(tmp_path, wanted[0]).empty
    assert not metrics(tmp_path, wanted[1]).empty
    assert not RunFolder(tmp_path, wanted[0]).checkpoint.exists(), "there are no good weights"


class Bomb(pl.Callback):
    """Makes the weights of each run with a high rate infinite in epoch two, in stacks as well."""

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
    wanted = study(overrides=[bomb, "seeds=1", "trainer.max_epochs=2", *RELU]).runs()
    execute(wanted, tmp_path, stacked)
    wild, calm = (RunFolder(tmp_path, run) for run in wanted)
    assert [result(tmp_path, one.run)["status"] for one in (wild, calm)] == ["diverged", "finished"]
    assert result(tmp_path, wild.run)["last_good_epoch"] == 1
    saved = torch.load(wild.checkpoint, weights_only=True)
    assert saved["epoch"] == 0
    assert 2 * saved["global_step"] == result(tmp_path, wild.run)["updates"], "of the first epoch"
    assert all(value.isfinite().all() for value in saved["state_dict"].values())


def begin(wanted, folder, most):
    """Train the first stack until its first checkpoint, and return the job."""
    first = packing.pack(wanted, folder, max_stack=most).jobs[0]
    with pytest.raises(KilledError), shown_by(kill_after(0)):
        training.work(first, folder)
    assert first.checkpoint(folder).exists()
    return first


def test_a_stack_that_has_begun_stays_as_it_was_decided(study, tmp_path):
    wanted = study(overrides=RELU).runs()
    assert packing.pack(wanted, tmp_path, max_stack=2) == packing.pack(
        wanted, tmp_path, max_stack=2
    )
    first = begin(wanted, tmp_path, most=2)
    for runs in (wanted, study(overrides=[*RELU, "seeds=3"]).runs()):
        jobs = packing.pack(runs, tmp_path, max_stack=4).jobs
        assert jobs[0] == first
        assert sorted(name for job in jobs for name in job.names) == sorted(run.id for run in runs)


def test_what_has_not_finished_is_packed_again(study, tmp_path):
    wanted = study(overrides=[*RELU, "seeds=3", "trainer.max_epochs=1"]).runs()
    before = packing.pack(wanted, tmp_path, max_stack=2).jobs
    assert len(before) == 3
    assert training.work(before[1], tmp_path)
    left = {name for job in packing.pack(wanted, tmp_path, max_stack=2).jobs for name in job.names}
    assert left == {run.id for run in wanted} - {*before[1].names}


def test_a_stack_that_lost_a_member_or_whose_record_has_another_says_so(study, tmp_path):
    first = begin(wanted := study(overrides=RELU).runs(), tmp_path, most=4)
    with pytest.raises(ActlabError, match="which this study no longer has"):
        packing.pack(study(overrides=[*RELU, "seeds=1"]).runs(), tmp_path)
    record = first.folder(tmp_path) / "members.json"
    record.write_text(record.read_text().replace(first.names[1], f"{first.names[1]}l"))
    with pytest.raises(
        DamagedError, match=r"members\.json is damaged .* Its runs then start from scratch\."
    ):
        packing.pack(wanted, tmp_path)


def test_the_members_of_a_failed_stack_are_trained_alone_also_after_a_kill(
    study, tmp_path, monkeypatch
):
    """With unit statistics, which begin from scratch as the members do."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    callbacks = (
        "[{class_path: test_engines.FailsLate}, {class_path: actlab.callbacks.UnitStatistics}]"
    )
    wanted = study(overrides=[f"trainer.callbacks={callbacks}", *TWO]).runs()
    execute(wanted, tmp_path / "straight", most=1)
    with pytest.raises(KilledError):  # in the third epoch of the second run alone
        execute(wanted, tmp_path / "killed", progress=kill_after(len(wanted) * 2 + 3 + 1))
    execute(wanted, tmp_path / "killed")
    for run in wanted:
        assert not RunFolder(tmp_path / "killed", run).failure_file.exists()
        assert result(tmp_path / "killed", run)["stack"]["size"] == 1
    assert_same(wanted, tmp_path / "killed", tmp_path / "straight")


class FailsLate(pl.Callback):
    """Raises in the third epoch of a stack."""

    stackable = True

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 2 and len(pl_module.members) > 1:
            raise RuntimeError("no stack may pass")


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
    reason = forms.reason_against(experiments.build(run.config))
    assert reason is None if word is None else word in reason


def test_a_loss_scaler_is_a_reason_against_stacking(study, monkeypatch):
    experiment = experiments.build(study().runs()[0].config)
    monkeypatch.setattr(experiment.trainer.precision_plugin, "scaler", object(), raising=False)
    assert "scaler" in forms.reason_against(experiment)


@pytest.mark.parametrize("stacked", [True, False])
def test_updates_may_limit_a_run(study, tmp_path, stacked):
    wanted = study(overrides=["trainer.max_epochs=null", "trainer.max_steps=11", *TWO]).runs()
    execute(wanted, tmp_path, stacked)
    for run in wanted:
        assert result(tmp_path, run)["updates"] == 11
        assert metrics(tmp_path, run)["step"].max() == 11


def test_the_user_may_limit_the_size(study, tmp_path):
    wanted = study(overrides=["seeds=3"]).runs()
    for limit, sizes in ((MAX_STACK, [6] * 4), (4, [3] * 8)):
        assert [len(job.runs) for job in packing.pack(wanted, tmp_path, limit).jobs] == sizes


def test_two_processes_share_the_runs_of_a_study(study, tmp_path):
    options = ["model.activation=relu", "model.optimizer.lr=0.01", "trainer.max_epochs=1"]
    wanted = study(overrides=options).runs()
    jobs = packing.pack(wanted, tmp_path).jobs
    assert len(jobs) == 2
    with holding(tmp_path, [jobs[0].runs[0].id]) as held:
        assert held
        over = [training.work(job, tmp_path) for job in jobs]
    assert over == [job != jobs[0] for job in jobs]
    assert [RunFolder(tmp_path, run).finished for run in wanted] == [
        run not in jobs[0].runs for run in wanted
    ]
    execute(wanted, tmp_path)
    assert all(RunFolder(tmp_path, run).finished for run in wanted)


def test_trainers_of_finished_runs_are_released(study, tmp_path):
    wanted = study(overrides=[*RELU, "trainer.max_epochs=1"]).runs()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    seen = []

    def count(run, fraction):
        seen.append(run)
        trainers = [o for o in gc.get_objects() if type(o) is pl.Trainer]
        alive.update(o for o in trainers if str(tmp_path) in o.default_root_dir)

    execute(wanted[:3], tmp_path, stacked=False, progress=count)
    assert seen
    assert len(alive) == 0
