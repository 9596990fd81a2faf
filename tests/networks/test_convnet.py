"""The nine-layer network of CIFAR-10: its layers, shapes, initial weights, memory order."""

from typing import Any

import pytest
import torch
from torch import nn

from actlab.networks import ConvNet, Dropout

TINY: dict[str, Any] = {"num_classes": 5, "input_shape": (2, 12, 12), "widths": (3, 4)}


def test_it_has_the_papers_parameters():
    network = ConvNet(nn.ReLU, 10)
    assert sum(p.numel() for p in network.parameters()) == 1_408_244
    norms = (nn.BatchNorm1d, nn.BatchNorm2d)
    assert all(
        isinstance(layer, norms) or getattr(layer, "bias", None) is None for layer in network
    )


def test_its_layers_are_the_papers_table():
    """GELU, appendix: kernel, width and map of each layer; batch norm stands before every unit."""
    network, x, found = ConvNet(nn.ReLU, 10).eval(), torch.zeros(2, 3, 32, 32), []
    layers = list(network)
    for number, layer in enumerate(layers):
        x = layer(x)
        match layer:
            case nn.Conv2d():
                found.append(("conv", layer.kernel_size[0], *x.shape[1:3]))
                assert [type(m) for m in layers[number + 1 : number + 3]] == [
                    nn.BatchNorm2d,
                    nn.ReLU,
                ]
            case nn.MaxPool2d():
                found.append(("pool", *x.shape[1:3]))
            case Dropout():
                found.append(("dropout", layer.p))
    assert found == [
        *[("conv", 3, 96, 32)] * 3,
        *[("pool", 96, 16), ("dropout", 0.5)],
        *[("conv", 3, 192, 16)] * 3,
        *[("pool", 192, 8), ("dropout", 0.5)],
        ("conv", 3, 192, 6),
        *[("conv", 1, 192, 6)] * 2,
    ]
    assert [type(m) for m in layers[-4:]] == [
        nn.AdaptiveAvgPool2d,
        nn.Flatten,
        nn.Linear,
        nn.BatchNorm1d,
    ]
    assert x.shape == (2, 10)


def test_weights_are_uniform_by_glorots_rule():
    network = ConvNet(nn.ReLU, 10)
    for layer in (m for m in network if isinstance(m, nn.Conv2d | nn.Linear)):
        fan_out, fan_in, *kernel = layer.weight.shape
        bound = (6 / ((fan_in + fan_out) * torch.tensor(kernel).prod().item())) ** 0.5
        assert layer.weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
