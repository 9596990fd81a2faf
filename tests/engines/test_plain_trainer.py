"""Modules and data of other libraries: a fit and a study equal a plain Trainer, stopped or not."""

import json
import signal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch

from actlab.callbacks import SeedEveryEpoch, TestEveryEpoch
from actlab.errors import ActlabError
from programs.line_logger import LineLogger
from toys import QUIET, SIX, Frames, FrameTask, fitted, six

# Shuffles of evaluations draw, too: training must not depend on them.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.* sampler has shuffling enabled", "ignore:.*many workers"
)
SLOPE = "./random_parts.py:RandomSlope"
CALLBACKS = ["random_parts.SwapForTest", "actlab.callbacks.TestEveryEpoch", "random_parts.StopOnce"]
BASE: dict[str, Any] = {
    "model": {
        "class_path": "random_parts.RandomModule",
        "init_args": {
            "net": {"class_path": "random_parts.Layers", "init_args": {"activation": "relu"}}
        },
    },
    "data": {"class_path": "random_parts.RandomData", "init_args": {"workers": 1}},
    "trainer": {"max_epochs": 4, "accelerator": "cpu", "log_every_n_steps": 1},
}
BASE["trainer"]["callbacks"] = [{"class_path": name} for name in CALLBACKS]
STUDY = "base: base.yaml\ngrid: {%s: [%s]}\nseeds: [3]\n"
LOGGED = {  # by each module in each epoch
    "RandomModule": "order train_loss val_loss val_rows test_loss test_rows_epoch/dataloader_idx_0 "
    "test_rows_epoch/dataloader_idx_1",
    "Partials": "train/loss val/loss val/acc",
    "GAN": "g_loss d_loss val_mse",
    "Segmenter": "train/iou train/f1 val0/iou val0/f1 val1/iou val1/f1",
    "VAE": " ".join(
        f"{s}/{m}" for s in ("train", "val", "test") for m in ("loss", "reconstruction_mse", "kl")
    ),
    "Forecaster": "train_loss val_loss",
    "Tagger": "train_loss_epoch val_loss val_accuracy",
}
QUICK = ("Partials",)  # other tests train the RandomModule in scripts and in a study
OFF = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}


