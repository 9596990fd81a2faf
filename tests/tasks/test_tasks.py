"""Tasks: weighted means and augmentations are the same alone, in a stack and on two devices."""

import pickle
import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from actlab.callbacks import TestEveryEpoch, UnitStatistics
from actlab.errors import ActlabError
from actlab.networks import MLP, Dropout
from actlab.optim import L2, Cosine, Linear, Plateau, Steps
from actlab.stacking import StackedTask
from actlab.stacking.task import reason_against
from actlab.tasks import ClassificationTask, Quantity, Task
from actlab.tasks.building import check_devices
from actlab.tasks.quantities import Means
from actlab.tasks.randomness import is_random
from toys import FrameNetwork, Frames, FrameTask, PlainFrameTask, assert_members, fitted
from updates_in_blocks import check_equal

EPOCHS = 3


class Weights(pl.Callback):
    """The weights at the end, and what was logged after every epoch."""

    def __init__(self):
        self.rows, self.metrics = [], {}

    def on_validation_end(self, trainer, pl_module):
        if isinstance(pl_module, StackedTask):
            self.rows.append(
                {n: v.clone() for n, v in pl_module.latest.items() if n.startswith("val")}
            )
        else:
            self.rows.append(
                {n: v.clone() for n, v in trainer.callback_metrics.items() if n.startswith("val")}
            )


def trained(task, data, tmp_path, **options):
    watch = Weights()
    trainer = fitted(task, data, tmp_path, watch, **options)
    watch.metrics = {name: value.clone() for name, value in trainer.callback_metrics.items()}
    return task, watch


def member(seed, kind=FrameTask, lr=0.1, **options):
    return kind(seed=seed, optimizer=partial(torch.optim.SGD, lr=lr, momentum=0.5), **options)


@pytest.fixture(autouse=True)
def _as_the_command_line_does():
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*log_every_n_steps.*")


def test_padding_does_not_count(tmp_path):
    """The mean of a toy task without padding, with numpy's own weighted mean as the oracle."""
    task, data = member(0).double(), Frames()
    data.setup("fit")
    x, y, mask = next(iter(data.val_dataloader()))
    found = task.eval().measured((x, y, mask))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(task(x).flatten(0, 1), y.flatten(), reduction="none")
    assert found["loss"].mean().item() == pytest.approx(np.average(loss, weights=mask.flatten()))
    wrong = (task(x).argmax(-1) != y).double()
    assert found["error"].mean().item() == pytest.approx(np.average(wrong, weights=mask))


def test_validation_means_go_over_all_batches_by_weight(tmp_path):
    task, watch = trained(member(0), Frames(), tmp_path)
    whole = Frames()
    whole.eval_batch_size = 48
    whole.setup("fit")
    (batch,) = list(whole.val_dataloader())
    expected = task.eval().measured(batch)["loss"].mean()
    assert watch.rows[-1]["val/loss"].item() == pytest.approx(expected.item())


def test_a_batch_of_padding_is_harmless():
    empty = Quantity(torch.tensor([float("inf"), 3.0], requires_grad=True), torch.zeros(2))
    assert empty.mean() == 0
    empty.mean().backward()
    assert empty.values.grad is not None
    assert torch.equal(empty.values.grad, torch.zeros(2))


@pytest.mark.parametrize(("kind", "dropout"), [(FrameTask, 0.0), (PlainFrameTask, 0.3)])
def test_padding_and_augmentation_in_a_stack(tmp_path, kind, dropout):
    network = partial(FrameNetwork, dropout=dropout)
    make = lambda r: member(r, kind, lr=0.1 / (r + 1), network=network)  # noqa: E731
    singles = [trained(make(r), Frames(seed=r), tmp_path) for r in range(2)]
    stack, watch = trained(StackedTask([make(r) for r in range(2)]), Frames(seed=[0, 1]), tmp_path)
    assert_members(stack, [one for one, _ in singles], 1e-9, 1e-12)
    for r, (_, alone) in enumerate(singles):
        for mine, ours in zip(alone.rows, watch.rows, strict=True):
            assert {n: v.item() for n, v in mine.items()} == pytest.approx(
                {n: v[r].item() for n, v in ours.items()}
            )


