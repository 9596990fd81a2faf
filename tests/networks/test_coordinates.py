"""The initial weights of a network of coordinates, and that seeds share them."""

import math

import pytest
import torch
from torch import nn

from actlab.networks import CoordinateMLP
from actlab.networks.init import weights_of_run


def layers(seed=0, act=nn.GELU, **options):
    with weights_of_run(seed, []):
        network = CoordinateMLP(act, 3, (2,), **{"hidden": (512, 512), **options})
    return [module for module in network.requires_grad_(False) if isinstance(module, nn.Linear)]


def test_weights_have_the_gain_and_no_bias():
    for layer in layers(gain=1.7):
        assert float(layer.weight.std()) == pytest.approx(
            1.7 / math.sqrt(layer.in_features), rel=0.1
        )
        assert not layer.bias.any()


def test_omega_scales_the_first_layer_and_its_biases_alone():
    first, second, _ = layers(omega=30.0)
    assert float(first.weight.std()) == pytest.approx(30 / math.sqrt(2), rel=0.1)
    assert 29 < float(first.bias.abs().max()) <= 30
    assert float(second.weight.std()) == pytest.approx(1 / math.sqrt(512), rel=0.1)


def test_a_head_of_torch_is_uniform():
    *_, head = layers(head="torch")
    for values in (head.weight, head.bias):
        assert 0 < float(values.abs().max()) <= 1 / math.sqrt(512)
    assert float(head.weight.std()) == pytest.approx(1 / math.sqrt(3 * 512), rel=0.1)


def test_runs_of_a_seed_share_their_weights_whatever_the_activation_and_settings():
    for one, other in zip(layers(3, omega=2.0), layers(3, nn.Tanh, omega=4.0), strict=True):
        ratio = 2.0 if one.in_features == 2 else 1.0
        torch.testing.assert_close(one.weight * ratio, other.weight)
        torch.testing.assert_close(one.bias * ratio, other.bias)
    assert not layers(3)[1].weight.equal(layers(4)[1].weight)