@pytest.fixture
def here(program, tmp_path, monkeypatch):
    for name in ("random_parts", "six_modules", "line_logger"):
        program(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("base.yaml").write_text(json.dumps(BASE))
    return import_module("random_parts")


def seeded():
    pl.seed_everything(3, workers=True, verbose=False)


def plain(parts, *callbacks, workers=1, persistent=False, module=None, **options):
    """A Trainer that has trained the module of `random_parts`, or another on its data."""
    module = module or parts.RandomModule
    data = partial(parts.RandomData, workers, persistent)
    return trained(data, lambda: module(parts.Layers()), *callbacks, **options)


def trained(data, module, *callbacks, resumed=None, **options):
    """A Trainer that has trained, as the docstring of `SeedEveryEpoch` says."""
    seeded()
    data = data()
    seeded()
    module = module()
    options = {"max_epochs": 4, "logger": False, "accelerator": "cpu", **OFF, **options}
    trainer = pl.Trainer(callbacks=[SeedEveryEpoch(3), *callbacks], **options)
    seeded()
    trainer.fit(module, datamodule=data, ckpt_path=resumed)
    return trainer


def built(part):
    """A section of a config as a script builds it; optimisers and schedules are partials."""
    if not isinstance(part, dict):
        return part
    room, _, name = part["class_path"].rpartition(".")
    arguments = {key: built(value) for key, value in part.get("init_args", {}).items()}
    maker = partial(getattr(import_module(room), name), **arguments)
    return maker if room.startswith("torch.optim") else maker()


def steps(path):
    """Each value that a logger got, the last one at a step, with the epoch."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    rows = [(line[0], line[1]) for line in lines if isinstance(line, list)]
    return {
        (step, row.get("epoch"), name): value for step, row in rows for name, value in row.items()
    }


def logged(path):
    """The last value of each metric in each epoch, counted from 1."""
    found: dict[int, dict[str, float]] = {}
    for line in map(json.loads, Path(path).read_text().splitlines()):
        if isinstance(line, list) and "epoch" in line[1]:  # others are of steps
            found.setdefault(int(line[1].pop("epoch")) + 1, {}).update(line[1])
    return {epoch: without_steps(row) for epoch, row in found.items()}


def recorded(root):
    """What the runs of a study recorded, as `logged` does, by activation."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for path in Path(root).glob("*/metrics.parquet"):
        run = found.setdefault(path.parent.name.partition("-")[0], {})
        for row in pd.read_parquet(path).to_dict("records"):
            name = f"{row['split']}/{row['metric']}".removeprefix("/")
            run.setdefault(int(row["epoch"]), {})[name] = row["value"]
    return {name: {e: without_steps(row) for e, row in run.items()} for name, run in found.items()}


def without_steps(row):
    """The values of whole epochs, once: callbacks get ``test_rows`` and ``test_rows_epoch``."""
    twice = {name.replace("_epoch", "") for name in row if "_epoch" in name}
    return {name: value for name, value in row.items() if "_step" not in name and name not in twice}


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LOGGED]
)
def test_every_way_of_training_gives_what_a_plain_trainer_gives(here, cli, succeed, name):
    """A fit logs the same at each step. A study records the epoch's value, or the last batch's."""
    parts, key = six(name) if name in SIX else (BASE, "model.net.activation")
    Path("base.yaml").write_text(json.dumps(BASE | parts))
    data, module = (partial(built, parts[section]) for section in ("data", "model"))
    options = {key: value for key, value in BASE["trainer"].items() if key != "callbacks"}
    trained(
        data, module, here.SwapForTest(), TestEveryEpoch(), logger=LineLogger("plain"), **options
    )
    whole_steps, right = steps("plain/lines.jsonl"), logged("plain/lines.jsonl")
    assert [*right] == [1, 2, 3, 4]
    assert all({*row} == {*LOGGED[name].split()} for row in right.values())

    last = json.dumps({"class_path": "ModelCheckpoint", "init_args": {"filename": "last"}})
    words = ["fit", "-c", "base.yaml", "--seed_everything=3", f"--trainer.callbacks+={last}"]
    words += ["--trainer.enable_progress_bar=false", "--trainer.logger=line_logger.LineLogger"]
    succeed(*words, "--trainer.default_root_dir=whole")
    (whole,) = Path("whole").glob("*/lines.jsonl")
    assert steps(whole) == whole_steps
    Path("stop").touch()
    assert cli(*words, "--trainer.default_root_dir=cut").code == 128 + signal.SIGTERM
    (checkpoint,) = Path("cut").glob("*/checkpoints/last.ckpt")
    succeed(*words, "--trainer.default_root_dir=cut", "--ckpt_path", checkpoint)
    (cut,) = Path("cut").glob("*/lines.jsonl")
    assert steps(cut) == whole_steps

    for root, code in (("whole", 0), ("cut", 128 + signal.SIGTERM)):
        Path(f"{root}.yaml").write_text(STUDY % (key, "relu"))
        if code:
            Path("stop").touch()
        words = ["study", "run", f"{root}.yaml", "--jobs", "0"]
        assert cli(*words).code == code
    succeed(*words)
    for root in ("whole", "cut"):
        assert [*recorded(f"runs/{root}").values()] == [right]


