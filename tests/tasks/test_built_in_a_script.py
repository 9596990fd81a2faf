"""A task built in a script and trained by a plain Trainer: its checkpoint knows the network."""

import copy
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD

from actlab.config.plain_values import is_plain, of_call
from actlab.datamodules import MNISTDataModule
from actlab.errors import ActlabError
from actlab.networks import MLP
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
OBJECTS: dict[str, Any] = {"network": partial(MLP, hidden=[16]), "optimizer": partial(SGD, lr=0.1)}
GIVEN: dict[str, Any] = {
    "activation": "elu",
    "num_classes": 10,
    "input_shape": (1, 28, 28),
    **OBJECTS,
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
    limits = {
        "max_epochs": 1,
        "limit_train_batches": 2,
        "limit_val_batches": 1,
        "precision": "32-true",
    }
    trainer = fitted(task.train(), data, folder, **limits)
    trainer.save_checkpoint(folder / "a.ckpt")
    return folder / "a.ckpt"


def outputs(task):
    return task.eval()(torch.linspace(0, 1, 2 * 784).view(2, 1, 28, 28))


def test_what_a_script_gave_as_objects_is_asked_for_by_name(cli, tmp_path):
    task = ClassificationTask(**GIVEN, seed=5)
    path = trained(tmp_path, task)
    with pytest.raises(
        ActlabError, match=r"Pass them: Task\.load_\w+\(…, network=…, optimizer=…\)$"
    ):
        Task.load_from_checkpoint(path)
    for kind in (ClassificationTask, Task):
        loaded = kind.load_from_checkpoint(path, **OBJECTS)
        assert torch.equal(outputs(loaded), outputs(task))
        assert (loaded.seed, loaded.optimizer) == (5, OBJECTS["optimizer"])
    again = trained(tmp_path / "again", loaded)
    with pytest.raises(ActlabError, match=r"\(…, optimizer=…\)$"):
        ClassificationTask.load_from_checkpoint(again, network=OBJECTS["network"])
    (tmp_path / "c.yaml").write_text(CONFIG)
    out = cli("test", "--ckpt_path", path, "-c", tmp_path / "c.yaml").succeeded()
    data = ["--data", "actlab.datamodules.MNISTDataModule", "--data.sample", "true", *QUIET]
    objects = [
        "--model.network",
        "MLP",
        "--model.network.hidden",
        "[16]",
        "--model.optimizer",
        "SGD",
    ]
    found = cli("test", "--ckpt_path", path, *data, *objects, "--model.optimizer.lr", "0.1")
    assert (found.code, found.out) == (0, out), found.err
    for words, says in (
        ([], "data: expected a class, got none. Add -c CONFIG, or pass --data CLASS"),
        (data, "passed as objects. Add --model.network, --model.optimizer"),
        (["-c", tmp_path / "c.yaml", "--model.activation", "relu"], "was trained with, got 'relu'"),
    ):
        outcome = cli("test", "--ckpt_path", path, *words)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert says in outcome.err


def test_plain_values_come_back_alone(tmp_path):
    task = ClassificationTask(
        10, (1, 28, 28), {"name": "elu", "alpha": 0.5}, training_metrics=["error"], top=3
    )
    loaded = ClassificationTask.load_from_checkpoint(trained(tmp_path, task))
    assert (loaded.trained, loaded.top) == (task.trained, 3)
    assert torch.equal(outputs(loaded), outputs(task))


class Halved(Task):
    """Inherits its constructor."""

    def quantities(self, output, batch):
        return {"loss": Quantity(output.square().mean(-1))}


def test_arguments_in_order_of_an_inherited_constructor_are_named(tmp_path):
    task = Halved("elu", OBJECTS["network"], 3, (1, 28, 28), SGD)
    assert (task.hparams["activation"], task.hparams["optimizer"]) == ("elu", "torch.optim.sgd.SGD")
    objects = {"network": OBJECTS["network"], "optimizer": SGD}
    loaded = Halved.load_from_checkpoint(trained(tmp_path, task), trust=True, **objects)
    assert torch.equal(outputs(loaded), outputs(task))


def test_an_error_of_a_network_that_is_given_is_one_line(tmp_path):
    def broken(*_):
        raise ValueError("no such layer")

    path = trained(tmp_path, ClassificationTask(**GIVEN))
    with pytest.raises(ActlabError, match="no such layer"):
        ClassificationTask.load_from_checkpoint(path, network=broken, optimizer=SGD)


def test_a_class_without_an_import_path_is_the_one_that_loads(tmp_path):
    class Local(ClassificationTask):
        """Of a function."""

    task = Local(**GIVEN)
    path = trained(tmp_path, task)
    assert torch.equal(outputs(Local.load_from_checkpoint(path, **OBJECTS)), outputs(task))


def test_a_subclass_may_save_its_hyperparameters_itself(tmp_path):
    task = Deeper(2, seed=3)
    path = trained(tmp_path, task)
    held = torch.load(path, weights_only=True)
    assert held["hyper_parameters"] == {"depth": 2, "seed": 3}
    loaded = Deeper.load_from_checkpoint(path)
    assert torch.equal(outputs(loaded), outputs(task))
    assert loaded.seed == 3


def test_a_malformed_list_of_objects_is_one_line(tmp_path):
    path = trained(tmp_path, ClassificationTask(**GIVEN))
    held = torch.load(path, weights_only=True)
    for missing in (3, "abc", [3], {"a": 1}):
        held["actlab"]["missing"] = missing
        torch.save(held, path)
        with pytest.raises(ActlabError, match="missing"):
            ClassificationTask.load_from_checkpoint(path)


def test_a_copy_keeps_the_arguments():
    task = ClassificationTask(**GIVEN)
    assert copy.deepcopy(task).arguments == task.arguments
    assert of_call(ClassificationTask, (1, 2), {"strange": 3}).plain == {}


Word = Enum("Word", "A")


@pytest.mark.parametrize(
    "value", [lambda: 0, SGD, OBJECTS["network"], torch.ones(2), Word.A, {1: 0}]
)
def test_an_object_is_no_plain_value(value):
    assert not is_plain({"a": [value]})
