"""What is logged of training batches: metrics and the penalised loss, alone and in stacks."""

import inspect
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from actlab.checks.configs import _metrics
from actlab.errors import ActlabError
from actlab.optim import L2, AdamEpsilonInRoot, Cosine, Linear, Steps
from actlab.stacking import StackedTask
from actlab.tasks import ClassificationTask
from toys import FrameNetwork, Frames, FrameTask, assert_members, fitted

STRENGTH = 0.03
SCHEDULES = {
    "none": {},
    "decay": {"weight_decay": Cosine(9)},
    # As GELU §3.5 has them, CIFAR-10
    "lr and beta1": {
        "lr": Linear(0, 3),
        "beta1": Steps({1: 5 / 9}),
    },
}


class Watch(pl.Callback):
    """Penalty and errors of each batch, by hand."""

    def __init__(self, factors=lambda step: 1.0):
        self.factors = factors
        self.seen = []

    def on_train_epoch_start(self, trainer, pl_module):
        self.seen = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        weights = [layer.weight.detach() for layer in pl_module.network if hasattr(layer, "weight")]
        squares = sum((weight.numpy() ** 2).sum() for weight in weights)
        penalty = STRENGTH * self.factors(trainer.global_step) * squares
        before = {n: v.clone() for n, v in pl_module.network.state_dict().items()}
        pl_module.stream.move(trainer.current_epoch, batch_idx)
        with torch.no_grad():
            wrong = pl_module(batch[0]).argmax(-1) != batch[1]
        assert all(torch.equal(before[n], v) for n, v in pl_module.network.state_dict().items())
        self.seen.append((penalty, np.average(wrong, weights=batch[2]), batch[2].sum().item()))

    def mean(self, column):
        return np.average([row[column] for row in self.seen], weights=[row[2] for row in self.seen])


def trained(task, data, tmp_path, *callbacks):
    fitted(task, data, tmp_path, *callbacks, max_epochs=2, log_every_n_steps=1)
    return task


def task(r, schedules=None, optimizer=AdamEpsilonInRoot, half=False, **options):
    return FrameTask(
        r,
        partial(optimizer, lr=0.02 / (r + 1)),
        network=partial(FrameNetwork, dropout=0.3),
        training_metrics=["error"],
        schedules=schedules,
        l2=L2(STRENGTH * (1 + r), half=half),
        **options,
    )


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("schedules", SCHEDULES.values(), ids=SCHEDULES)
def test_the_penalised_loss_and_the_training_error_by_hand(tmp_path, schedules, half):
    decay = schedules.get("weight_decay")
    watch = Watch(decay.factor if decay else lambda step: 1.0)
    logged = trained(
        task(0, schedules, half=half), Frames(), tmp_path, watch
    ).trainer.callback_metrics
    penalty = logged["train/penalised_loss"] - logged["train/loss"]
    assert penalty.item() == pytest.approx(watch.mean(0) * (0.5 if half else 1))
    assert logged["train/error"].item() == pytest.approx(watch.mean(1))


@pytest.mark.parametrize(
    ("schedules", "activation"), [("none", "elu"), ("decay", "prelu"), ("lr and beta1", "prelu")]
)
def test_a_stack_logs_what_its_members_log_alone(tmp_path, schedules, activation):
    make = partial(task, schedules=SCHEDULES[schedules], activation=activation)
    singles = [trained(make(r), Frames(seed=r), tmp_path) for r in range(2)]
    stack = trained(StackedTask([make(r) for r in range(2)]), Frames(seed=[0, 1]), tmp_path)
    for r, one in enumerate(singles):
        own = {
            n: v.item() for n, v in one.trainer.callback_metrics.items() if n.startswith("train")
        }
        assert own.keys() == {
            f"train/{n}" for n in ("loss", "clean_loss", "penalised_loss", "error")
        }
        # Metrics are float32
        assert own == pytest.approx({name: stack.latest[name][r].item() for name in own}, rel=1e-6)
    assert_members(stack, singles)


def test_without_them_nothing_more_is_logged(tmp_path):
    logged = trained(FrameTask(0), Frames(), tmp_path).trainer.callback_metrics
    assert {name for name in logged if name.startswith("train")} == {
        "train/loss",
        "train/clean_loss",
    }


