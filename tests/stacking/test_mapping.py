"""Networks of torch's modules: by stacked forms, by vmap, or alone; equal in float64."""

from functools import partial

import pytest
import torch
from torch import nn

from actlab.networks import Dropout
from actlab.stacking import layers, mapping, stacked_form, walked
from actlab.stacking.task import reason_against
from actlab.tasks import ClassificationTask
from stacking.equality import assert_trains_as_alone

RUNS, STEPS, VOCABULARY, TOKENS, WIDTH, CLASSES = 3, 6, 11, 5, 8, 4


class Tokens(nn.Sequential):
    """Tokens ``(B, T)`` in, logits ``(B, K)`` out, with some layers in the middle."""

    def __init__(self, act, num_classes, input_shape, middle):
        embedding = nn.Embedding(VOCABULARY, WIDTH)
        super().__init__(
            embedding, *middle(act), nn.Flatten(), nn.Linear(TOKENS * WIDTH, num_classes)
        )


class Images(nn.Sequential):
    """Images ``(B, 2, 6, 6)``, with convolutions and statistics of batches."""

    def __init__(self, act, num_classes, input_shape):
        convolved = (
            nn.Conv2d(2, 3, 3),
            nn.BatchNorm2d(3),
            nn.PReLU(3),
            nn.GroupNorm(3, 3),
            nn.MaxPool2d(2),
        )
        super().__init__(*convolved, act(), nn.Flatten(), nn.Linear(12, num_classes))


class Decoder(nn.Module):
    """Parameters of its own, a buffer that no checkpoint has, an output tied to the embedding."""

    causal: torch.Tensor

    def __init__(self, act, num_classes, input_shape):
        super().__init__()
        self.embedding, self.act = nn.Embedding(VOCABULARY, WIDTH), act()
        self.position = nn.Parameter(torch.randn(TOKENS, WIDTH))
        self.scale = nn.Parameter(torch.ones(WIDTH), requires_grad=False)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("causal", torch.ones(TOKENS, TOKENS).triu(1).bool(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.scale * self.position
        y, _ = self.attention(x, x, x, attn_mask=self.causal, need_weights=False)
        return self.head(x + self.act(y)).mean(1)[:, :CLASSES]


class Shifted(nn.Module):
    """A composite with a parameter of its own, which would be added to another axis where R = B."""

    stochastic = False

    def __init__(self):
        super().__init__()
        self.inner, self.shift = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        return self.inner(x) + self.shift


def encoder(act):
    return [
        nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, activation=act(), batch_first=True)
    ]


def norms(act):
    several = nn.LayerNorm((TOKENS, WIDTH)), nn.RMSNorm((TOKENS, WIDTH), elementwise_affine=False)
    plain = nn.LayerNorm(WIDTH, elementwise_affine=False), nn.LayerNorm(WIDTH, bias=False, eps=0.1)
    return [
        nn.LayerNorm(WIDTH),
        act(),
        *several,
        *plain,
        nn.RMSNorm(WIDTH),
        nn.Linear(WIDTH, WIDTH),
    ]


def task(seed, network, activation="gelu"):
    # Adam enlarges gradients that are 0
    rate = partial(torch.optim.SGD, lr=0.1 * (seed + 1), momentum=0.5)
    return ClassificationTask(CLASSES, (TOKENS,), activation, network, rate, seed=seed).double()


def batches(network):
    source = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        if network is Images:
            x = torch.randn(RUNS, RUNS, 2, 6, 6, generator=source, dtype=torch.float64)
        else:
            # As many samples as runs
            x = torch.randint(VOCABULARY, (RUNS, RUNS, TOKENS), generator=source)
        yield x, torch.randint(CLASSES, (RUNS, RUNS), generator=source)


def assert_equal(network, activation="gelu"):
    """A stack trains what its members train alone; apart they still compute what it computes."""
    stack = assert_trains_as_alone(
        partial(task, network=network, activation=activation), partial(batches, network)
    )
    (x, _), *_ = batches(network)
    with torch.no_grad():
        outputs = stack.network(x[0], shared=True)
    for apart, output in zip(stack.apart(), outputs, strict=True):
        torch.testing.assert_close(apart.network(x[0]), output, rtol=1e-8, atol=1e-10)
    return stack


def test_embeddings_and_norms_have_stacked_forms():
    stack = assert_equal(partial(Tokens, middle=norms))
    assert not stack.network.mapped
    kinds = [type(module) for module in stack.network.layers]
    assert kinds.count(layers.StackedLayerNorm) == 4
    assert kinds.count(layers.StackedRMSNorm) == 2
    assert layers.StackedEmbedding in kinds


@pytest.mark.parametrize("index", [-1, VOCABULARY])
def test_a_token_that_is_none_is_no_row_of_another_run(index):
    members = [nn.Embedding(VOCABULARY, WIDTH) for _ in range(RUNS)]
    with pytest.raises(IndexError):
        layers.stack(members, None)(torch.full((RUNS, 2), index))  # type: ignore[arg-type]  # draws nothing


def test_embeddings_with_options_have_no_form():
    make = partial(nn.Embedding, 3, 2)
    with_options = (
        make(padding_idx=0),
        make(max_norm=1.0),
        make(sparse=True),
        make(scale_grad_by_freq=True),
    )
    assert layers.form_of(make()) is layers.StackedEmbedding
    assert [layers.form_of(layer) for layer in with_options] == [None] * 4


@pytest.mark.parametrize(
    "network",
    [partial(Tokens, middle=encoder), Images, Decoder],
    ids=["encoder", "images", "decoder"],
)
def test_any_other_network_is_mapped(network):
    assert assert_equal(network).network.mapped


@pytest.mark.parametrize(
    "activation",
    ["prelu", "silu", {"name": "gelu", "learnable": True}, f"{__file__}:Drifting"],
    ids=str,
)
def test_activations_in_a_mapped_network(activation):
    assert assert_equal(partial(Tokens, middle=encoder), activation).network.mapped


class Drifting(nn.Module):
    """An activation that writes into its buffer."""

    mean: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean())
        return (x - self.mean).relu()


