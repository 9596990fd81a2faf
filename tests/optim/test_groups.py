"""Kinds and groups of parameters, and the penalty of weight decay."""

from typing import Any

import pytest
import torch
from torch import nn

from actlab import optim
from actlab.activations import create
from actlab.optim import L2


def test_kinds_of_parameters():
    activation = create("prelu")
    network = nn.Sequential(
        nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), activation, nn.Flatten(), nn.Linear(3, 1)
    )
    assert optim.kinds(network, [activation]) == {
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
    optimizer = torch.optim.SGD(
        [{"params": [named[n] for n in names], **own} for names, own in parts], lr=0.1
    )
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
    assert optim.groups(names, L2(0.1, of=["weights", "biases"])) == [
        (["a", "b"], {"weight_decay": 0.1})
    ]