@pytest.mark.usefixtures("spawning")
@pytest.mark.slow
def test_padding_and_augmentation_on_two_devices(tmp_path):
    make = lambda: member(3, network=partial(FrameNetwork, dropout=0.3)).double()  # noqa: E731
    one, alone = trained(make(), Frames(seed=3), tmp_path)
    two, both = trained(make(), Frames(seed=3), tmp_path, devices=2, strategy="ddp_spawn")
    assert alone.metrics.keys() == both.metrics.keys() >= {"train/loss", "val/loss", "val/error"}
    assert all(
        float(both.metrics[name]) == pytest.approx(float(v)) for name, v in alone.metrics.items()
    )
    for name, value in one.network.state_dict().items():
        torch.testing.assert_close(two.network.state_dict()[name], value, rtol=1e-9, atol=1e-12)


class Gradients(StackedTask):
    """Counts the bytes of all gradients before and after each backward pass, each storage once."""

    counts: list[int]

    def count(self):
        held = [p for group in self.optimizers().param_groups for p in group["params"]]
        storages = [
            p.grad.untyped_storage() for p in (*held, *self.parameters()) if p.grad is not None
        ]
        self.counts.append(sum({s.data_ptr(): s.nbytes() for s in storages}.values()))

    def on_before_backward(self, loss):
        self.count()

    def on_after_backward(self):
        self.count()


def test_a_stack_holds_its_gradients_once(tmp_path):
    """Slices of two learning rates: their gradients are views, and go with their bases."""
    stack = Gradients([member(0, lr=0.1), member(1, lr=0.2)])
    stack.counts = []
    trained(stack, Frames(seed=[0, 1]), tmp_path)
    whole = sum(p.numel() * p.element_size() for p in stack.parameters())
    assert stack.counts == [0, whole] * (len(stack.counts) // 2)
    assert len(stack.counts) > EPOCHS


SCHEDULES = {
    "lr": {"lr": Linear(1, 4)},
    "beta1 and lr": {"beta1": Steps({1: 0.5}), "lr": Cosine(12)},
    "dropout and decay": {"dropout": Steps({5: 1.5}, by="update"), "weight_decay": Linear(0, 3)},
    "plateau": {"lr": Plateau("val/loss", shrink=0.5, patience=0, threshold=0.5)},
    "training plateau": {"lr": Plateau("train/loss", shrink=0.3, patience=0, threshold=0.2)},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_in_a_stack_are_those_of_each_run(tmp_path, name):
    schedules = SCHEDULES[name]
    penalised = "beta1" not in schedules and name != "plateau"
    l2 = L2(0.02, half=False, of=["weights", "units"]) if penalised else None

    def make(r):
        adam = partial(torch.optim.Adam, lr=0.05 / (r + 1), betas=(0.9 - 0.2 * r, 0.99))
        network = partial(FrameNetwork, dropout=0.2 + 0.1 * r)
        return FrameTask(r, adam, "prelu", network=network, schedules=schedules, l2=l2)

    singles = [trained(make(r), Frames(seed=r), tmp_path) for r in range(2)]
    stack, watch = trained(StackedTask([make(r) for r in range(2)]), Frames(seed=[0, 1]), tmp_path)
    plain = trained(
        FrameTask(0, make(0).optimizer, "prelu", network=partial(FrameNetwork, dropout=0.2), l2=l2),
        Frames(seed=0),
        tmp_path,
    )
    weights = [one.network.state_dict()["0.weight"] for one, _ in (plain, singles[0])]
    assert not torch.equal(*weights), "the schedule changes something"
    assert_members(stack, [one for one, _ in singles])
    assert len(watch.rows) == EPOCHS


def test_a_plateau_is_resumed_as_it_was(tmp_path):
    make = partial(
        member, 0, schedules={"lr": Plateau("val/loss", shrink=0.5, patience=0, threshold=0.5)}
    )
    straight, _ = trained(make(), Frames(), tmp_path)
    fitted(make(), Frames(), tmp_path, max_epochs=2).save_checkpoint(tmp_path / "two.ckpt")
    resumed = make()
    fitted(resumed, Frames(), tmp_path, resumed=tmp_path / "two.ckpt", num_sanity_val_steps=2)
    check_equal(resumed.network.state_dict(), straight.network.state_dict())


def test_a_task_without_quantities_cannot_be_made():
    with pytest.raises(ActlabError, match="Task defines neither quantities nor measure"):
        Task("relu", MLP, 3, (4,), torch.optim.SGD)


def test_who_cannot_be_stacked_says_so():
    assert "LightningModule, but not an actlab.tasks.Task" in reason_against(pl.LightningModule())
    assert reason_against(PlainFrameTask(0)) is None


def test_what_is_not_known_to_be_deterministic_is_random():
    for layer, random in (
        (nn.LSTM(2, 2, num_layers=2, dropout=0.5), True),
        (nn.LSTM(2, 2), False),
        (nn.MultiheadAttention(2, 1, dropout=0.1), True),
        (nn.MultiheadAttention(2, 1), False),
        (nn.Dropout(0.5), True),
        (nn.BatchNorm1d(2), True),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), False),
        (nn.Sequential(nn.Conv1d(2, 2, 1), nn.MaxPool1d(2), nn.LayerNorm(2)), False),
        (
            type(
                "Unknown", (nn.Module,), {"forward": lambda self, x: x, "__module__": "elsewhere"}
            )(),
            True,
        ),
    ):
        assert is_random(layer) is random


