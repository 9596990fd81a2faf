"""Tasks in users' scripts: a stock Trainer, stock loaders, and what Lightning's users write."""

import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import pytorch_lightning as pl
import torch
from datasets import Dataset, load_from_disk
from pytorch_lightning.loggers import CSVLogger, Logger
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassConfusionMatrix

from actlab.activations import create, factory
from actlab.datamodules import MNISTDataModule
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.tasks import AutoencoderTask, ClassificationTask, FrameTask, LanguageTask
from toys import QUIET

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval"),
]
X: Any = torch.linspace(-1, 1, 32 * 4).view(32, 1, 2, 2)  # DataLoader is typed for datasets alone
Y = torch.arange(32) % 3
SMALL: dict[str, Any] = {"input_shape": (1, 2, 2), "network": partial(MLP, hidden=[4])}


def classifier(kind: Any = ClassificationTask, **options: Any) -> Any:
    return kind(**{"num_classes": 3, **SMALL, **options})


def trainer(folder: Any, **options: Any) -> pl.Trainer:
    return pl.Trainer(**{**QUIET, "max_epochs": 1, "default_root_dir": folder, **options})


def loader(*tensors: torch.Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*tensors), 32)


def predicted(folder: Any, task: Any, data: Any) -> Any:
    return trainer(folder).predict(task, data)


def test_every_row_of_a_bare_tensor_is_predicted(tmp_path):
    for task, shape in ((classifier(), (32, 3)), (classifier(FrameTask), (32, 3))):
        for data in (DataLoader(X, batch_size=32), loader(X, Y)):
            (found,) = predicted(tmp_path, task, data)
            assert found.shape == shape
            assert torch.equal(found, predicted(tmp_path, task, loader(X))[0])
    several = predicted(
        tmp_path, classifier(), [DataLoader(X, batch_size=32), DataLoader(X, batch_size=16)]
    )
    assert [len(of_loader) for of_loader in several] == [1, 2]


def test_an_autoencoder_learns_from_every_row_of_a_bare_tensor(tmp_path):
    logged = []
    for data in (DataLoader(X, batch_size=32), loader(X)):
        task = AutoencoderTask((1, 2, 2))
        one = trainer(tmp_path)
        one.fit(task, data, data)
        losses = {name: float(value) for name, value in one.callback_metrics.items()}
        logged.append(losses | one.test(task, data, verbose=False)[0])
    assert logged[0] == logged[1]


def test_batches_are_dictionaries_where_datasets_gives_them(tmp_path):
    columns = {"image": X.tolist(), "label": Y.tolist(), "number": [*range(32)]}
    Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    rows: Any = load_from_disk(tmp_path / "saved").with_format("torch")
    task, data = classifier(), DataLoader(rows, batch_size=32)
    found = trainer(tmp_path).test(task, data, verbose=False)
    assert found == trainer(tmp_path).test(task, loader(X, Y), verbose=False)
    trainer(tmp_path).fit(task, data, data)
    strange: Any = DataLoader(rows.rename_column("image", "picture"), batch_size=32)
    with pytest.raises(ActlabError, match=r"got picture, label, number\. Rename the columns"):
        trainer(tmp_path).predict(task, strange)


@pytest.mark.parametrize(
    ("inputs", "labels", "says"),
    [
        (X, Y.int(), None),
        (X, Y.byte(), None),
        (
            X,
            nn.functional.one_hot(Y).float(),
            r"class numbers of shape \(32,\), got torch\.float32 of shape \(32, 3\)",
        ),
        (X, Y.float(), r"labels of a batch: expected .*, got torch\.float32 of shape \(32,\)"),
        (X, None, r"the batch has no targets\. Return \(inputs, targets\)"),
    ],
)
def test_kinds_of_labels_and_inputs_are_taken_or_named(tmp_path, inputs, labels, says):
    task, data = classifier(), loader(inputs, *([] if labels is None else [labels]))
    if says is None:
        found = trainer(tmp_path).validate(task, data, verbose=False)
        assert found == trainer(tmp_path).validate(task, loader(X, Y), verbose=False)
        return
    for run, given in (("fit", (data, data)), ("validate", (data,)), ("test", (data,))):
        with pytest.raises(ActlabError, match=says):
            getattr(trainer(tmp_path), run)(task, *given)


