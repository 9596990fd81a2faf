"""A config becomes Trainer, task and data, whether these are actlab's classes or a user's own."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.accelerators import CPUAccelerator

from actlab.config.messages import one_line_errors
from actlab.config.resolved import run_seed
from actlab.errors import ActlabError
from actlab.experiments import build, check_shape, shape_for
from actlab.stacking.building import build_tasks
from actlab.studies import reading
from actlab.tasks import ClassificationTask

OURS, SHAPES = "actlab.tasks.ClassificationTask", {"num_classes": 4, "input_shape": [7]}
NEEDS, SHAPED = "lightning_classes.Needs", "lightning_classes.Shaped"
MNIST = {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": {"sample": True}}
QUIET = [
    *("--trainer.logger", "false", "--trainer.enable_progress_bar", "false"),
    *("--trainer.max_epochs", "1", "--trainer.default_root_dir", "out"),
]


@pytest.fixture(autouse=True)
def _theirs(program, tmp_path, monkeypatch):
    program("lightning_classes")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)


def config_of(model, data="lightning_classes.Data", **arguments):
    data = data if isinstance(data, dict) else {"class_path": data}
    return {
        "seed_everything": 3,
        "model": {"class_path": model, "init_args": arguments},
        "data": data,
    }


@pytest.mark.parametrize(
    "data", [MNIST, {"class_path": "lightning_classes.Data"}], ids=["our data", "their data"]
)
@pytest.mark.parametrize("model", [OURS, "lightning_classes.Model"], ids=["our task", "their task"])
def test_every_pair_trains_and_its_config_runs_again(cli, model, data, tmp_path):
    given = SHAPES if model == OURS and data != MNIST else {}
    config = {**config_of(model, data, **given), "trainer": {"limit_train_batches": 2}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    cli("fit", "-c", "config.yaml", *QUIET).succeeded()
    (folder,) = (tmp_path / "out").iterdir()
    resolved = yaml.safe_load((folder / "config.yaml").read_text())
    assert {name: resolved["model"]["init_args"].get(name) for name in given} == given
    (checkpoint,) = (folder / "checkpoints").glob("*.ckpt")
    for words in (["--trust"], ["-c", folder / "config.yaml"]):
        out = cli("test", *words, "--ckpt_path", checkpoint).succeeded()
        assert "test/loss" in out


def test_shapes_and_seed_reach_a_users_classes():
    experiment: Any = build(config_of(NEEDS, SHAPED))
    assert experiment.task.told == (4, (7,), 3)
    assert experiment.data.told == 3


def test_a_users_hyperparameters_come_back_from_the_checkpoint(cli, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config_of(NEEDS, SHAPED)))
    assert cli("fit", "-c", "config.yaml", *QUIET).code == 0
    (checkpoint,) = tmp_path.glob("out/*/checkpoints/*.ckpt")
    kind = import_module("lightning_classes").Needs
    kept = {"num_classes": 4, "input_shape": (7,), "seed": 3}
    assert dict(kind.load_from_checkpoint(checkpoint).hparams) == kept
    config = checkpoint.parents[1] / "config.yaml"
    for given in (["--trust"], ["-c", config]):
        cli("test", *given, "--ckpt_path", checkpoint).succeeded()
    model = ("--model", "lightning_classes.Needs", "--model.num_classes", "5")
    outcome = cli(
        "test", "--trust", *model, "--data", "lightning_classes.Data", "--ckpt_path", checkpoint
    )
    assert "model.num_classes: expected " in outcome.rejection
    assert ", got 5." in outcome.rejection


def test_a_value_of_the_config_or_a_default_counts_where_the_data_has_none():
    assert build(config_of("lightning_classes.Needs", **SHAPES)).task.told == (4, (7,), 3)
    assert build(config_of("lightning_classes.HasDefault", num_classes=6)).task.told == 6
    assert build(config_of("lightning_classes.HasDefault")).task.told == 4
    assert build(config_of("lightning_classes.HasDefault", MNIST)).task.told == 10


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (config_of(OURS), ["Data has no num_classes", "Set model.num_classes"]),
        (config_of(OURS, num_classes=4), ["Data has no input_shape", "Set model.input_shape"]),
        (
            config_of(OURS, "lightning_classes.NotYet"),
            ["NotYet has no num_classes", "Set model.num_classes"],
        ),
        (
            config_of("lightning_classes.Needs"),
            ["Data has no num_classes", "Set model.num_classes"],
        ),
        (config_of(OURS, MNIST, num_classes=4), ["model.num_classes: expected 10", "got 4"]),
        (
            config_of(OURS, SHAPED, input_shape=[8]),
            ["model.input_shape: expected [7]", "got [8]"],
        ),
        (config_of(OURS, MNIST, seed=4), ["model.seed", "seed_everything"]),
        (
            config_of("lightning_classes.Model", widht=4),
            ["'model.widht'", "'model.width'", "classes.Model"],
        ),
        (config_of(OURS, MNIST, activation="gleu"), ["'gleu'", "'gelu'"]),
        ({**config_of(OURS, MNIST), "trainer": {"strategy": "nonsense"}}, ["trainer", "nonsense"]),
        (
            {**config_of(OURS, MNIST), "seed_everything": True},
            ["seed_everything: expected", "got True"],
        ),
    ],
)
def test_contradictory_and_missing_values_are_rejected(config, parts):
    with pytest.raises(ActlabError) as error:
        build(config)
    assert all(part in str(error.value) for part in parts)


def test_shapes_given_twice_and_empty_keys_of_a_resolved_config_are_no_mistakes():
    config = config_of(OURS, MNIST, num_classes=10, input_shape=[1, 28, 28])
    config |= {"ckpt_path": None, "optimizer": None, "lr_scheduler": None}
    before = yaml.safe_dump(config)
    built = build(config)
    assert yaml.safe_dump(config) == before
    assert built.task.network[-1].out_features == 10
    assert (built.trainer.logger, built.trainer.progress_bar_callback) == (None, None)


@pytest.mark.parametrize(
    ("given", "devices"), [({}, 1), ({"devices": "auto"}, 2), ({"devices": 2}, 2)]
)
def test_a_run_takes_one_device_unless_its_config_says_otherwise(monkeypatch, given, devices):
    """A study on a machine with several has one process for each."""
    monkeypatch.setattr(CPUAccelerator, "auto_device_count", staticmethod(lambda: 2))
    config = {**config_of(OURS, MNIST), "trainer": {"accelerator": "cpu", **given}}
    assert build(config).trainer.world_size == devices


def test_shapes_of_a_model_that_does_not_take_them_are_not_read():
    class Data(pl.LightningDataModule):
        @property
        def num_classes(self):
            raise AssertionError("read")

    assert shape_for(torch.nn.Module, {}, "num_classes", Data()) is None
    with pytest.raises(AssertionError):
        shape_for(ClassificationTask, {"num_classes": 10}, "num_classes", Data())


def test_equal_shapes_of_any_kind_of_sequence():
    class Data(pl.LightningDataModule):
        input_shape: Any

    for Data.input_shape in ((1, 28), [1, 28], torch.Size([1, 28]), None):
        check_shape("input_shape", [1, 28], Data())


def test_invalid_seeds_are_rejected():
    for value in (True, False, -1, 2**32):
        with pytest.raises(ActlabError, match=str(value)):
            run_seed(value)


class RefusingNetwork(torch.nn.Module):
    def __init__(self, act, num_classes, input_shape):
        raise AttributeError("no luck")


@pytest.mark.parametrize("section", ["model", "data"])
@pytest.mark.parametrize("value", [1, [], [1]])
def test_sections_that_are_no_mapping_are_rejected(section, value):
    config = {
        "model": {"class_path": "actlab.tasks.ClassificationTask"},
        "data": {"class_path": "a.B"},
    }
    with pytest.raises(ActlabError, match=section):
        build({**config, section: value})


def test_what_a_users_constructor_raises_is_one_line_with_its_class():
    config = config_of(OURS, MNIST, network=f"{__name__}.RefusingNetwork", activation="relu")
    with pytest.raises(
        ActlabError, match="ClassificationTask → RefusingNetwork → AttributeError: no luck"
    ):
        build(config)


def test_errors_of_a_users_code_are_left_alone():
    with pytest.raises(ValueError, match="theirs"), one_line_errors():
        raise ValueError("theirs")


def test_members_are_built_like_runs_of_their_own(tmp_path):
    study = tmp_path / "grid.yaml"
    study.write_text(
        "base: mnist_classifier\nset: {data.sample: true, model.network.hidden: [8]}\n"
        "grid: {model.activation: [relu, {name: elu, alpha: 2.0}], "
        "model.optimizer.lr: [1e-2, 0.1]}\nseeds: 2\n"
    )
    runs = reading.load(str(study)).runs()
    tasks = list(build_tasks([run.config for run in runs], build(runs[0].config)))
    for run, task in zip(runs, tasks, strict=True):
        alone = build(run.config).task
        assert task.config == alone.config
        assert task.seed == alone.seed == run.seed
        assert type(task.activations[0]) is type(alone.activations[0])
        assert (
            task.optimizer(task.parameters()).defaults
            == alone.optimizer(alone.parameters()).defaults
        )
        for mine, theirs in zip(task.parameters(), alone.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_a_run_is_built_by_few_calls():
    """Nested values are walked once, and an activation's signature is read once for all sites."""
    run = reading.load("demo").runs()[0]
    build(run.config)  # parses and imports
    calls: list[str] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "/actlab/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        build(run.config)
    finally:
        sys.setprofile(None)
    assert 100 < len(calls) < 750