def test_a_task_can_be_pickled():
    task = ClassificationTask(num_classes=3, input_shape=(4,), network=partial(MLP, hidden=(5,)))
    assert pickle.loads(pickle.dumps(task)).seed == 0


class DrawsInConstructor(nn.Module):
    """A unit with a weight of its own, drawn when it is made."""

    stochastic = False

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.inner = nn.Linear(6, 6)
        self.own = self.inner.weight.detach().clone()

    def forward(self, x):
        return self.inner(x).relu()


def weights_of(activation, dropout=0.0, seed=3):
    network = partial(MLP, hidden=(6, 6), dropout=dropout)
    task = ClassificationTask(3, (4,), activation, network, seed=seed)
    inside = {id(p) for unit in task.activations for p in unit.parameters()}
    return task, [p for p in task.network.parameters() if id(p) not in inside]


def test_initial_weights_are_a_function_of_seed_and_layer():
    """Whatever unit or dropout stands between the layers: runs of one seed are paired."""
    _, expected = weights_of("relu")
    for activation in ("elu", "prelu", "soi", "torch.nn:RReLU", f"{__file__}:DrawsInConstructor"):
        for dropout in (0.0, 0.5):
            _, found = weights_of(activation, dropout)
            assert all(map(torch.equal, found, expected)), activation
    _, other = weights_of("relu", seed=4)
    assert not torch.equal(other[0], expected[0])
    assert not torch.equal(expected[2], expected[4])  # layers of equal shape differ


def test_units_keep_the_weights_that_they_made():
    task, _ = weights_of(f"{__file__}:DrawsInConstructor")
    assert len(task.activations) == 2
    for unit in task.activations:
        assert torch.equal(unit.inner.weight, unit.own)


def test_dropout_probabilities_are_not_rounded_to_a_networks_precision():
    members = [member(r, network=partial(FrameNetwork, dropout=0.3 + 0.1 * r)) for r in range(2)]
    stack = StackedTask(members).to(torch.bfloat16)
    (dropout,) = [m for m in stack.modules() if isinstance(m, Dropout)]
    x = torch.ones(2, 50, 8, dtype=torch.bfloat16)
    kept = dropout.train()(x)
    for r, p in enumerate((0.3, 0.4)):
        assert set(kept[r].unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).bfloat16().item()}
    assert dropout.p.flatten().tolist() == pytest.approx([0.3, 0.4], abs=1e-7)