def test_activations_that_draw_when_they_are_built_see_the_same_data(here, succeed):
    Path("pair.yaml").write_text(STUDY % ("model.net.activation", f'relu, soi, "{SLOPE}"'))
    outcome = succeed("study", "run", "pair.yaml", "--jobs", "0", "--set", "data.workers=0")
    assert "costs are not measured: only a Trainer can run an update of RandomModule" in outcome.out
    found = recorded("runs/pair")
    assert len(found) == 3
    runs = [[*run.values()] for run in found.values()]
    val, train = ([[row[name] for row in run] for run in runs] for name in ("val_rows", "order"))
    assert val == [pytest.approx(val[0])] * 3  # in another order
    assert train == [train[0]] * 3
    assert len(set(train[0])) == 4


def test_tests_of_each_epoch_change_nothing_and_equal_a_test_afterwards(here):
    saved, saved_too = (
        pl.callbacks.ModelCheckpoint(name, monitor="val_loss") for name in ("one", "two")
    )
    trainers = [
        plain(here, *callbacks, workers=0, enable_checkpointing=True)
        for callbacks in ([saved], [saved_too, TestEveryEpoch()])
    ]
    one, other = (trainer.lightning_module.state_dict() for trainer in trainers)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert saved.best_model_score == saved_too.best_model_score
    assert trainers[0].global_step == trainers[1].global_step
    names = {"test_loss", "test_rows_epoch/dataloader_idx_0", "test_rows_epoch/dataloader_idx_1"}
    during = {name: float(trainers[1].callback_metrics[name]) for name in names}
    seeded()
    first, second = trainers[0].test(
        trainers[0].lightning_module, trainers[0].datamodule, verbose=False
    )
    assert {name: {**first, **second}[name] for name in names} == during


def test_what_cannot_be_tested_is_one_line(here, monkeypatch):
    message = r"setup\('test'\) of ReplacedForTest replaces the parameter net\.0\.weight"
    with pytest.raises(ActlabError, match=message):
        plain(here, TestEveryEpoch(), workers=0, module=here.ReplacedForTest)
    monkeypatch.setattr(here.RandomData, "test_dataloader", pl.LightningDataModule.test_dataloader)
    message = "TestEveryEpoch requires a test set, but RandomData has no test_dataloader"
    with pytest.raises(ActlabError, match=message):
        plain(here, TestEveryEpoch(), workers=0)


class EndsEarly(pl.Callback):
    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = trainer.current_epoch == 1


@pytest.mark.parametrize("how", ["epochs", "steps"])
def test_a_resume_in_a_script_equals_a_training_without_a_stop(here, capsys, how):
    """Also where updates are counted; workers that persist are named, because theirs differ."""
    length = {"max_epochs": 3} if how == "epochs" else {"max_epochs": -1, "max_steps": 12}
    length |= {"workers": 0, "enable_checkpointing": True}
    last = pl.callbacks.ModelCheckpoint(
        ".", "last", save_on_train_epoch_end=True, enable_version_counter=False
    )
    whole = plain(here, **length)
    plain(here, EndsEarly(), last, **length)
    assert not capsys.readouterr().out
    plain(here, last, resumed="last.ckpt", persistent=True, **{**length, "workers": 1})
    assert (
        "note: no resume restores the random numbers of persistent workers"
        in capsys.readouterr().out
    )
    Path("last.ckpt").unlink()
    plain(here, EndsEarly(), last, **length)
    resumed = plain(here, last, resumed="last.ckpt", **length)
    assert resumed.callback_metrics == whole.callback_metrics
    assert not capsys.readouterr().out


def test_hooks_of_others_are_called_where_a_task_is_tested(here, tmp_path):
    """A callback swaps weights for tests; without callbacks only the task's steps test it."""
    task, data = FrameTask(), Frames()
    trainer = fitted(task, data, tmp_path, here.SwapForTest(), TestEveryEpoch(), max_epochs=1)
    during = float(trainer.callback_metrics["test/loss"])
    assert trainer.test(task, data, verbose=False)[0]["test/loss"] == during
    without = pl.Trainer(**{**QUIET, "precision": "64-true"}).test(task, data, verbose=False)
    assert without[0]["test/loss"] != during