BATCHES = {"plain": 5, "pair": 12, "shortest": 5, "longest": 12, "kept": 6, "epoch": 3, "module": 5}


@pytest.mark.parametrize(
    ("kind", "limit", "expected"),
    [
        *((kind, None, batches) for kind, batches in BATCHES.items()),
        ("rows", None, None),
        ("rows and points", None, None),
        ("pair", 4, 4),
        ("pair", 0.5, 6),
        ("kept", 4, 4),
        ("plain", 0.5, 2),
    ],
)
def test_batches_are_counted_as_a_trainer_counts_them(kind, limit, expected, program):
    program("asking_loaders")
    trainer = {} if limit is None else {"limit_train_batches": limit}
    config = config_of("asking_loaders.Line") | {
        "data": {"class_path": "asking_loaders.Data", "init_args": {"kind": kind}},
        "trainer": {**trainer, "max_epochs": 1},
    }
    assert build(config).updates_per_epoch() == expected

    fitted = build(config)
    fitted.trainer.fit(fitted.task, datamodule=fitted.data)
    assert fitted.trainer.num_training_batches == (float("inf") if expected is None else expected)


def test_loaders_that_ask_their_trainer_train_in_a_study(cli, program):
    program("asking_loaders")
    base = config_of("asking_loaders.Line", "asking_loaders.Data")
    base["trainer"] = {"max_epochs": 2, "reload_dataloaders_every_n_epochs": 1}
    Path("base.yaml").write_text(yaml.safe_dump(base))
    kinds = ["longest", "epoch", "module", "plain"]
    study = {
        "base": "base.yaml",
        "grid": {"data.kind": kinds},
        "seeds": 1,
        "table": [{"metric": "val/loss"}],
    }
    Path("own.yaml").write_text(yaml.safe_dump(study))
    assert "4 of 4 runs finished." in cli("study", "run", "own.yaml", "--jobs", "0").succeeded()
