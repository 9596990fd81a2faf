"""Statistics of layers against closed forms: gradients, correlations, net inputs, noise, blocks."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from actlab.activations import factory
from actlab.engines.evaluation import UnstackedTasks
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.probes import BlockGradients, LayerGradients, NetInputs, PassedNoise, layers
from actlab.probes.bias_shift import Layer
from actlab.tasks import ClassificationTask
from toys import Data
from updates_in_blocks import check_equal


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def task_of(network, activation="relu", num_classes=3):
    return ClassificationTask(
        activation=activation,
        network=network,
        num_classes=num_classes,
        input_shape=(6,),
        optimizer=torch.optim.SGD,
    ).eval()


def measured(probe, task, data):
    with torch.no_grad():
        return {
            (m.metric, m.condition): m.values.item() for m in probe(UnstackedTasks([task]), data)
        }


DATA = Data(draw(700, 6).float(), torch.arange(700) % 3)


def mlp(act, k, shape):
    return MLP(act, k, shape, hidden=[9, 8, 7], init="he")


def test_net_inputs_are_those_of_the_layers():
    task = task_of(mlp, "gelu")
    found = measured(NetInputs(samples=600), task, DATA)
    a = DATA.tensors[0][:600]
    for number, module in enumerate([m for m in task.network if isinstance(m, nn.Linear)][:3], 1):
        z = module(a).detach()
        units = [float(stats.kstest(column, "norm").statistic) for column in z.T.double().numpy()]
        shapes = [
            float(stats.kstest(stats.zscore(column), "norm").statistic)
            for column in z.T.double().numpy()
        ]
        whole = stats.kstest(z.flatten().double().numpy(), "norm").statistic
        assert found["distance_of_units", f"layer={number}"] == pytest.approx(
            np.median(units), abs=1e-6
        )
        assert found["distance_of_shapes", f"layer={number}"] == pytest.approx(
            np.median(shapes), abs=1e-6
        )
        assert found["distance_of_layer", f"layer={number}"] == pytest.approx(whole, abs=1e-6)
        a = nn.functional.gelu(z)


def test_batch_norm_is_part_of_the_net_input():
    """In evaluation mode before training it changes nothing but the bias, which is 0."""
    with_norm = task_of(lambda act, k, shape: MLP(act, k, shape, hidden=[9, 8, 7], batch_norm=True))
    without = task_of(lambda act, k, shape: MLP(act, k, shape, hidden=[9, 8, 7]))
    weights = [p for p in without.network.parameters() if p.dim() == 2]
    with torch.no_grad():
        for own, other in zip(
            [p for p in with_norm.network.parameters() if p.dim() == 2], weights, strict=True
        ):
            own.copy_(other)
    found, expected = (measured(NetInputs(), task, DATA) for task in (with_norm, without))
    assert found == pytest.approx(expected, abs=1e-3)
    assert sum(isinstance(m, nn.BatchNorm1d) for m in with_norm.network) == 3
    linear = [m for m in with_norm.network if isinstance(m, nn.Linear)]
    assert [m.bias is None for m in linear] == [True, True, True, False]


def test_gradients_are_those_of_autograd():
    task = task_of(mlp, "elu")
    found = measured(LayerGradients(samples=600), task, DATA)
    images, labels = (x[:600] for x in DATA.tensors)
    a, lengths, shifts = images, [], []
    linear = [m for m in task.network if isinstance(m, nn.Linear)]
    inputs, outputs = [], []
    for module in linear:
        inputs.append(a)
        outputs.append(z := module(a))
        a = nn.functional.elu(z)
    gradients = torch.autograd.grad(
        nn.functional.cross_entropy(outputs[-1], labels, reduction="sum"), outputs[1:-1]
    )
    for number, (a, delta) in enumerate(zip(inputs[1:-1], gradients, strict=True), 2):
        lengths.append(delta.norm(dim=-1).mean().item())
        g, g0 = delta.T @ a / 600, delta.mean(0)
        shifts = (g @ a.mean(0) + g0).abs().detach()
        off = ~np.eye(a.shape[1], dtype=bool)
        expected = {
            "gradient": lengths[-1],
            "shift": np.median(shifts.numpy()),
            "correlation": np.corrcoef(a.detach().T)[off].mean(),
        }
        for name, value in expected.items():
            assert found[name, f"layer={number}"] == pytest.approx(value, rel=1e-4), name
    assert found["slope", ""] == pytest.approx(math.log10(lengths[1] / lengths[0]), rel=1e-3)


def test_the_slope_is_that_of_a_geometric_series():
    assert layers.slope([3 * 0.5**n for n in range(7)]) == pytest.approx(math.log10(0.5))
    assert math.isnan(layers.slope([2.0]))


def test_the_sign_of_the_largest_tenth():
    values = torch.cat([torch.linspace(-0.5, 0.5, 27), torch.tensor([9.0, -8.0, 7.0])])  # 3 of 30
    assert layers.positive_share(values.view(5, 6)) == pytest.approx(2 / 3)
    assert layers.positive_share(torch.tensor([-1.0])) == 0


def test_components_of_a_covariance_that_is_known():
    """δ² = 2 + a₁ − 0.9 a₂ of ±1 inputs: Cov(δ², a) = (1, −0.9, 0, …), largest at 1."""
    a = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 10)
    up = (2 + a[:, :1] - 0.9 * a[:, 1:2]).expand(-1, 4)
    assert layers.statistics(Layer(a, up, up))["positive_components"] == 1
    assert layers.statistics(Layer(a, 4 - up, up))["positive_components"] == 0
    mixed = torch.cat([up[:, :3], 4 - up[:, 3:]], 1)
    assert layers.statistics(Layer(a, mixed, up))["positive_components"] == 0.75


def correlated(rho, samples=4000, units=6, mean=0.5, deviation=0.7):
    """Samples of units with exactly these moments and the same correlation of each pair."""
    z = draw(samples, units)
    z = torch.linalg.qr(z - z.mean(0)).Q * samples**0.5
    covariance = deviation**2 * (rho + (1 - rho) * torch.eye(units, dtype=torch.float64))
    return mean + (z - z.mean(0)) @ torch.linalg.cholesky(covariance).T


def test_the_shift_of_a_linear_unit_grows_with_the_correlation():
    """ELU §2, in closed form: under squared loss δ = −uᵀa, so the shift is −(mᵀ(C + m mᵀ) u + mᵀu).

    With I units of mean μ, deviation s and correlation ρ its size is |1ᵀu| μ (s² (1 + ρ (I − 1)) +
    I μ² + 1).
    """
    u, shifts = draw(6, 3, seed=1), []
    for rho in (0.0, 0.2, 0.5, 0.9):
        a = correlated(rho)
        delta = -(a @ u)
        found = layers.statistics(Layer(a, delta.square(), delta))
        expected = u.sum(0).abs() * 0.5 * (0.7**2 * (1 + 5 * rho) + 6 * 0.5**2 + 1)
        assert found["correlation"] == pytest.approx(rho, abs=1e-9)
        assert found["shift"] == pytest.approx(expected.median().item(), rel=1e-9)
        shifts.append(found["shift"])
    assert shifts == sorted(shifts)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("relu", 0.0), ("leaky_relu", 0.01), ("identity", 1.0), ("elu", None)],
)
def test_what_deactivated_units_pass_on(activation, expected):
    """Far below 0: a ReLU passes nothing, a leaky ReLU its slope squared, an ELU e^(2z)."""
    task = task_of(lambda act, k, shape: MLP(act, k, shape, hidden=[8]), activation)
    with torch.no_grad():
        task.network[1].bias.fill_(-6)
    data = Data(DATA.tensors[0] / 10, DATA.tensors[1])
    found = measured(PassedNoise(strength=0.01, samples=300), task, data)
    assert found["deactivated", "layer=1"] == 1
    if expected is None:
        z = task.network[1](data.tensors[0][:300]).detach()
        expected = z.mul(2).exp().mean().item()
    assert found["passed", "layer=1"] == pytest.approx(expected, rel=0.05)


class Blocks(nn.Module):
    """Blocks y = 2 y, or y = 2 y divided by the batch's deviation, and a linear layer."""

    def __init__(self, act, num_classes, input_shape, norm=False):
        super().__init__()
        self.blocks = nn.Sequential(*(Doubling(norm) for _ in range(5)))
        self.act, self.last = act(), nn.Linear(6, num_classes)

    def forward(self, x):
        return self.last(self.blocks(x))


