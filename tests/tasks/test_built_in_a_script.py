"""A task built in a script and trained by a plain Trainer: its checkpoint knows the network."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torchmetrics import F1Score
from torchmetrics.classification import MulticlassF1Score

from actlab.config.arguments import UnnamedError, of_call, plain
from actlab.datamodules import MNISTDataModule
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.optim import KINDS, L2, Cosine, Linear, Plateau, Steps
from actlab.tasks import ClassificationTask, Quantity, Task
from actlab.tasks.training import Training
from toys import fitted

CONFIG = """\
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    activation: elu
    network: {class_path: actlab.networks.MLP, init_args: {hidden: [16]}}
    optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}
data: {class_path: actlab.datamodules.MNISTDataModule, init_args: {sample: true}}
trainer: {logger: false, enable_progress_bar: false}
"""
GIVEN: dict[str, Any] = {
    "activation": "elu",
    "network": partial(MLP, hidden=[16]),
    "optimizer": partial(SGD, lr=0.1),
    "num_classes": 10,
    "input_shape": [1, 28, 28],
}


QUIET = ["--trainer.enable_progress_bar", "false"]
STEEP = partial(SGD, lr=0.2)


class Deeper(ClassificationTask):
    """Calls `save_hyperparameters` itself, and has an argument of its own."""

    def __init__(self, depth: int = 1, optimizer=STEEP, seed: int = 0) -> None:
        super().__init__(network=partial(MLP, hidden=[8] * depth), optimizer=optimizer, seed=seed)
        self.save_hyperparameters()


def trained(folder: Path, task: Training) -> Path:
    data = MNISTDataModule(sample=True, seed=task.stream.seeds[0])
    limits = {"max_epochs": 1, "limit_train_batches": 2, "limit_val_batches": 1, "precision": "32-true"}
    trainer = fitted(task.train(), data, folder, **limits)
    trainer.save_checkpoint(folder / "a.ckpt")
    return folder / "a.ckpt"


def outputs(task):
    return task.eval()(torch.linspace(0, 1, 2 * 784).view(2, 1, 28, 28))


def test_it_is_rebuilt_by_its_class_and_by_the_command(cli, tmp_path):
    task = ClassificationTask(**GIVEN, seed=5)
    path = trained(tmp_path, task)
    for kind in (ClassificationTask, Task):
        loaded = kind.load_from_checkpoint(path)
        assert torch.equal(outputs(loaded), outputs(task))
        assert (loaded.seed, loaded.optimizer([nn.Parameter(torch.ones(1))]).defaults["lr"]) == (5, 0.1)
    (tmp_path / "c.yaml").write_text(CONFIG)
    expected = cli("test", "--ckpt_path", path, "-c", tmp_path / "c.yaml")
    assert expected.code == 0, expected.err
    data = ["--data", "actlab.datamodules.MNISTDataModule", "--data.sample", "true", *QUIET]
    found = cli("test", "--ckpt_path", path, *data)
    assert (found.code, found.out) == (0, expected.out), found.err
    alone = cli("test", "--ckpt_path", path)
    assert (alone.code, alone.err.count("\n")) == (2, 1)
    assert "no data is given: name its class in a config (-c FILE) or as --data CLASS" in alone.err
    other = cli("test", "--ckpt_path", path, "-c", tmp_path / "c.yaml", "--model.activation", "relu")
    assert (other.code, "model.activation is 'relu'" in other.err) == (2, True)


def test_every_argument_becomes_plain_values_and_comes_back(tmp_path):
    schedules = {"lr": Plateau("val/f1", mode="max"), "momentum": Linear(0, 3, 0.5)}
    given: dict[str, Any] = {
        **GIVEN,
        "optimizer": partial(SGD, lr=0.1, momentum=0.9),
        "schedules": schedules,
        "l2": L2(0.01, half=False, of=KINDS[:2]),
        "metrics": {"f1": F1Score(task="multiclass", num_classes=10, average="macro")},
        "training_metrics": ("error",),
        "top": 3,
    }
    task = ClassificationTask(**given)
    loaded = ClassificationTask.load_from_checkpoint(trained(tmp_path, task))
    assert loaded.schedules == schedules
    assert vars(loaded.l2) == vars(task.l2)
    assert (loaded.trained, loaded.top) == (task.trained, 3)
    (metric,) = loaded.metrics.given.values()
    assert isinstance(metric, MulticlassF1Score)
    assert (metric.num_classes, str(metric.average)) == (10, "macro")
    assert torch.equal(outputs(loaded), outputs(task))


def test_what_no_import_path_names_is_asked_for_by_name(cli, tmp_path):
    task = ClassificationTask(**{**GIVEN, "network": lambda act, k, shape: MLP(act, k, shape, hidden=[16])})
    path = trained(tmp_path, task)
    with pytest.raises(ActlabError, match=r"does not record 'network'.*load_from_checkpoint\(…, network=…\)"):
        ClassificationTask.load_from_checkpoint(path)
    loaded = ClassificationTask.load_from_checkpoint(path, network=GIVEN["network"])
    assert torch.equal(outputs(loaded), outputs(task))
    again = ClassificationTask.load_from_checkpoint(trained(tmp_path / "again", loaded))
    assert torch.equal(outputs(again), outputs(loaded))
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert cli("test", "--ckpt_path", path, "-c", tmp_path / "c.yaml").code == 0
    data = ["--data", "actlab.datamodules.MNISTDataModule", "--data.sample", "true", *QUIET]
    outcome = cli("test", "--ckpt_path", path, *data)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "does not record model.network, which has no import path: give --model.network" in outcome.err


class Halved(Task):
    """Inherits its constructor."""

    def quantities(self, output, batch):
        return {"loss": Quantity(output.square().mean(-1))}


def test_arguments_in_order_of_an_inherited_constructor_are_named(tmp_path):
    task = Halved("elu", GIVEN["network"], 3, (1, 28, 28), SGD)
    assert (task.hparams["activation"], task.hparams["optimizer"]) == ("elu", "torch.optim.SGD")
    loaded = Halved.load_from_checkpoint(trained(tmp_path, task), trust=True)
    assert torch.equal(outputs(loaded), outputs(task))


def test_a_network_loaded_with_another_optimiser_keeps_its_record(tmp_path):
    path = trained(tmp_path, ClassificationTask(**GIVEN))
    tuned = ClassificationTask.load_from_checkpoint(path, optimizer=partial(SGD, lr=0.3), seed=2)
    loaded = ClassificationTask.load_from_checkpoint(trained(tmp_path, tuned))
    assert torch.equal(outputs(loaded), outputs(tuned))
    assert (loaded.seed, loaded.optimizer.keywords if isinstance(loaded.optimizer, partial) else None) != (
        0,
        {},
    )
    assert loaded.optimizer([nn.Parameter(torch.ones(1))]).defaults["lr"] == 0.3


def test_an_error_of_a_network_that_is_given_is_one_line(tmp_path):
    def broken(*_):
        raise ValueError("no such layer")

    path = trained(tmp_path, ClassificationTask(**GIVEN))
    with pytest.raises(ActlabError, match="no such layer"):
        ClassificationTask.load_from_checkpoint(path, network=broken)


def test_a_class_without_an_import_path_is_the_one_that_loads(tmp_path):
    class Local(ClassificationTask):
        """Of a function."""

    task = Local(**GIVEN)
    path = trained(tmp_path, task)
    assert torch.equal(outputs(Local.load_from_checkpoint(path)), outputs(task))


def test_a_subclass_may_save_its_hyperparameters_itself(tmp_path):
    task = Deeper(2, seed=3)
    path = trained(tmp_path, task)
    held = torch.load(path, weights_only=True)
    assert held["hyper_parameters"]["depth"] == 2
    assert held["hyper_parameters"]["optimizer"]["init_args"] == {"lr": 0.2}
    loaded = Deeper.load_from_checkpoint(path)
    assert torch.equal(outputs(loaded), outputs(task))
    assert loaded.seed == 3


def test_a_record_of_a_script_names_no_more_than_any_other(tmp_path):
    path = trained(tmp_path, ClassificationTask(**GIVEN))
    held = torch.load(path, weights_only=True)
    held["actlab"]["model"]["init_args"]["optimizer"] = {
        "class_path": "os.system",
        "init_args": {"command": "true"},
    }
    torch.save(held, path)
    with pytest.raises(ActlabError, match=r"os\.system"):
        ClassificationTask.load_from_checkpoint(path)
    for missing in (3, "abc", [3], {"a": 1}):
        held["actlab"]["missing"] = missing
        torch.save(held, path)
        with pytest.raises(ActlabError):
            ClassificationTask.load_from_checkpoint(path)


def test_a_copy_keeps_the_arguments():
    task = ClassificationTask(**GIVEN)
    assert copy.deepcopy(task).arguments == task.arguments
    assert of_call(ClassificationTask, (1, 2), {"strange": 3}).plain == {}


class Attribute:
    """Keeps its argument under another name."""

    def __init__(self, x: int) -> None:
        self.other = x


@pytest.mark.parametrize(
    "value",
    [
        lambda: 0,
        partial(MLP, nn.ReLU),
        partial(lambda x: x, x=1),
        Attribute(3),
        torch.ones(2),
        nn.Linear(1, 1),
    ],
)
def test_what_cannot_be_named_is_not_guessed(value):
    with pytest.raises(UnnamedError):
        plain({"a": [value]})


@pytest.mark.parametrize("value", [Steps({3: 0.5}, "update"), Cosine(5), L2(1)])
def test_an_object_is_its_class_and_arguments(value):
    found = plain(value)
    assert found["class_path"] == f"actlab.optim.{type(value).__name__}"
    assert vars(type(value)(**found["init_args"])) == vars(value)
