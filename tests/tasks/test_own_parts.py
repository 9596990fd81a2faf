"""Users' activations, losses, optimisers and data: a task does what it says, or rejects them."""

from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from actlab import experiments
from actlab.callbacks import TestEveryEpoch, UnitStatistics, unit_statistics
from actlab.engines import packing
from actlab.engines.evaluation import UnstackedTasks
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.networks.init import initialise
from actlab.optim import L2, Linear, Steps
from actlab.optim.groups import kinds
from actlab.probes.bias_shift import BiasShift
from actlab.random.positions import Position
from actlab.runtime.modules import evaluating
from actlab.stacking import StackedTask
from actlab.studies import reading
from actlab.tasks import ClassificationTask, Quantity
from toys import QUIET, fitted
from updates_in_blocks import check_equal

pytestmark = pytest.mark.tries_stacks


def dropped(x):
    return F.dropout(x.relu(), 0.5, training=True)


class Mixed(nn.Module):
    """A unit with a layer inside."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.inner(x.unsqueeze(-1)).squeeze(-1))


class Smoothed(ClassificationTask):
    """Another loss in training than in evaluation."""

    def quantities(self, output, batch):
        found = super().quantities(output, batch)
        values = F.cross_entropy(
            output, batch[1], label_smoothing=0.5 * self.training, reduction="none"
        )
        return {**found, "loss": Quantity(values)}


class NoisyLoss(ClassificationTask):
    """A loss that draws from torch's global generator, in training and evaluation."""

    metric_names = ("loss",)

    def quantities(self, output, batch):
        noisy = output + torch.rand_like(output)
        return {"loss": Quantity(F.cross_entropy(noisy, batch[1], reduction="none"))}


class Undeclared(nn.Module):
    """A unit that draws, although it declares that it does not."""

    stochastic = False

    def forward(self, x):
        return x.relu() * torch.rand_like(x)


class Drawn(Dataset):
    """Samples that are augmented by torch's global generator, and a note of what was drawn."""

    def __init__(self):
        self.seen = []

    def __len__(self):
        return 64

    def __getitem__(self, i):
        self.seen.append((i, float(torch.rand(()))))
        return torch.full((1, 28, 28), i / 64), i % 10


class DrawnData(pl.LightningDataModule):
    num_classes, input_shape = 10, (1, 28, 28)

    def __init__(self):
        super().__init__()
        self.train = Drawn()

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=16, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Drawn(), batch_size=32)


class Fixed(DrawnData):
    """The same samples in the same order."""

    def train_dataloader(self):
        i = torch.arange(32)
        return DataLoader(
            TensorDataset((i / 32).view(-1, 1, 1, 1).expand(-1, 1, 28, 28), i % 10), batch_size=8
        )

    val_dataloader = train_dataloader