class Doubling(nn.Module):
    """y = 2 x, normalised in training mode."""

    def __init__(self, norm):
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False) if norm else nn.Identity()

    def forward(self, x):
        return 2 * self.norm(x)


def test_the_gradient_doubles_from_block_to_block():
    task = task_of(Blocks)
    found = measured(BlockGradients(samples=64), task, DATA)
    assert found["ratio", ""] == pytest.approx(16)
    lengths = [found["gradient", f"block={n}"] for n in range(1, 6)]
    np.testing.assert_allclose(np.divide(lengths[:-1], lengths[1:]), 2, rtol=1e-5)


def test_blocks_use_the_statistics_of_the_batch():
    """2 (x − mean) / deviation has deviation 2, so each further block divides the gradient by 2."""
    task = task_of(lambda act, k, shape: Blocks(act, k, shape, norm=True))
    before = {name: value.clone() for name, value in task.state_dict().items()}
    found = measured(BlockGradients(samples=64), task, DATA)
    assert found["gradient", "block=2"] / found["gradient", "block=5"] == pytest.approx(1, rel=0.2)
    check_equal(task.state_dict(), before)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: LayerGradients(1),
            "LayerGradients: samples: expected a number greater than or equal to 2, got 1",
        ),
        (lambda: NetInputs(0), "samples: expected a number greater than or equal to 2, got 0"),
        (lambda: PassedNoise(strength=0), "strength: expected a number greater than 0, got 0"),
        (
            lambda: PassedNoise(draws=1),
            "draws: expected a number greater than or equal to 2, got 1",
        ),
        (
            lambda: measured(BlockGradients(), task_of(mlp), DATA),
            "expected a network with 'blocks', got MLP",
        ),
    ],
)
def test_of_what_they_cannot_be_measured(make, said):
    with pytest.raises(ActlabError, match=said):
        make()


def test_net_inputs_of_images_are_rejected():
    task = ClassificationTask(
        activation="relu",
        network=lambda act, k, shape: nn.Sequential(
            nn.Conv2d(1, 2, 3), factory("relu")(), act(), nn.Flatten(), nn.Linear(32, k)
        ),
        num_classes=3,
        input_shape=(1, 6, 6),
        optimizer=torch.optim.SGD,
    )
    data = Data(torch.zeros(8, 1, 6, 6), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(ActlabError, match=r"one row per sample, \(B, U\), got \(8, 2, 4, 4\)"):
        measured(NetInputs(), task, data)
