"""Schedules, their shares of the training and compositions, against closed forms and torch."""

import math
from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from actlab.errors import ActlabError
from actlab.networks import Dropout
from actlab.optim import L2, Cosine, Linear, Plateau, Schedule, Scheduler, Steps, Warmup
from actlab.stacking import StackedTask
from toys import Frames, FrameTask, assert_members, fitted


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Linear(100, 200), {0: 1, 100: 1, 150: 0.5, 199: 0.01, 200: 0, 300: 0}),
        (Linear(0, 4, final=0.5), {0: 1, 2: 0.75, 4: 0.5}),
        (Cosine(50), {0: 1, 25: 0.5, 50: 0, 60: 0}),
        (Cosine(10, final=0.2), {0: 1, 5: 0.6, 10: 0.2}),
        # GELU §3.5, CIFAR-100
        (
            Cosine(39_000),
            {0: 1, 19_500: 0.5, 38_999: (math.pi / 39_000) ** 2 / 4},
        ),
        # β₁ from 0.9 to 0.5 (GELU §3.5, CIFAR-10)
        (
            Steps({100: 5 / 9}),
            {99: 1, 100: 5 / 9, 199: 5 / 9},
        ),
        (Steps({35: 0.5, 85: 0.05}), {0: 1, 34: 1, 35: 0.5, 84: 0.5, 85: 0.05, 900: 0.05}),
    ],
)
def test_a_schedule_returns_its_factor_for_each_epoch(schedule, factors):
    for at, factor in factors.items():
        assert schedule.factor(at) == pytest.approx(factor, abs=1e-12)


def test_a_scheduler_moves_every_setting():
    dropout = Dropout(0.2)
    network = nn.Sequential(nn.Linear(2, 2), dropout)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1, betas=(0.9, 0.99), weight_decay=0.3)
    schedules = {
        "lr": Linear(1, 3),
        "beta1": Steps({2: 5 / 9}),
        "weight_decay": Cosine(4, by="update"),
        "dropout": Steps({1: 1.5}),
    }
    scheduler = Scheduler(optimizer, [schedules], [0], [dropout])
    (group,) = optimizer.param_groups
    for epoch, update, lr, beta1, decay, p in (
        (0, 0, 0.1, 0.9, 0.3, 0.2),
        (2, 4, 0.05, 0.5, 0, 0.3),
    ):
        scheduler.move(epoch, update)
        assert group["lr"] == pytest.approx(lr)
        assert group["betas"] == pytest.approx((beta1, 0.99))
        assert group["weight_decay"] == pytest.approx(decay)
        assert network[1].probability == pytest.approx(p)


def test_a_setting_that_the_optimiser_lacks_is_rejected():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(
        ActlabError, match=r"schedules\.beta1: expected an optimizer with 'beta1', got SGD"
    ):
        Scheduler(optimizer, [{"beta1": Linear(1, 2)}], [0])
    with pytest.raises(ActlabError, match="did you mean 'lr'"):
        Scheduler(optimizer, [{"lrr": Linear(1, 2)}], [0])


@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateaus_are_torchs(mode):
    """The same rates as torch's ReduceLROnPlateau, whatever the course of the metric."""
    values = (
        torch.rand(200, generator=torch.Generator().manual_seed(3)) + 1 / torch.arange(1, 201)
    ).tolist()
    ours, theirs = (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0) for _ in range(2))
    plateau = Plateau("val/loss", shrink=0.5, patience=3, threshold=1e-4, mode=mode)
    scheduler = Scheduler(ours, [{"lr": plateau}], [0])
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(
        theirs, mode=mode, factor=0.5, patience=3, threshold=1e-4, eps=0
    )
    for epoch, value in enumerate(values):
        scheduler.move(epoch, epoch)
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"])
        scheduler.observe({"val/loss": torch.tensor(value)})
        reference.step(value)
    assert ours.param_groups[0]["lr"] < 0.1


def test_a_value_that_is_not_finite_is_no_improvement():
    plateau = Plateau(patience=0)
    state = plateau.observe((), 1.0)
    for value in (math.nan, math.inf):
        assert plateau.observe(state, value)[0] == pytest.approx(0.1)