class Chosen(ClassificationTask):
    """Trains its last layer alone."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.network[-1].parameters(), lr=0.1)


def small(**arguments):
    return ClassificationTask(
        **{"activation": "relu", "network": partial(MLP, hidden=(8, 8)), **arguments}
    )


def run(task, data, tmp_path, **options):
    return fitted(task, data, tmp_path, **{"max_epochs": 1, "precision": "32-true", **options})


def test_a_users_loader_draws_the_same_whatever_the_unit_draws(tmp_path):
    """From the global generator, which third-party units give back as they found it."""
    first, data = DrawnData(), DrawnData()
    for unit, seen in (("relu", first), (f"{__name__}:dropped", data)):
        task = small(activation=unit, seed=3)
        pl.seed_everything(3, verbose=False)
        run(task, seen, tmp_path, max_epochs=2)
    assert data.train.seen == first.train.seen
    assert len({drawn for _, drawn in data.train.seen}) == 128
    orders = [[i for i, _ in data.train.seen[start : start + 64]] for start in (0, 64)]
    assert orders[0] != orders[1]


@pytest.mark.parametrize("kind", [NoisyLoss, ClassificationTask])
def test_what_draws_unannounced_is_resumed_as_uninterrupted(tmp_path, kind):
    def task():
        unit = "relu" if kind is NoisyLoss else f"{__name__}:Undeclared"
        return kind(activation=unit, network=partial(MLP, hidden=(8,)), num_classes=10)

    def fit(epochs, seed, **more):
        made = task()
        pl.seed_everything(seed, verbose=False)
        return run(made, Fixed(), tmp_path, max_epochs=epochs, **more), made

    straight, whole = fit(2, 0)
    fit(1, 0)[0].save_checkpoint(tmp_path / "one.ckpt")
    trainer, resumed = fit(2, 1, resumed=tmp_path / "one.ckpt")
    assert trainer.callback_metrics == straight.callback_metrics
    check_equal(resumed.state_dict(), whole.state_dict())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_clean_loss_is_that_of_evaluation_for_a_users_own_loss(tmp_path, dropout):
    network = partial(MLP, hidden=(8,), dropout=dropout)
    task = Smoothed(activation="relu", network=network, optimizer=partial(torch.optim.SGD, lr=0.0))
    found = run(task, DrawnData(), tmp_path).callback_metrics
    torch.testing.assert_close(found["train/clean_loss"], found["val/loss"], atol=0.3, rtol=0)
    batch = torch.arange(64).view(-1, 1, 1, 1).expand(64, 1, 28, 28) / 64, torch.arange(64) % 10
    with evaluating(task):
        torch.testing.assert_close(found["train/clean_loss"], task.loss(batch).detach())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"optimizer": torch.optim.Rprop, "l2": L2(0.1)},
            "model.l2: expected an optimizer with 'weight_decay', got Rprop",
        ),
        (
            {"optimizer": torch.optim.AdamW, "l2": L2(0.1, half=False)},
            "model.l2.half: expected true for AdamW, which decouples weight decay",
        ),
        (
            {"optimizer": partial(torch.optim.AdamW, weight_decay=0.2), "l2": L2(0.1)},
            "both 'l2' and the optimizer's 'weight_decay' are set",
        ),
        (
            {
                "optimizer": partial(torch.optim.SGD, lr=0.1),
                "schedules": {"momentum": Steps({1: 0.5})},
            },
            "schedules.momentum: expected a start value above 0, .* multiplies, got 0",
        ),
        (
            {"optimizer": partial(torch.optim.SGD, lr=-1.0)},
            r"^model\.optimizer: Invalid learning rate: -1\.0$",
        ),
        (
            {
                "schedules": {"lr": Linear(1, 2)},
                "scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=1),
            },
            "both 'scheduler' and 'schedules: lr' are set",
        ),
        ({"schedules": {"lrr": Linear(1, 2)}}, "did you mean 'lr'"),
    ],
)
def test_what_would_do_nothing_is_refused(tmp_path, arguments, message):
    with pytest.raises(ActlabError, match=message):
        run(small(**arguments), DrawnData(), tmp_path)


def test_batches_of_unequal_size_are_not_accumulated(tmp_path):
    config = {
        "model": {"class_path": "actlab.tasks.FrameTask", "init_args": {"activation": "relu"}},
        "data": {"class_path": "actlab.datamodules.TIMITDataModule", "init_args": {"sample": True}},
        "trainer": {"accumulate_grad_batches": 2, "max_epochs": 1, **QUIET},
    }
    trainer, task, data = experiments.build(config, default_root_dir=str(tmp_path))
    tasks: list[Any] = [experiments.build(config).task for _ in range(2)]
    for subject in (task, StackedTask(tasks)):
        with pytest.raises(
            ActlabError, match="expected 1 for FrameTask, whose batches differ in size, got 2"
        ):
            trainer.fit(subject, datamodule=data)


def test_runs_whose_batches_differ_in_size_are_trained_one_by_one_on_a_cpu(tmp_path):
    """Frames that fill up the batches of a stack would change the order of sums."""
    changes = ["model.activation=gelu", "seeds=2", "model.optimizer.lr=1e-3"]
    packed = packing.pack(
        reading.load("gelu_timit", smoke=True, overrides=changes).runs(), tmp_path
    )
    assert [len(job.runs) for job in packed.jobs] == [1, 1]
    assert packed.reasons


@pytest.mark.parametrize("name", ["relu", "elu"])
def test_a_unit_that_acts_in_place_has_the_bias_shift_of_the_other(name):
    torch.manual_seed(0)
    images, labels = torch.rand(300, 1, 28, 28), torch.randint(0, 10, (300,))

    class Images:
        def __getitems__(self, position):
            return images[position.index], labels[position.index]

        def __len__(self):
            return 300

    class Data:
        train = Images()

    in_place = {"name": {"relu": "torch.nn:ReLU", "elu": "torch.nn:ELU"}[name], "inplace": True}
    found = []
    for unit in (name, in_place):
        task = small(activation=unit).eval()
        found.append(
            {
                (m.metric, m.condition): m.values.tolist()
                for m in BiasShift(300)(UnstackedTasks([task]), Data())
            }
        )
    assert found[0].keys() == found[1].keys()
    for key, values in found[0].items():
        assert found[1][key] == pytest.approx(values, nan_ok=True), key
    mixed = BiasShift(300)(UnstackedTasks([small(activation=f"{__name__}:Mixed").eval()]), Data())
    assert {m.condition.partition(",")[0] for m in mixed} == {"layer=2"}


def test_units_are_looked_at_on_images_as_they_are(tmp_path):
    arguments = {"sample": True, "batch_size": 50, "crop": 4, "flip": "random", "noise": 0.15}
    for flip in ("random", "both"):
        config = {
            "model": {
                "class_path": "actlab.tasks.ClassificationTask",
                "init_args": {
                    "activation": "relu",
                    "network": {"class_path": "actlab.networks.MLP", "init_args": {"hidden": [8]}},
                },
            },
            "data": {
                "class_path": "actlab.datamodules.CIFARDataModule",
                "init_args": {**arguments, "flip": flip, "cache_dir": str(tmp_path)},
            },
            "trainer": {"max_epochs": 1, **QUIET},
        }
        watch = UnitStatistics(samples=100)
        data: Any
        trainer, task, data = experiments.build(
            config, callbacks=[watch], default_root_dir=str(tmp_path)
        )
        trainer.fit(task, datamodule=data)
        images, labels = data.training_samples.batch(Position((0,), 0, torch.arange(100)))
        with evaluating(task):
            expected = unit_statistics.measure(task, lambda: iter([(images, labels)]), 1, 2**29)  # noqa: B023
        assert watch.latest is not None
        for name, values in expected.values.items():
            torch.testing.assert_close(watch.latest.values[name], values)
        assert len(data.train) == 150 * (1 + (flip == "both"))
        assert data.train.__getitems__(Position((0,), 0, torch.arange(3)))[0].shape == (
            3,
            3,
            32,
            32,
        )


def test_biases_of_any_name_are_biases_and_shared_weights_count_once():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, add_bias_kv=True)
            self.first = self.second = nn.Linear(4, 4)

    network = Shared()
    network.third = nn.Linear(4, 4)
    network.third.weight = network.first.weight
    found = kinds(network)
    assert {name for name, kind in found.items() if kind == "biases"} == {
        *(
            "attention.in_proj_bias",
            "attention.bias_k",
            "attention.bias_v",
            "attention.out_proj.bias",
        ),
        *("first.bias", "third.bias"),
    }
    assert found.keys() == dict(network.named_parameters()).keys()


def test_every_convolution_is_drawn_by_the_rule_or_refused():
    volume = nn.Conv3d(2, 3, 3)
    initialise(volume, "unit_norm_rows")
    torch.testing.assert_close(volume.weight.flatten(1).norm(dim=1), torch.ones(3))
    assert not volume.bias.any()
    with pytest.raises(ActlabError, match="no init rule for ConvTranspose2d"):
        initialise(nn.Sequential(nn.ConvTranspose2d(2, 2, 3)), "he")


def test_a_task_may_choose_what_it_trains(tmp_path):
    task = Chosen(network=partial(MLP, hidden=(8,)))
    before = [parameter.detach().clone() for parameter in task.network.parameters()]
    run(task, DrawnData(), tmp_path)
    same = [old.equal(new) for old, new in zip(before, task.network.parameters(), strict=True)]
    assert same == [True, True, False, False]


@pytest.mark.parametrize("unit", ["Late", "Listed"])
def test_a_parameter_that_is_never_trained_is_refused_by_fit(
    cli, program, tmp_path, monkeypatch, unit
):
    monkeypatch.chdir(tmp_path)
    program("failing_activations")
    words = ["--model.activation", f"./failing_activations.py:{unit}"]
    words += ["--model.network.hidden", "[8]", "--data.sample", "true"]
    words += ["--trainer.max_epochs", "1", "--trainer.logger", "false"]
    found = cli("fit", "-c", "mnist_classifier", *words)
    assert found.code == 2
    assert "learns a tensor of shape () that is not in the optimiser" in found.err


class Plain(pl.LightningModule):
    """A module of others, which logs what it measures and collects nothing itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch, number):
        return self.layer(batch[0]).square().mean()

    def test_step(self, batch, number):
        self.log("test/mean", batch[0].mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Uneven(pl.LightningDataModule):
    """Five samples in batches of three and two."""

    def train_dataloader(self):
        return DataLoader(
            torch.utils.data.TensorDataset(torch.arange(5.0).unsqueeze(1)), batch_size=3
        )

    test_dataloader = train_dataloader


def test_what_a_third_party_module_logs_counts_by_the_size_of_batches(tmp_path):
    trainer = fitted(
        Plain(), Uneven(), tmp_path, TestEveryEpoch(), max_epochs=1, precision="32-true"
    )
    assert trainer.callback_metrics["test/mean"] == 2.0  # not the mean of 1 and 3.5
