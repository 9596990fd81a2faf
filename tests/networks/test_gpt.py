"""The GPT against its formula, its numbers of parameters, its initial weights, and in stacks."""

import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actlab import activations
from actlab.networks import GPT
from actlab.networks.init import weights_of_run

SMALL: dict[str, Any] = {"num_classes": 11, "input_shape": (5,), "width": 24, "heads": 3}
FORMS = pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])


def built(act=nn.GELU, seed=0, **options) -> GPT:
    """The network of a run."""
    sites: list[nn.Module] = []

    def activation() -> nn.Module:
        sites.append(act())
        return sites[-1]

    with weights_of_run(seed, sites):
        return GPT(activation, **{"num_classes": 256, "input_shape": (64,), **options})


def normed(x: Tensor, norm: Any) -> Tensor:
    variance = x.var(-1, correction=0, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt() * norm.weight + norm.bias


def reference(network: GPT, tokens: Tensor, gated: bool) -> Tensor:
    """The logits of one window ``(T,)``, head by head and token by token."""
    x = network.tokens.weight[tokens] + network.positions.weight[: len(tokens)]
    for block in network.blocks:
        q, k, v = (normed(x, block.attention_norm) @ block.attention.qkv.weight.T).chunk(3, -1)
        mixed = torch.zeros_like(x)
        for head in range(3):
            of_head = slice(8 * head, 8 * head + 8)
            for t in range(len(tokens)):
                scores = k[: t + 1, of_head] @ q[t, of_head] / math.sqrt(8)
                mixed[t, of_head] = scores.softmax(0) @ v[: t + 1, of_head]
        x = x + mixed @ block.attention.out.weight.T
        part, y = block.feed_forward, normed(x, block.feed_forward_norm)
        up = y @ part.up.weight.T
        hidden = F.gelu(y @ part.gate.weight.T) * up if gated else F.gelu(up)
        x = x + hidden @ part.down.weight.T
    return normed(x, network.norm) @ network.head.weight.T


@FORMS
def test_it_computes_its_formula(gated):
    network = built(**SMALL, gated=gated).double()
    for p in network.parameters():  # also gains and biases of the norms
        nn.init.normal_(p, std=0.5)
    tokens = torch.randint(11, (4, 5))
    with torch.no_grad():
        expected = torch.stack([reference(network, window, gated) for window in tokens])
        torch.testing.assert_close(network(tokens), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("gated", "parameters", "hidden"), [(False, 135_808, 256), (True, 134_784, 168)]
)
def test_both_forms_have_nearly_as_many_parameters(gated, parameters, hidden):
    network = built(gated=gated)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert {block.feed_forward.up.out_features for block in network.blocks} == {hidden}
    assert not [
        name for name, _ in network.named_parameters() if "bias" in name and "norm" not in name
    ]


def test_a_shorter_context_has_the_same_logits():
    network = built(**SMALL)
    tokens = torch.randint(11, (2, 5))
    torch.testing.assert_close(network(tokens[:, :3]), network(tokens)[:, :3])


@FORMS
def test_an_activation_sees_channels_in_its_rows(gated):
    seen: list[torch.Size] = []

    class Watching(nn.Module):
        def forward(self, x):
            seen.append(x.shape)
            return x

    network = built(Watching, **SMALL, gated=gated)
    network(torch.randint(11, (2, 5)))
    hidden = 64 if gated else 96
    assert seen == [(10, hidden), (10, hidden)]


def test_equal_layers_have_equal_weights_whatever_the_activation_and_the_form():
    first = dict(built(seed=3).named_parameters())
    linear = partial(nn.Linear, 256, 256)  # an activation with a weight of its own
    for other in (built(nn.PReLU, seed=3), built(linear, seed=3), built(seed=3, gated=True)):
        same = {
            n: p for n, p in other.named_parameters() if n in first and p.shape == first[n].shape
        }
        # In the gated form, of each block 'up' and 'down' differ in shape
        assert len(same) >= len(first) - 4
        assert all(torch.equal(p, first[name]) for name, p in same.items())
    assert not torch.equal(built(seed=4).head.weight, first["head.weight"])
    assert not torch.equal(
        first["blocks.0.attention.qkv.weight"], first["blocks.1.attention.qkv.weight"]
    )


@pytest.mark.parametrize("init", ["fan_in", 0.05])
def test_initial_weights(init):
    network = built(init=init, gated=True, blocks=3)
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear):
            residual = math.sqrt(6) if name.endswith(("attention.out", "feed_forward.down")) else 1
            std = init if isinstance(init, float) else layer.in_features**-0.5
            assert layer.weight.std().item() == pytest.approx(std / residual, rel=0.05), name
        elif isinstance(layer, nn.Embedding):
            assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
        elif isinstance(layer, nn.LayerNorm):
            assert (layer.eps, layer.weight.unique().tolist(), layer.bias.unique().tolist()) == (
                1e-5,
                [1],
                [0],
            )


@pytest.mark.parametrize("name", ["gelu", "prelu", "soi"])
@FORMS
def test_every_kind_of_activation_runs(name, gated):
    network = built(activations.factory(name), **SMALL, gated=gated)
    network(torch.randint(11, (2, 5))).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