def test_a_text_is_predicted_with_its_targets(tmp_path):
    task, tokens = LanguageTask(4, (8,)), cast("Any", torch.zeros(2, 8, dtype=torch.long))
    with pytest.raises(ActlabError, match="the batch has no targets"):
        trainer(tmp_path).predict(task, DataLoader(tokens, batch_size=2))


class OwnStep(ClassificationTask):
    """With a step of its own."""

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss


class OwnSteps(OwnStep):
    """Its validation, too."""

    def validation_step(self, batch, batch_idx):
        self.log("val/own", self(batch[0]).mean())


@pytest.mark.parametrize("kind", [OwnStep, OwnSteps])
def test_only_means_with_a_weight_are_logged(tmp_path, kind):
    one = trainer(tmp_path)
    one.fit(classifier(kind), loader(X, Y), loader(X, Y))
    logged = one.callback_metrics
    assert {"train/loss"} <= logged.keys()
    assert all(value.isfinite() for value in logged.values())
    assert ("val/loss" in logged) == (kind is OwnStep)


def test_a_seed_that_is_not_given_is_that_of_seed_everything():
    def made(**options: Any) -> tuple[Any, Any]:
        return classifier(**options), MNISTDataModule(sample=True, **options)

    for chosen, found in ((None, 0), (7, 7)):
        if chosen is not None:
            pl.seed_everything(chosen, verbose=False)
        torch.manual_seed(chosen or 3)  # of no effect
        (task, data), (same, _) = made(), made(seed=found)
        assert (task.seed, data.seed, task.hparams.seed, data.hparams.seed) == (found,) * 4
        assert torch.equal(task(X), same(X))
    assert made(seed=0)[0].seed == 0


class WithoutSeed(ClassificationTask):
    """Takes no seed."""

    def __init__(self, hidden: int = 4) -> None:
        super().__init__(3, (1, 2, 2), network=partial(MLP, hidden=[hidden]))


def test_a_loaded_task_has_the_seed_that_it_was_trained_with(tmp_path, monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    one = trainer(tmp_path)
    one.fit(WithoutSeed(), loader(X, Y), loader(X, Y))
    one.save_checkpoint(tmp_path / "a.ckpt")
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    assert WithoutSeed.load_from_checkpoint(tmp_path / "a.ckpt").seed == 7
    assert os.environ["PL_GLOBAL_SEED"] == "8"


class Module(pl.LightningDataModule):
    """Records its arguments, of which one is an argument of the task, too."""

    def __init__(self, num_classes: int = 4, batch_size: int = 8) -> None:
        super().__init__()
        self.save_hyperparameters()

    def train_dataloader(self):
        return loader(X, Y)

    val_dataloader = train_dataloader


class Own(ClassificationTask):
    """Records its arguments itself."""

    def __init__(self, depth: int = 1) -> None:
        super().__init__(3, (1, 2, 2), network=partial(MLP, hidden=[4] * depth))
        self.save_hyperparameters()


class Kept(Logger):
    """Keeps what it is given."""

    name = version = "kept"

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Any] = {}

    def log_hyperparams(self, params, *args, **kwargs):
        self.given = dict(params)

    def log_metrics(self, metrics, step=None):
        pass


def test_every_logger_gets_the_arguments(tmp_path):
    def logged(task: Any, *data: Any) -> dict[str, Any]:
        loggers = [Kept(), Kept()]
        one = trainer(tmp_path, logger=loggers)
        one.fit(task, *data)
        one.save_checkpoint(tmp_path / "a.ckpt")
        assert loggers[0].given == loggers[1].given
        return loggers[0].given

    given = {"activation": "elu", "optimizer": partial(SGD, lr=0.5), "seed": 3}
    found = logged(classifier(**given), loader(X, Y), loader(X, Y))
    assert (found["activation"], found["seed"], found["num_classes"]) == ("elu", 3, 3)
    assert found["optimizer"] == str(given["optimizer"])
    assert found["clean_training_loss"] is True  # a default
    assert "hyper_parameters" not in torch.load(tmp_path / "a.ckpt")  # the record has them
    data = MNISTDataModule(sample=True, batch_size=2000, validation=1000, seed=4)
    assert data.hparams == {**data.hparams, "batch_size": 2000, "eval_batch_size": 5000, "seed": 4}
    assert logged(classifier(seed=3, input_shape=(1, 28, 28), num_classes=10), data)["seed"] == 3
    # As without arguments
    assert "datamodule_hyper_parameters" not in torch.load(tmp_path / "a.ckpt")
    both = logged(classifier(seed=3), Module())
    assert (both["num_classes"], both["batch_size"], both["seed"]) == (4, 8, 3)
    assert logged(Own(2), loader(X, Y), loader(X, Y)) == {"depth": 2, "seed": 0}
    assert torch.load(tmp_path / "a.ckpt")["hyper_parameters"]["depth"] == 2