class Asleep(FrameNetwork):
    """With a layer that its maker keeps in evaluation mode."""

    def __init__(self, act, num_classes, input_shape):
        super().__init__(act, num_classes, input_shape, dropout=0.5)
        self[2].eval()


def test_a_part_that_is_kept_in_evaluation_mode_stays_in_it(tmp_path):
    """Clean losses, tests and looks at units put the network into evaluation mode and back."""
    task = member(0, network=Asleep, activation="soi").double()
    watch = [TestEveryEpoch(), UnitStatistics(samples=10)]
    with pytest.warns(UserWarning, match="eval mode"):
        fitted(task, Frames(), tmp_path, *watch, max_epochs=2, num_sanity_val_steps=2)
    modes = {type(layer).__name__: layer.training for layer in task.network}
    assert modes == {"Linear": True, "SOI": True, "Dropout": False}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_means_of_half_precision_do_not_stand_still(dtype):
    """2,000 batches of one sample: in bfloat16 a sum of ones ends at 256."""
    means = Means()
    values = (torch.arange(2000) % 4 == 0).to(dtype)
    for value in values:
        quantity = Quantity(value.view(1))
        means.add("error", quantity.mean(), quantity.weight())
        means.add("errors", quantity.mean().view(1), quantity.weight())
    total, weight = means.take("error")
    assert float(total / weight) == pytest.approx(0.25)
    assert means.take_all()["errors"].item() == pytest.approx(0.25)
    assert not means.take_all()
    assert Quantity(values).mean() == pytest.approx(0.25)
    assert Quantity(values, torch.ones_like(values)).weight() == 2000


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_plateau_of_the_clean_loss_acts_with_and_without_randomness(tmp_path, dropout):
    plateau = Plateau(metric="train/clean_loss", shrink=0.1, patience=0, threshold=0.9)
    task = member(
        0, network=partial(FrameNetwork, dropout=dropout), schedules={"lr": plateau}
    ).double()
    trained(task, Frames(), tmp_path)
    assert task.moving.optimizer.param_groups[0]["lr"] < 0.1 * 0.5


def test_batch_norm_over_parts_of_a_batch_is_refused():
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    trainers: list[Any] = [
        SimpleNamespace(world_size=size, strategy=SimpleNamespace(_layer_sync=sync))
        for size, sync in ((1, None), (2, None), (2, object()))
    ]
    alone, apart, together = trainers
    for trainer in (alone, together):
        check_devices(trainer, network)
    check_devices(apart, network[:1])
    with pytest.raises(
        ActlabError, match=r"batch norm on 2 devices.*Set trainer\.sync_batchnorm to true"
    ):
        check_devices(apart, network)


def test_a_plateau_of_what_is_never_measured_is_refused():
    for metric, options, allowed in (
        ("val/lossy", {}, "did you mean 'val/loss'"),
        ("test/loss", {}, "val/loss"),
        ("train/clean_loss", {"clean_training_loss": False}, "train/loss"),
        ("train/penalised_loss", {}, "train/loss"),
    ):
        with pytest.raises(ActlabError, match=f"metric of a plateau schedule '{metric}'") as error:
            member(0, schedules={"lr": Plateau(metric)}, **options)
        assert allowed in str(error.value)


def test_a_schedule_of_dropout_on_a_network_without_it_is_rejected(cli, tmp_path, monkeypatch):
    """It would do nothing; torch's own Dropout has no probability that a schedule could scale."""
    monkeypatch.chdir(tmp_path)
    words = ["-c", "mnist_classifier", "--data.sample", "true", "--trainer.fast_dev_run", "1"]
    steps = "{class_path: actlab.optim.Steps, init_args: {factors: {1: 0.5}}}"
    words += ["--trainer.logger", "false", "--model.schedules", f"{{dropout: {steps}}}"]
    code, _, err = cli("fit", *words, "--model.network.dropout", "0")
    assert (code, err.count("\n")) == (2, 1)
    assert "model.schedules.dropout: expected a network with 'dropout', got none" in err