def factors(schedule, total):
    """The factor of each update of a training, as the optimiser's learning rate shows it."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = Scheduler(optimizer, [{"lr": schedule}], [0], total=lambda by: total)
    for at in range(total):
        scheduler.move(at, at)
        yield optimizer.param_groups[0]["lr"]


def gpt(k):
    return (k + 1) / 80 if k < 80 else 0.1 + 0.45 * (1 + math.cos(math.pi * (k - 80) / 720))


FORMS = {
    "gpt": (Warmup(0.1, then=Cosine(final=0.1)), gpt),
    "gpt in updates": (Warmup(80, then=Cosine(720, final=0.1)), gpt),
    "one cycle": (
        Warmup(0.3, 1 / 25, Cosine()),
        lambda k: (
            0.04 + 0.96 * (k + 1) / 240
            if k < 240
            else 0.5 + 0.5 * math.cos(math.pi * (k - 240) / 560)
        ),
    ),
    "triangle": (
        Warmup(0.5, then=Linear(by="update")),
        lambda k: (k + 1) / 400 if k < 400 else 1 - (k - 400) / 400,
    ),
    "trapezium": (
        Warmup(0.1, then=Linear(0.6, by="update")),
        lambda k: min((k + 1) / 80, 1, 1 - (k - 80 - 480) / 240),
    ),
    "steps": (
        Warmup(8, 0.1, Steps({0.5: 0.1, 0.75: 0.01}, by="update")),
        lambda k: 0.1 + 0.9 * (k + 1) / 8 if k < 8 else 1 if k < 408 else 0.1 if k < 608 else 0.01,
    ),
    "constant": (Warmup(0.25), lambda k: min((k + 1) / 200, 1)),
    "two warm-ups": (
        Warmup(100, then=Warmup(100, 0.5, Cosine())),
        lambda k: (
            (k + 1) / 100
            if k < 100
            else 0.5 + (k - 99) / 200
            if k < 200
            else 0.5 + 0.5 * math.cos(math.pi * (k - 200) / 600)
        ),
    ),
    "cosine of epochs": (Cosine(by="epoch"), lambda k: 0.5 + 0.5 * math.cos(math.pi * k / 800)),
    "share of epochs": (
        Linear(0.25, 0.75, 0.5),
        lambda k: 1 - 0.5 * min(max((k - 200) / 400, 0), 1),
    ),
}


@pytest.mark.parametrize(("schedule", "form"), FORMS.values(), ids=FORMS)
def test_shares_and_compositions_are_their_closed_forms(schedule, form):
    assert list(factors(schedule, 800)) == pytest.approx([form(k) for k in range(800)], abs=1e-12)


@pytest.mark.parametrize("total", [1, 2, 3, 7])
@pytest.mark.parametrize(("schedule", "form"), FORMS.values(), ids=FORMS)
def test_each_length_is_at_least_one_update_in_the_shortest_training(schedule, form, total):
    found = list(factors(schedule, total))
    assert all(0 <= factor <= 1 for factor in found)
    assert (
        isinstance(schedule, Warmup) is (found[0] != 1)
        or schedule.over(lambda by: total).length == 1
    )


class Halving(Schedule):
    """A user's own, written before there were shares."""

    def __init__(self, every):
        super().__init__("update")
        self.every = every

    def factor(self, at):
        return 0.5 ** (at // self.every)


def test_a_users_schedule_follows_a_warmup():
    found = list(factors(Warmup(2, then=Halving(3)), 9))
    assert found == [0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25]


def test_equal_schedules_and_compositions_are_equal():
    make = lambda final=0.1: Warmup(0.1, then=Cosine(final=final))  # noqa: E731
    for one, equal, others in (
        (Linear(1, 2), Linear(1, 2.0), [Linear(1, 3), Linear(1, 2, by="update")]),
        (make(), make(), [make(0.2), Warmup(0.1)]),
    ):
        assert one == equal
        assert hash(one) == hash(equal)
        assert all(one != other for other in others)
    assert hash(Steps({1: 1})) == hash(Steps({1: 1.0}))
    read: Any = {"1": 1.0}  # as a record has it
    assert Steps({1: 1}) == Steps(read)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Warmup(0),
            "length of a schedule: expected a whole number of epochs or updates from 1, .* got 0",
        ),
        (lambda: Warmup(1.0), "share of the training between 0 and 1, .* got 1.0"),
        (lambda: Warmup(3, start=1.0), "Warmup: start: expected a number less than 1, got 1.0"),
        (
            lambda: Warmup(3, then=Plateau()),
            "expected Cosine, Linear or Steps, got Plateau, which follows a metric",
        ),
        (
            lambda: Warmup(3, then=Linear()),
            r"a schedule by update, .* got Linear by epoch\. Set the same 'by'",
        ),
        (lambda: Cosine(-0.1), "length of a schedule: .* got -0.1"),
        (
            lambda: Cosine(math.nan),
            "Cosine: length: expected a whole number or a finite number, got nan",
        ),
        (lambda: Linear(3, 0.5), "both as whole numbers or both as shares"),
        (lambda: Linear(0.6, 0.5), "a 'start' from 0 and a larger 'end'"),
        (lambda: Steps({0.5: 0.1, 3: 0.01}), "only whole numbers or only shares of the training"),
        (lambda: Steps({1.5: 0.1}), "step of a schedule: .* got 1.5"),
        (lambda: Steps({"x": 0.1}), "step of a schedule: .* got 'x'"),  # type: ignore[dict-item]
        (lambda: Cosine().factor(3), "depends on the training"),
        (lambda: Linear(5, 5), "a 'start' from 0 and a larger 'end'"),
        (lambda: Cosine(0), "length of a schedule: .* got 0"),
        (lambda: Steps({}), "increasing"),
        (lambda: Steps({3: 1.0, 2: 0.5}), "increasing"),
        (lambda: Plateau(shrink=1.5), "Plateau: shrink: expected a number less than 1, got 1.5"),
        (lambda: L2(-1.0), "strength: expected a number greater than or equal to 0"),
        (lambda: L2(1.0, of=["weigths"]), "did you mean 'weights'"),
    ],
)
def test_malformed_schedules_and_penalties_are_rejected_in_one_line(make, message):
    with pytest.raises(ActlabError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


class Rates(pl.Callback):
    """The learning rate of each update, and of each group if there are several."""

    def __init__(self):
        self.seen = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        rates = [group["lr"] for group in optimizer.param_groups]
        self.seen.append(rates[0] if len(rates) == 1 else rates)


def frames(schedule, seed=0):
    return FrameTask(seed, partial(torch.optim.SGD, lr=1.0), schedules={"lr": schedule})


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, 12),
        ({"accumulate_grad_batches": 2}, 6),
        ({"max_steps": 7}, 7),
        ({"max_epochs": -1, "max_steps": 10}, 10),
        ({"limit_train_batches": 3}, 9),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_a_share_is_of_all_updates_that_the_trainer_plans(tmp_path, options, total):
    rates = Rates()
    fitted(frames(Warmup(0.5, then=Linear(by="update"))), Frames(), tmp_path, rates, **options)
    up = round(total / 2)
    form = [(k + 1) / up if k < up else 1 - (k - up) / (total - up) for k in range(total)]
    assert rates.seen == pytest.approx(form)


