"""Networks: the papers' shapes and parameter counts, initialisation rules, dropout."""

from functools import partial

import pytest
import torch
from torch import nn

from actlab.errors import ActlabError
from actlab.networks import (
    GPT,
    INIT_RULES,
    MLP,
    Autoencoder,
    ConvNet,
    ConvStacks,
    CoordinateMLP,
    Dropout,
    PyramidNet,
    ResNet,
    WideResNet,
    initialise,
)
from actlab.networks.init import weights_of_run


def test_the_mnist_classifier_has_the_papers_parameters():
    network = MLP(nn.ReLU, 10)
    assert sum(p.numel() for p in network.parameters()) == 217_354
    assert network(torch.zeros(3, 1, 28, 28)).shape == (3, 10)


def test_the_autoencoder_has_the_papers_parameters():
    network = Autoencoder(nn.ReLU, 784)
    assert sum(p.numel() for p in network.parameters()) == 2_837_314
    linear = [m for m in network if isinstance(m, nn.Linear)]
    assert [m.in_features for m in linear] == [784, 1000, 500, 250, 30, 250, 500, 1000]
    assert [type(m) for m in network] == [nn.Flatten, *[nn.Linear, nn.ReLU] * 7, nn.Linear]
    assert network(torch.zeros(3, 1, 28, 28)).shape == (3, 784)
    for layer in linear:
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(layer.out_features))
        assert not layer.bias.any()


def test_every_site_has_its_own_activation():
    activations = [m for m in MLP(nn.PReLU, 10) if isinstance(m, nn.PReLU)]
    assert len(activations) == len({id(activation) for activation in activations}) == 8


def test_no_hidden_layer_is_a_linear_classifier():
    network = MLP(nn.ReLU, 5, (4,), hidden=())
    assert [type(m) for m in network] == [nn.Flatten, nn.Linear]


@pytest.mark.parametrize(
    ("rule", "variance"), [("he", 2 / 400), ("he_gain_1", 1 / 400), ("glorot", 2 / (400 + 300))]
)
def test_variance_of_the_other_rules(rule, variance):
    layer = nn.Sequential(nn.Linear(400, 300))
    initialise(layer, rule)
    assert layer[0].weight.var().item() == pytest.approx(variance, rel=0.02)


@pytest.mark.parametrize("rule", INIT_RULES)
def test_rules_serve_convolutions(rule):
    network = nn.Sequential(nn.Conv2d(3, 8, 3))
    initialise(network, rule)
    assert network[0].weight.isfinite().all()
    assert not network[0].bias.any()


def test_a_layer_may_have_a_rule_of_its_own():
    network = nn.Sequential(nn.Linear(400, 300), nn.Linear(300, 300))
    initialise(network, "unit_norm_rows", {network[1]: "he"})
    assert torch.allclose(network[0].weight.norm(dim=1), torch.ones(300))
    assert network[1].weight.var().item() == pytest.approx(2 / 300, rel=0.02)
    with pytest.raises(ActlabError, match="did you mean 'he'"):
        initialise(network, "glorot", {network[1]: "hee"})


def test_dropout_keeps_the_expectation():
    x = torch.full((200, 500), 2.0)
    dropout = Dropout(0.3)
    y = dropout(x)
    assert y.unique().tolist() == pytest.approx([0, 2 / 0.7])
    assert y.mean().item() == pytest.approx(2, abs=4 * 2 * (0.3 / 0.7 / 100_000) ** 0.5)
    assert torch.equal(dropout.eval()(x), x)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_dropout_wants_a_drop_probability(p):
    with pytest.raises(ActlabError, match=r"\[0, 1\)"):
        Dropout(p)


CONVOLUTIONAL = {
    "convnet": partial(ConvNet, widths=(3, 4), dropout=0.0),
    "pyramid": partial(
        PyramidNet, stacks=((1, 3, 6), (2, 4, 3)), levels=(1, 2), dense=(8, 6), dropout=0.0
    ),
    "wide": partial(WideResNet, depth=10, widen=2, dropout=0.0),
    "residual": partial(ResNet, depth=8),
}


@pytest.mark.parametrize("network", CONVOLUTIONAL.values(), ids=CONVOLUTIONAL)
def test_the_memory_order_changes_speed_alone(network):
    """Weights, outputs and gradients are those of the usual order."""
    x, found = torch.randn(6, 2, 20, 24, dtype=torch.float64), []
    for channels_last in (False, True):
        with weights_of_run(7, []):
            made = network(nn.ELU, 5, (2, 20, 24), channels_last=channels_last).double()
        maps: list[torch.Tensor] = []
        convolution = [layer for layer in made.modules() if isinstance(layer, nn.Conv2d)][1]
        convolution.register_forward_hook(lambda layer, inputs, y, maps=maps: maps.append(y))
        y = made(x)
        y.square().mean().backward()
        assert maps[0].is_contiguous(memory_format=torch.channels_last) is channels_last
        found.append([y, *made.parameters(), *(p.grad for p in made.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        (ConvStacks, {"dropout": [0.1]}, "dropout: expected 6 numbers, one per stack, got 1"),
        (
            ConvStacks,
            {"input_shape": (3, 128, 128)},
            "a feature map of 1×1 after the last stack, got 2×2",
        ),
        (GPT, {"heads": 5}, r"width: expected a multiple of heads \(5\), at least 8, got 64"),
        (
            GPT,
            {"width": 6},
            r"width: expected a multiple of heads \(2\), at least 8, got 6",
        ),
        (
            GPT,
            {"input_shape": (3, 32, 32)},
            r"input_shape: expected tokens \(T,\), got \(3, 32, 32\)",
        ),
        (GPT, {"init": "he"}, "init: expected .* or 'fan_in', got 'he'"),
        (
            PyramidNet,
            {"stacks": [[1, 4]]},
            r"expected layers, units and receptive field .*, got \[1, 4\]",
        ),
        (PyramidNet, {"input_shape": (2, 4, 24)}, r"a larger input for 4 stacks, got \(2, 4, 24\)"),
        *((ResNet, {"depth": n}, rf"depth: expected 2 \+ 6n, .*, got {n}") for n in (2, 18, 21)),
        *(
            (WideResNet, {"depth": depth}, rf"depth: expected 4 \+ 6n, .*, got {depth}")
            for depth in (4, 12)
        ),
        (WideResNet, {"block": "papers"}, "did you mean 'paper'"),
        (CoordinateMLP, {"hidden": ()}, "CoordinateMLP: hidden: expected"),
        (CoordinateMLP, {"gain": 0.0}, "CoordinateMLP: gain: expected"),
        (CoordinateMLP, {"omega": -1.0}, "CoordinateMLP: omega: expected"),
    ],
)
def test_malformed_options_are_rejected(network, options, message):
    with pytest.raises(ActlabError, match=message), torch.device("meta"):
        network(nn.ReLU, 5, **options)