def test_classification_gives_what_is_asked_for_in_training():
    for metrics in ((), ("error",), ("error", "accuracy")):
        one = ClassificationTask(3, (4,), training_metrics=metrics).train()
        found = one.measured((torch.zeros(5, 4), torch.zeros(5, dtype=torch.int64)))
        assert set(one.trained) == {"loss", *metrics}
        assert found.keys() >= set(one.trained)
        assert len(found) == (3 if metrics else 1)


def test_an_unknown_training_metric_is_rejected():
    with pytest.raises(ActlabError, match="did you mean 'error'"):
        ClassificationTask(training_metrics=["eror"])


def planned(**arguments):
    """The metrics that a plan expects of a classification task."""
    return _metrics(
        {"model": {"class_path": "actlab.tasks.ClassificationTask", "init_args": arguments}}
    )


def test_studies_know_that_they_will_come():
    penalised = planned(training_metrics=["error"], l2={"class_path": "actlab.optim.L2"})
    assert penalised >= {"train/error", "train/penalised_loss"}
    assert not planned(training_metrics=["error"]) & {"train/penalised_loss", "train/accuracy"}


DECAYING = [
    kind
    for kind in vars(torch.optim).values()
    if inspect.isclass(kind) and "weight_decay" in inspect.signature(kind).parameters
]
OPTIMIZERS = [
    *((kind, {}) for kind in [*DECAYING, AdamEpsilonInRoot]),
    *((kind, {"decoupled_weight_decay": True}) for kind in (torch.optim.Adam, torch.optim.NAdam)),
]


def changed(make, gradient, **settings):
    weight = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    optimizer = make([weight], lr=0.1, **settings)
    for _ in range(2):
        weight.grad = gradient(weight.detach()).clone()
        optimizer.step()
    return weight.detach()


def test_a_penalised_loss_is_logged_where_the_decay_is_the_gradient_of_a_penalty():
    """The step with decay equals one with the gradient of ½λw²; a plan knows whether it does."""
    slope = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    for kind, settings in OPTIMIZERS:
        make = partial(kind, **settings)
        ours = changed(make, lambda w: slope, weight_decay=0.3)
        plain = changed(make, lambda w: slope + 0.3 * w, weight_decay=0)
        is_penalty = torch.allclose(ours, plain)
        task = FrameTask(0, partial(kind, lr=0.1, **settings), l2=L2(0.3))
        assert task.penalised is is_penalty
        optimizer = {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": settings}
        found = planned(l2={"strength": 0.3}, optimizer=optimizer)
        assert found is not None
        assert ("train/penalised_loss" in found) is is_penalty


def test_a_plan_knows_an_optimiser_by_each_of_its_spellings_and_leaves_that_of_a_user_open():
    assert planned(l2={"strength": 0.3}, optimizer={"class_path": "own.Optimizer"}) is None
    for optimizer in ("AdamW", "torch.optim.AdamW", {"class_path": "AdamW", "init_args": {}}):
        found = planned(l2={"strength": 0.3}, optimizer=optimizer)
        assert found is not None
        assert "train/penalised_loss" not in found


class Configured(torch.optim.AdamW):
    """A user's own, with arguments of torch's."""

    def __init__(self, params, **settings):
        super().__init__(params, **settings)


def test_a_users_decoupled_optimiser_takes_the_decay_of_kinds(tmp_path):
    task = trained(FrameTask(0, Configured, l2=L2(0.3)), Frames(), tmp_path)
    assert [group["weight_decay"] for group in task.trainer.optimizers[0].param_groups] == [
        0.3,
        0.0,
    ]


def test_a_decoupled_decay_is_of_the_chosen_kinds_alone(tmp_path):
    """AdamW by hand: with gradients of 0 a weight shrinks by 1 − lr · decay, a bias stays."""
    one = FrameTask(0, partial(torch.optim.AdamW, lr=0.1), l2=L2(0.5, of=["weights"])).double()
    optimizer = one.configure_optimizers()
    before = {name: value.detach().clone() for name, value in one.network.named_parameters()}
    for parameter in one.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, value in one.network.named_parameters():
        factor = 1 - 0.1 * 0.5 if name.endswith("weight") else 1.0
        torch.testing.assert_close(value.detach(), factor * before[name])
    logged = trained(one, Frames(), tmp_path).trainer.callback_metrics
    assert {"train/loss", "train/clean_loss"} <= logged.keys()
    assert "train/penalised_loss" not in logged
