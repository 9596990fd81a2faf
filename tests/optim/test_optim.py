"""Schedules and groups of parameters, against values made by hand and torch's own optimisers."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from actlab import optim
from actlab.activations import create
from actlab.errors import ActlabError
from actlab.networks import Dropout
from actlab.optim import L2, Cosine, Linear, Plateau, Scheduler, Steps


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Linear(100, 200), {0: 1, 100: 1, 150: 0.5, 199: 0.01, 200: 0, 300: 0}),
        (Linear(0, 4, final=0.5), {0: 1, 2: 0.75, 4: 0.5}),
        (Cosine(50), {0: 1, 25: 0.5, 50: 0, 60: 0}),
        (Cosine(10, final=0.2), {0: 1, 5: 0.6, 10: 0.2}),
        (Cosine(39_000), {0: 1, 19_500: 0.5, 38_999: (math.pi / 39_000) ** 2 / 4}),  # GELU §3.5, CIFAR-100
        (Steps({100: 5 / 9}), {99: 1, 100: 5 / 9, 199: 5 / 9}),  # β₁ from 0.9 to 0.5 (GELU §3.5, CIFAR-10)
        (Steps({35: 0.5, 85: 0.05}), {0: 1, 34: 1, 35: 0.5, 84: 0.5, 85: 0.05, 900: 0.05}),
    ],
)
def test_a_schedule_returns_its_factor_for_each_epoch(schedule, factors):
    for at, factor in factors.items():
        assert schedule.factor(at) == pytest.approx(factor, abs=1e-12)


def test_equal_schedules_are_equal():
    assert Linear(1, 2) == Linear(1, 2)
    assert Linear(1, 2) == Linear(1, 2.0)
    assert hash(Linear(1, 2)) == hash(Linear(1, 2))
    assert Linear(1, 2) != Linear(1, 3)
    assert Linear(1, 2) != Linear(1, 2, by="update")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(5, 5), "'end' above 'start'"),
        (lambda: Cosine(0), "length 0"),
        (lambda: Steps({}), "increasing"),
        (lambda: Steps({3: 1.0, 2: 0.5}), "increasing"),
        (lambda: Plateau(shrink=1.5), "Plateau: shrink: expected a number less than 1, got 1.5"),
        (lambda: L2(-1.0), "strength: expected a number greater than or equal to 0"),
        (lambda: L2(1.0, of=["weigths"]), "did you mean 'weights'"),
    ],
    ids=["Linear", "Cosine", "Steps: none", "Steps: order", "Plateau", "L2: negative", "L2: spelling"],
)
def test_malformed_schedules_and_penalties_are_rejected(make, message):
    with pytest.raises(ActlabError, match=message):
        make()


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
    for epoch, update, lr, beta1, decay, p in ((0, 0, 0.1, 0.9, 0.3, 0.2), (2, 4, 0.05, 0.5, 0, 0.3)):
        scheduler.move(epoch, update)
        assert group["lr"] == pytest.approx(lr)
        assert group["betas"] == pytest.approx((beta1, 0.99))
        assert group["weight_decay"] == pytest.approx(decay)
        assert network[1].probability == pytest.approx(p)


def test_a_setting_that_the_optimiser_lacks_is_rejected():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(ActlabError, match="SGD has no 'beta1'"):
        Scheduler(optimizer, [{"beta1": Linear(1, 2)}], [0])
    with pytest.raises(ActlabError, match="did you mean 'lr'"):
        Scheduler(optimizer, [{"lrr": Linear(1, 2)}], [0])


@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateaus_are_torchs(mode):
    """The same rates as torch's ReduceLROnPlateau, whatever the course of the metric."""
    values = (torch.rand(200, generator=torch.Generator().manual_seed(3)) + 1 / torch.arange(1, 201)).tolist()
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


def test_kinds_of_parameters():
    unit = create("prelu")
    network = nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), unit, nn.Flatten(), nn.Linear(3, 1))
    assert optim.kinds(network, [unit]) == {
        "0.weight": "weights",
        "0.bias": "biases",
        "1.weight": "gains",
        "1.bias": "shifts",
        "2.weight": "units",
        "4.weight": "weights",
        "4.bias": "biases",
    }


class Language(nn.Module):
    """A model of words with the layers of a GPT, and tied weights if ``tied``."""

    def __init__(self, tied, head_first=False):
        super().__init__()
        if head_first:
            self.head = nn.Linear(4, 9, bias=False)
        self.words, self.bags = nn.Embedding(9, 4), nn.EmbeddingBag(9, 4)
        self.norm = nn.LayerNorm(4)
        self.positions = nn.Parameter(torch.ones(5, 4))
        if not head_first:
            self.head = nn.Linear(4, 9, bias=False)
        if tied:
            self.head.weight = self.words.weight


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head_first", [True, False])
def test_embeddings_are_a_kind_and_tied_weights_count_once(tied, head_first):
    first = {"head.weight": "weights"} if head_first else {"words.weight": "embeddings"}
    both = {"head.weight": "weights", "words.weight": "embeddings"}
    assert optim.kinds(Language(tied, head_first)) == {
        "positions": "weights",
        **(first if tied else both),
        "bags.weight": "embeddings",
        "norm.weight": "gains",
        "norm.bias": "shifts",
    }


@pytest.mark.parametrize("half", [True, False])
def test_l2_is_the_gradient_of_its_penalty(half):
    torch.manual_seed(0)
    network = nn.Linear(3, 2).double()
    strength, l2 = 0.05, L2(0.05, half=half, of=["weights"])
    named = dict(network.named_parameters())
    parts = optim.groups(optim.kinds(network), l2)
    optimizer = torch.optim.SGD([{"params": [named[n] for n in names], **own} for names, own in parts], lr=0.1)
    expected = {n: p.detach().clone() for n, p in named.items()}
    x = torch.randn(4, 3, dtype=torch.float64)
    penalty = strength * (0.5 if half else 1) * network.weight.square().sum()
    assert optim.penalty(optimizer).item() == pytest.approx(penalty.item())
    loss = network(x).square().mean() + penalty
    gradients = torch.autograd.grad(loss, list(named.values()))
    network(x).square().mean().backward()
    optimizer.step()
    for (name, parameter), gradient in zip(named.items(), gradients, strict=True):
        torch.testing.assert_close(parameter.detach(), expected[name] - 0.1 * gradient)


def test_without_a_penalty_there_is_one_group():
    names: dict[str, Any] = {"a": "weights", "b": "biases"}
    assert optim.groups(names, None) == [(["a", "b"], {})]
    assert optim.penalty(torch.optim.Adam([nn.Parameter(torch.ones(3))])) == 0
    assert optim.groups(names, L2(0.1, of=["weights", "biases"])) == [(["a", "b"], {"weight_decay": 0.1})]
