"""Stacks: R members trained as one are the R runs trained alone."""

from functools import partial

import pytest
import torch
from torch import nn

from actlab.networks import MLP, Dropout
from actlab.optim import AdamEpsilonInRoot, Steps
from actlab.stacking import StackedTask, layers
from actlab.tasks import ClassificationTask
from stacking.equality import assert_trains_as_alone
from toys import trained_together

MEMBERS = [(seed, lr) for lr in (0.1, 0.01, 0.003) for seed in (0, 1)]
SMALL = partial(MLP, hidden=(12, 9))


def member(seed, lr, activation="gelu", dropout=0.0, optimizer=torch.optim.Adam, **settings):
    return ClassificationTask(
        num_classes=4,
        input_shape=(7,),
        activation=activation,
        network=partial(SMALL, dropout=dropout),
        optimizer=partial(optimizer, lr=lr, **settings),
        seed=seed,
    ).double()


def batches(steps, shape=(16, 7)):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(len(MEMBERS), *shape, generator=generator, dtype=torch.float64)
        yield x, torch.randint(4, (len(MEMBERS), shape[0]), generator=generator)


class Block(nn.Module):
    """A composite of a user's own."""

    stochastic = False

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(9, 9), nn.Tanh())

    def forward(self, x):
        return x + self.inner(x)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.SGD, {"weight_decay": 0.01}),
        (torch.optim.Adam, {"weight_decay": 0.01}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
        (torch.optim.RMSprop, {}),
        (torch.optim.NAdam, {}),
        (AdamEpsilonInRoot, {"betas": (0.8, 0.99), "weight_decay": 0.01}),
    ],
)
def test_each_update_is_that_of_the_optimiser_alone(optimizer, settings):
    make = lambda r: member(*MEMBERS[r], "elu", optimizer=optimizer, **settings)  # noqa: E731
    assert_trains_as_alone(make, partial(batches, 5), len(MEMBERS), rtol=1e-9, atol=1e-12)


def test_equal_settings_share_a_parameter_group():
    stack = StackedTask([member(seed, lr) for seed, lr in MEMBERS])
    optimizer = stack.configure_optimizers()
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01, 0.003]
    assert all(len(p) == 2 for group in optimizer.param_groups for p in group["params"])


def test_dropout_may_differ_between_members():
    rates = (0.2, 0.2, 0.5, 0.5, 0.7, 0.7)
    assert_trains_as_alone(
        lambda r: member(r, 0.01, dropout=rates[r]), partial(batches, 4), len(rates)
    )


def test_a_stack_goes_to_another_device_whole():
    tasks = [member(r, 0.01, "soi", dropout=p) for r, p in enumerate((0.2, 0.5, 0.7))]
    stack = StackedTask(tasks).to("meta").train()
    batch = torch.empty(3, 16, 7, dtype=torch.float64), torch.zeros(3, 16, dtype=torch.int64)
    loss = stack.training_step(tuple(t.to("meta") for t in batch), 0)
    assert loss.device.type == "meta"
    assert {name.rpartition(".")[2] for name in stack.network.state_dict()} == {"weight", "bias"}


def test_a_member_that_diverges_does_not_disturb_the_others():
    wild = [
        member(seed, 1e200 if r == 2 else 0.01, optimizer=torch.optim.SGD)
        for r, (seed, _) in enumerate(MEMBERS)
    ]
    calm = [member(seed, 0.01, optimizer=torch.optim.SGD) for seed, _ in MEMBERS]
    _, with_wild = trained_together(wild, batches(4))
    _, without = trained_together(calm, batches(4))
    assert not with_wild[2].isfinite().all()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(with_wild[others], without[others])


@pytest.mark.parametrize("rates", [(0.3,) * 6, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)])
def test_dropout_moves_by_each_members_own_schedule(rates):
    def tasks():
        for factor, p, (seed, lr) in zip(
            (1.1, 0.7, 1.3, 0.9, 1.0, 0.3), rates, MEMBERS, strict=True
        ):
            task = member(seed, lr, dropout=p).float()
            task.schedules = {"dropout": Steps({0: factor}, by="update")}
            yield task

    def dropped(task, x):
        task.configure_optimizers()
        task.moving.move(0, 0)
        task.stream.move(0, 0)
        return next(m for m in task.network.modules() if isinstance(m, Dropout)).train()(x)

    x = torch.ones(len(MEMBERS), 16, 12)
    alone = [dropped(task, x[r]) for r, task in enumerate(tasks())]
    assert torch.equal(dropped(StackedTask(list(tasks())), x), torch.stack(alone))


def test_a_stacks_dropout_is_moved_to_its_inputs():
    dropout = Dropout(0.3)
    dropout.set_scale(torch.tensor([[0.5], [1.0]], dtype=torch.float64))
    # Refuses tensors of another device, as an accelerator does
    x = torch.ones(2, 3, 4, device="meta")
    assert dropout(x).device == x.device


def test_schedules_follow_each_members_own_rate():
    tasks = [member(seed, lr) for seed, lr in MEMBERS]
    for task in tasks:
        task.scheduler = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    configured = StackedTask(tasks).configure_optimizers()
    configured["optimizer"].step()
    configured["lr_scheduler"]["scheduler"].step()
    assert [group["lr"] for group in configured["optimizer"].param_groups] == [0.05, 0.005, 0.0015]


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (SMALL(nn.ReLU, 4, (7,)), None),
        (nn.Linear(3, 4), None),
        # small, so member by member
        (
            nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()),
            None,
        ),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), "Conv2d has no stacked form"),
        (nn.Sequential(nn.Flatten(), nn.LSTM(3, 4)), "LSTM has no stacked form"),
        (Block(), "Block has no stacked form"),
    ],
)
def test_what_can_be_stacked(network, reason):
    found = layers.reason_against(network)
    assert found is None if reason is None else reason in found