def test_a_share_by_epoch_is_of_max_epochs(tmp_path):
    rates = Rates()
    fitted(
        frames(Warmup(0.5, then=Cosine(by="epoch"), by="epoch")),
        Frames(),
        tmp_path,
        rates,
        max_epochs=4,
    )
    assert rates.seen == pytest.approx([0.5] * 4 + [1.0] * 8 + [0.5] * 4)  # 4 updates an epoch


@pytest.mark.parametrize("by", ["epoch", "update"])
def test_a_training_without_end_has_no_shares(tmp_path, by):
    options = {"max_epochs": -1, "max_steps": 4 if by == "epoch" else -1}
    remedy = (
        "Set trainer.max_epochs, or"
        if by == "epoch"
        else "Set trainer.max_steps or trainer.max_epochs, or"
    )
    with pytest.raises(
        ActlabError, match=f"requires a number of {by}s. {remedy} use whole numbers of {by}s"
    ):
        fitted(frames(Cosine(by=by)), Frames(), tmp_path, **options)


def test_members_of_a_stack_follow_their_own_shares(tmp_path):
    schedules = [Warmup(0.5), Warmup(0.25, then=Cosine()), Warmup(0.25, then=Cosine())]
    stacked, alone = Rates(), [Rates() for _ in schedules]
    stack = StackedTask([frames(one, r) for r, one in enumerate(schedules)])
    fitted(stack, Frames(seed=[0, 1, 2]), tmp_path, stacked)
    tasks = [frames(one, r) for r, one in enumerate(schedules)]
    for r, (task, rates) in enumerate(zip(tasks, alone, strict=True)):
        fitted(task, Frames(seed=r), tmp_path, rates)
    assert_members(stack, tasks)
    assert stacked.seen == [list(pair) for pair in zip(alone[0].seen, alone[1].seen, strict=True)]
    assert alone[1].seen == alone[2].seen