def test_a_composite_with_parameters_of_its_own_is_not_walked(monkeypatch):
    monkeypatch.setattr(layers, "_FORMS", dict(layers._FORMS))
    stacked_form(Shifted)(walked)
    assert assert_equal(partial(Tokens, middle=lambda act: [Shifted()])).network.mapped


def test_tied_weights_are_not_walked():
    def tied(act):
        first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        second.weight = first.weight
        return [first, act(), second]

    stack = assert_equal(partial(Tokens, middle=tied))
    assert stack.network.mapped
    assert len(list(stack.parameters())) == 6


def test_a_mapped_network_is_differentiated_by_its_inputs():
    """As a differential equation: u and its second derivative, and their gradients by weights."""
    networks = [
        nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double() for _ in range(RUNS)
    ]
    points = torch.randn(RUNS, 7, 2, dtype=torch.float64)

    def residual(network, x):
        x = x.clone().requires_grad_()
        u = network(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return (u + second).square().mean((-2, -1))

    whole = mapping.joined(networks)
    together = residual(partial(mapping.call, whole), points)
    together.sum().backward()
    for r, network in enumerate(networks):
        loss = residual(network, points[r])
        loss.backward()
        torch.testing.assert_close(together[r], loss)
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(whole.get_parameter(name).grad[r], parameter.grad)


@pytest.mark.parametrize(
    ("activation", "middle", "reason"),
    [
        ("soi", lambda act: [], "vmap would draw other random masks"),
        ("gelu", lambda act: [Dropout(0.1)], "vmap would draw other random masks"),
        (
            "gelu",
            lambda act: [nn.Embedding(3, 2, padding_idx=0)],
            "vmap would train the padding row",
        ),
    ],
    ids=["activation", "dropout", "padding"],
)
def test_what_vmap_would_map_wrongly_is_never_tried(activation, middle, reason):
    one = task(0, partial(Tokens, middle=lambda act: [*encoder(act), *middle(act)]), activation)
    assert reason in (reason_against(one) or "")


def test_lazy_layers_behind_an_embedding_are_made_by_tokens():
    network = partial(Tokens, middle=lambda act: [nn.LazyLinear(WIDTH)])
    assert task(0, network).network[1].weight.shape == (WIDTH, WIDTH)
