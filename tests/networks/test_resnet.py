"""ResNet-20 for CIFAR: parameters, its block against the formula, initial weights."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from actlab.networks import ResNet
from actlab.networks.resnet import ResidualBlock

SMALL: dict[str, Any] = {"num_classes": 5, "input_shape": (3, 8, 8), "depth": 8}


@pytest.mark.parametrize(
    ("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)]
)
def test_it_has_the_papers_number_of_parameters(depth, millions):
    """He et al. 2015, Table 6."""
    with torch.device("meta"):
        network = ResNet(nn.ReLU, 10, depth=depth, channels_last=False)
    number = sum(p.numel() for p in network.parameters())
    assert number / 1e6 == pytest.approx(millions, abs=0.05 if depth == 110 else 0.006)
    assert len(network.blocks) == (depth - 2) // 2
    assert sum(isinstance(m, nn.ReLU) for m in network.modules()) == depth - 1
    if depth == 20:
        assert number == 269_722


@pytest.mark.parametrize(("fan_out", "stride"), [(4, 1), (8, 2)])
def test_a_block_computes_its_formula(fan_out, stride):
    block, x = ResidualBlock(nn.ELU, 4, fan_out, stride).double(), torch.randn(3, 4, 6, 6).double()
    shortcut = torch.zeros(3, fan_out, 6 // stride, 6 // stride).double()
    shortcut[:, :4] = x[:, :, ::stride, ::stride]
    first, second = (m for m in block.branch if isinstance(m, nn.Conv2d))
    assert first.bias is second.bias is None
    norm = lambda y: F.batch_norm(y, None, None, training=True)  # noqa: E731
    y = F.elu(norm(F.conv2d(x, first.weight, stride=stride, padding=1)))
    expected = F.elu(norm(F.conv2d(y, second.weight, padding=1)) + shortcut)
    torch.testing.assert_close(block(x), expected)


def test_maps_and_logits_have_the_papers_shapes():
    network, x = ResNet(nn.ReLU, 10).eval(), torch.zeros(2, 3, 32, 32)
    y, shapes = network.stem(x), []
    for block in network.blocks:
        y = block(y)
        shapes.append(tuple(y.shape[1:]))
    assert shapes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3
    assert network(x).shape == (2, 10)


def test_the_width_is_the_channels_of_the_first_stage():
    network = ResNet(nn.ReLU, 10, depth=8, width=6).eval()
    widths = [block.branch[0].out_channels for block in network.blocks]
    assert widths == [6, 12, 24]
    assert [block.stride for block in network.blocks] == [1, 2, 2]
    assert network.stem[0].out_channels == 6
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_initial_weights_follow_hes_rule():
    network = ResNet(nn.ReLU, 10)
    for layer in (m for m in network.modules() if isinstance(m, nn.Conv2d) and m.in_channels > 3):
        assert layer.weight.var().item() == pytest.approx(2 / layer.weight[0].numel(), rel=0.1)
    assert network.head[-1].weight.var().item() == pytest.approx(1 / 64, rel=0.2)
    assert not network.head[-1].bias.any()
