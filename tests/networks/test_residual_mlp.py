"""The residual MLP against its formula, its shapes, parameters and initial weights, in stacks."""

from functools import partial

import pytest
import torch
from torch import nn

from actlab.datamodules import TableDataModule
from actlab.networks import ResidualMLP
from actlab.networks.init import weights_of_run
from actlab.stacking.task import reason_against
from actlab.tasks import ClassificationTask
from stacking.equality import assert_trains_as_alone

RUNS = 3


def test_it_has_the_stated_parameters():
    network = ResidualMLP(nn.GELU, 26)
    assert sum(p.numel() for p in network.parameters()) == 28_250
    assert network(torch.zeros(3, 16)).shape == (3, 26)
    assert ResidualMLP(nn.GELU, 5, (2, 4))(torch.zeros(3, 2, 4)).shape == (3, 5)
    assert len([part for part in network.modules() if isinstance(part, nn.GELU)]) == 4


def normed(x, norm):
    variance = x.var(-1, correction=0, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt() * norm.weight + norm.bias


def test_it_computes_its_formula():
    network = ResidualMLP(nn.Tanh, 5, (7,), width=6, blocks=2).double()
    for p in network.parameters():  # also biases, and gains of the norms
        nn.init.normal_(p, std=0.5)
    rows = torch.randn(4, 7, dtype=torch.float64)

    x = rows @ network.stem[1].weight.T + network.stem[1].bias
    for block in network.blocks:
        hidden = torch.tanh(normed(x, block.norm) @ block.up.weight.T + block.up.bias)
        x = x + hidden @ block.down.weight.T + block.down.bias
    norm, _, linear = network.head
    expected = torch.tanh(normed(x, norm)) @ linear.weight.T + linear.bias
    torch.testing.assert_close(network(rows), expected, rtol=1e-9, atol=1e-10)


def test_weights_have_the_variance_of_their_rule_and_no_bias():
    with weights_of_run(3, []):
        network = ResidualMLP(nn.GELU, 26, (400,), width=400)
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            assert layer.weight.std().item() == pytest.approx(1 / 20, rel=0.02)
            assert not layer.bias.any()


def task(seed, activation="gelu"):
    return ClassificationTask(
        5,
        (16,),
        activation=activation,
        network=partial(ResidualMLP, width=8, blocks=2),
        optimizer=partial(torch.optim.Adam, lr=0.01 * (seed + 1)),
        seed=seed,
    ).double()


def batches():
    data = TableDataModule(sample=True, batch_size=200)
    data.seed = list(range(RUNS))
    return [(x.double(), y) for x, y in data.train_dataloader()]


@pytest.mark.parametrize("activation", ["gelu", {"name": "prelu", "per_channel": True}, "soi"])
def test_stacked_equals_alone(activation):
    make = partial(task, activation=activation)
    assert reason_against(make(0)) is None
    assert_trains_as_alone(make, batches)
