"""The first three derivatives of every activation, by its input and in losses with derivatives."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from actlab.activations import Activation, create, is_elementwise, is_stochastic, names
from actlab.activations.gates import CDFS
from actlab.activations.smooth import differentiable
from actlab.random import masks
from actlab.random.streams import Stream, attach

LEARNT = [
    *({"name": "gelu", "learnable": learnable} for learnable in (True, "mu", "sigma")),
    {"name": "gelu", "learnable": True, "channels": 6},
    {"name": "prelu", "channels": 6},
]
VARIANTS = [
    {"name": "gelu", "mu": 0.5, "sigma": 2.0},
    *({"name": "soi", "cdf": cdf, "mu": 0.5, "sigma": 1.5} for cdf in CDFS),
    {"name": "adaptive_dropout", "activation": "gelu", "alpha": 0.5, "beta": 1.0},
]
slow = pytest.mark.slow  # the masks are those of one function, whatever unit asks for them
SPECS = pytest.mark.parametrize("spec", [*names(), *LEARNT, *VARIANTS], ids=str)
PLACES = torch.tensor([[-7.0, -2.1, -0.4, 0.3, 1.7, 6.0]], dtype=torch.float64)  # no kink is near


def derivative(y: Tensor, x: Tensor) -> Tensor:
    """∂(Σ y)/∂x, which can be differentiated again; 0 where y does not depend on x."""
    if not y.requires_grad:
        return torch.zeros_like(x)
    (found,) = torch.autograd.grad(
        y.sum(), x, create_graph=True, allow_unused=True, materialize_grads=True
    )
    return found


def with_equal_draws(module: nn.Module, training: bool) -> nn.Module:
    """The module in float64 and in a mode; in training each call draws the same numbers."""
    attach(module, Stream(3))
    return module.double().train(training)


def orders(module: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Value and derivatives of orders 1 to 3."""
    x = x.detach().clone().requires_grad_()
    found = [module(x)]
    for _ in range(3):
        found.append(derivative(found[-1], x))
    return [order.detach() for order in found]


def modes(spec: Activation) -> tuple[bool, ...]:
    """Evaluation, and training where it is another map."""
    return (False, True)[: 1 + is_stochastic(create(spec))]


@SPECS
def test_each_derivative_is_the_slope_of_the_one_below(spec):
    for training in modes(spec):
        unit, h = with_equal_draws(create(spec), training), 1e-5
        found, above, below = (orders(unit, PLACES + step) for step in (0, h, -h))
        for order in (1, 2, 3):
            slope = (above[order - 1] - below[order - 1]) / (2 * h)
            torch.testing.assert_close(
                found[order], slope, rtol=1e-8, atol=1e-8, msg=f"order {order}"
            )


@pytest.mark.parametrize("name", names())
def test_three_derivatives_are_finite_far_from_0_in_losses_that_see_the_network(name):
    """Where torch's own are nan: in Mish and in the tanh form of GELU."""
    for dtype in (torch.float32, torch.float64):
        unit = differentiable(partial(create, name))().to(dtype).eval()
        size = torch.cat([torch.linspace(0, 100, 5001), torch.logspace(-30, 6, 1000)]).to(dtype)
        for found in orders(unit, torch.cat([-size, size])):
            assert found.isfinite().all()


@pytest.mark.parametrize("name", ["mish", "gelu_tanh"])
def test_replaced_activations_have_values_and_slopes_of_torchs(name):
    plain, smooth = create(name), differentiable(partial(create, name))()
    assert type(smooth) is not type(plain)
    assert is_elementwise(smooth)
    assert not is_stochastic(smooth)
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    for found, expected in zip(orders(smooth, x)[:2], orders(plain, x)[:2], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def network(spec: Activation, training: bool) -> nn.Module:
    """Two inputs, one output; a smooth activation, so that no derivative vanishes everywhere."""
    torch.manual_seed(0)
    layers = [nn.Linear(2, 6), create(spec), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)]
    return with_equal_draws(nn.Sequential(*layers), training)


def residual(network: nn.Module) -> Tensor:
    """The mean of (u_xx + u_yy + u)² at a few points: the loss of a Helmholtz equation."""
    points = torch.linspace(-1, 1, 10, dtype=torch.float64).view(5, 2).requires_grad_()
    u = network(points)
    slopes = derivative(u, points)
    laplacian = sum(derivative(slopes[:, axis], points)[:, axis] for axis in (0, 1))
    return (laplacian + u.squeeze(-1)).square().mean()


def moved(network: nn.Module, directions: list[Tensor], by: float) -> None:
    with torch.no_grad():
        for parameter, direction in zip(network.parameters(), directions, strict=True):
            parameter.add_(direction, alpha=by)


@SPECS
def test_a_loss_of_second_derivatives_has_the_right_gradient(spec):
    for training in modes(spec):
        trained, h = network(spec, training), 1e-6
        loss = residual(trained)
        loss.backward()
        directions = [torch.randn_like(parameter) for parameter in trained.parameters()]
        gradients = [
            parameter.grad for parameter in trained.parameters() if parameter.grad is not None
        ]
        along = sum((g * d).sum().item() for g, d in zip(gradients, directions, strict=True))
        values = []
        for by in (h, -2 * h):
            moved(trained, directions, by)
            values.append(residual(trained).item())
        assert loss.item() > 0
        assert along == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-5)


# Dynamo hides it
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(n, marks=[] if n == "rrelu" else slow)
        for n in names()
        if is_stochastic(create(n))
    ],
)
def test_compiled_masks_can_be_differentiated_as_often(spec, monkeypatch):
    """A compiled function cannot be differentiated twice, and the loss of an equation does so."""
    plain = network(spec, True)
    residual(plain).backward()
    monkeypatch.setattr(masks, "_compiled", None)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    masks.compile_masks()
    compiled = network(spec, True)
    residual(compiled).backward()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)
