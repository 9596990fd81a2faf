"""Wide residual networks: the three blocks against their formulas, parameters, initial weights."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from actlab.networks import Dropout, WideResNet
from actlab.networks.init import weights_of_run
from actlab.networks.wide_resnet import BLOCKS

SMALL: dict[str, Any] = {"num_classes": 5, "input_shape": (3, 8, 8), "depth": 10, "widen": 2}


def original_parameters():
    """Zagoruyko & Komodakis: only the dense layer has biases; two batch norms a block, one last."""
    total, fan_in = 27 * 16, 16
    for width in (64, 128, 256):
        for number in range(6):
            total += (
                9 * width * (fan_in + width)
                + 2 * (fan_in + width)
                + (fan_in * width if number == 0 else 0)
            )
            fan_in = width
    return total + 2 * 256 + 256 * 100 + 100


PARAMETERS = {
    "paper": 8_972_884,  # GELU §3.5
    "paper_without_norm": 8_972_884 - 2 * 6 * (64 + 128 + 256),
    "original": original_parameters(),
}


@pytest.mark.parametrize("block", BLOCKS)
def test_wrn_40_4_has_the_papers_number_of_parameters(block):
    with torch.device("meta"):
        network = WideResNet(nn.ReLU, 100, block=block)
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[block]
    assert len(network.blocks) == 18


def normal(x, norm):
    """Batch norm in training mode."""
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
    gain, shift = (p.view(1, -1, 1, 1) for p in (norm.weight, norm.bias))
    return gain * (x - mean) / (variance + 1e-5).sqrt() + shift


def convolutions(block, stride):
    first, second = (m for m in block.branch if isinstance(m, nn.Conv2d))
    return (
        lambda x: F.conv2d(x, first.weight, first.bias, stride=stride, padding=1),
        lambda x: F.conv2d(x, second.weight, second.bias, padding=1),
    )


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(("fan_in", "stride"), [(6, 1), (4, 1), (4, 2), (6, 2)])
def test_blocks_are_their_formulas(name, fan_in, stride):
    """Without dropout, in training mode, with biases, gains and shifts of any value."""
    block = BLOCKS[name](nn.ELU, fan_in, 6, stride, 0.0).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    x, act = torch.randn(5, fan_in, 8, 8, dtype=torch.float64), F.elu
    first, second = convolutions(block, stride)
    norms = [m for m in block.modules() if isinstance(m, nn.BatchNorm2d)]
    y = x
    if name == "original":
        y = act(normal(x, norms[0]))
        branch = second(act(normal(first(y), norms[1])))
    else:
        branch = act(second(act(first(x))))
    if name == "paper":
        branch = normal(branch, norms[0])
    changes = fan_in != 6 or stride != 1
    assert (block.shortcut is not None) == changes
    past = F.conv2d(y, block.shortcut.weight, stride=stride) if changes else x
    torch.testing.assert_close(block(x), branch + past)
    assert len(norms) == {"paper": 1, "paper_without_norm": 0, "original": 2}[name]


@pytest.mark.parametrize("name", BLOCKS)
def test_where_dropout_stands(name):
    """Before the second convolution, behind an activation."""
    layers = [type(m) for m in BLOCKS[name](nn.ReLU, 4, 4, 1, 0.3).branch]
    place = layers.index(Dropout)
    assert (layers[place - 1], layers[place + 1], layers.count(Dropout)) == (nn.ReLU, nn.Conv2d, 1)


def test_stem_stages_and_head():
    with torch.device("meta"):
        network, x = WideResNet(nn.ReLU, 100).eval(), torch.zeros(1, 3, 32, 32)
    kinds = [type(m) for m in network.stem]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.BatchNorm2d]
    assert [type(m) for m in network.head][:3] == [nn.BatchNorm2d, nn.ReLU, nn.AdaptiveAvgPool2d]
    assert len(WideResNet(nn.ReLU, 100, block="original").stem) == 1
    x, shapes = network.stem(x), []
    for block in network.blocks:
        x = block(x)
        shapes.append(tuple(x.shape[1:3]))
    assert shapes == [*[(64, 32)] * 6, *[(128, 16)] * 6, *[(256, 8)] * 6]
    assert [i for i, block in enumerate(network.blocks) if block.shortcut is not None] == [0, 6, 12]
    assert network.head(x).shape == (1, 100)


def test_initial_weights_of_the_paper():
    """He, gain √2 in stem and blocks, 1 in the dense layer; Glorot in shortcuts; biases 0."""
    network = WideResNet(nn.ReLU, 100, depth=10)
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_out, fan_in = layer.weight.shape[0], layer.weight[0].numel()
            variance = 2 / fan_in
            if "shortcut" in name:
                variance = 2 / (fan_in + fan_out)
                assert layer.weight.abs().max() <= (6 / (fan_in + fan_out)) ** 0.5
            elif "head" in name:
                variance = 1 / fan_in
            assert layer.weight.std().item() == pytest.approx(variance**0.5, rel=0.12), name
            assert layer.bias is None or not layer.bias.any()


def test_blocks_of_one_seed_start_from_the_same_weights():
    """So runs that differ in the block are paired."""

    def weights(block):
        with weights_of_run(5, []):
            network = WideResNet(nn.ReLU, **SMALL, block=block)
        return [p for p in network.parameters() if p.dim() > 1]

    for block in BLOCKS:
        assert all(map(torch.equal, weights(block), weights("paper")))