def test_a_matrix_reaches_loggers_without_tables(tmp_path):
    matrix = {"confusion": MulticlassConfusionMatrix(3)}
    log = CSVLogger(tmp_path)
    trainer(tmp_path, logger=log).test(classifier(metrics=matrix), loader(X, Y), verbose=False)
    found = json.loads(Path(log.log_dir, "matrices.json").read_text())["test/confusion"]
    assert torch.tensor(found).sum(1).tolist() == Y.bincount().tolist()

    class Board(Kept):
        texts: ClassVar[dict[str, str]] = {}

        @property
        def experiment(self):
            return SimpleNamespace(
                add_text=lambda name, text, step: self.texts.update({name: text})
            )

    trainer(tmp_path, logger=Board()).test(classifier(metrics=matrix), loader(X, Y), verbose=False)
    assert Board.texts["test/confusion"].splitlines() == [f"    {row}" for row in found]


class Mine(nn.Module):
    """A unit."""

    def forward(self, x):
        return 0.5 * x.relu()


def test_an_activation_is_a_class_or_a_function_with_an_import_path(tmp_path):
    for given, same in (
        (nn.Mish, "torch.nn:Mish"),
        (torch.tanh, "tanh"),
        (Mine, f"{__name__}:Mine"),
    ):
        assert torch.equal(classifier(activation=given)(X), classifier(activation=same)(X))
    assert repr(create({"name": nn.ELU, "alpha": 0.5})) == repr(nn.ELU(0.5))
    task, one = classifier(activation=Mine), trainer(tmp_path)
    one.fit(task, loader(X, Y), loader(X, Y))
    one.save_checkpoint(tmp_path / "a.ckpt")
    objects = {"network": SMALL["network"], "activation": Mine}
    loaded = ClassificationTask.load_from_checkpoint(tmp_path / "a.ckpt", **objects)
    assert torch.equal(loaded(X), task(X))
    with pytest.raises(ActlabError, match=r"built module.*Use its class, or \{name: .*:ELU, …\}"):
        classifier(activation=nn.ELU(0.5))
    for local in (lambda x: x, type("Local", (nn.Module,), {})):
        with pytest.raises(
            ActlabError, match=r"no import path\. Define it at the top level of a module"
        ):
            factory(local)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"optimizer": "adam"},
            r"optimizer: expected a class of torch\.optim or a partial.* got 'adam'",
        ),
        (
            {"optimizer": SGD([nn.Parameter(X)], lr=1)},
            r"optimizer: .*functools\.partial\(torch\.optim\.SGD.* got SGD",
        ),
        ({"scheduler": "cosine"}, "scheduler: expected a class .* got 'cosine'"),
        (
            {"network": nn.Sequential(nn.Linear(4, 3))},
            r"network: .* got Sequential\(.*lambda act, outputs, shape: nn",
        ),
        ({"network": "mlp"}, "network: expected a function that builds it, got 'mlp'"),
    ],
)
def test_what_is_built_already_or_named_in_a_script_names_the_spelling(given, says):
    with pytest.raises(ActlabError, match=says):
        classifier(**given)


def test_several_loaders_name_what_works(tmp_path):
    task = classifier()
    for run in ("validate", "test"):
        with pytest.raises(
            ActlabError, match=r"expected one data loader, got several.*ConcatDataset"
        ):
            getattr(trainer(tmp_path), run)(task, [loader(X, Y), loader(X, Y)])
