"""Values and gradients against scipy; limits, low precision; the papers' relations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor, nn

from actlab.activations import create, factory, names
from actlab.activations.gates import CDFS
from actlab.errors import ActlabError

RANGE = np.concatenate([np.linspace(-40, 40, 1601), [1e-30, -1e-30, 1e-5, -1e-5]])  # holds 0
KINKED = {
    "srelu": -1,
    **dict.fromkeys(("relu", "leaky_relu", "prelu", "rrelu", "elu", "adaptive_dropout"), 0),
}


def lu(distribution: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x * distribution(x)


def inner(x: np.ndarray) -> np.ndarray:
    """What the tanh form of GELU takes the tanh of."""
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def inner_slope(x: np.ndarray) -> np.ndarray:
    return math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)


# evaluation mode: (value, derivative), written with scipy
phi, Phi, expit = stats.norm.pdf, stats.norm.cdf, special.expit
ORACLES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "identity": (lambda x: x, np.ones_like),
    "relu": (lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0)),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.1 * x), lambda x: np.where(x > 0, 1, 0.1)),
    "srelu": (lambda x: np.maximum(-1, x), lambda x: 1.0 * (x > -1)),
    "prelu": (lambda x: np.where(x > 0, x, 0.25 * x), lambda x: np.where(x > 0, 1, 0.25)),
    "rrelu": (lambda x: np.where(x > 0, x, 11 / 48 * x), lambda x: np.where(x > 0, 1, 11 / 48)),
    "elu": (
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        lambda x: np.exp(np.minimum(x, 0)),
    ),
    "silu": (lu(expit), lambda x: expit(x) * (1 + x * expit(-x))),
    "gelu": (lu(Phi), lambda x: Phi(x) + x * phi(x)),
    "soi": (lu(Phi), lambda x: Phi(x) + x * phi(x)),
    "gelu_sigmoid": (
        lambda x: x * expit(1.702 * x),
        lambda x: expit(1.702 * x) * (1 + 1.702 * x * expit(-1.702 * x)),
    ),
    "gelu_tanh": (
        lambda x: 0.5 * x * (1 + np.tanh(inner(x))),
        lambda x: 0.5 * (1 + np.tanh(inner(x)) + x * (1 - np.tanh(inner(x)) ** 2) * inner_slope(x)),
    ),
    "cauchy_lu": (lu(stats.cauchy.cdf), lambda x: stats.cauchy.cdf(x) + x * stats.cauchy.pdf(x)),
    "laplace_lu": (
        lu(stats.laplace.cdf),
        lambda x: stats.laplace.cdf(x) + x * stats.laplace.pdf(x),
    ),
    "adaptive_dropout": (
        lambda x: np.maximum(x, 0) * expit(x),
        lambda x: (x > 0) * expit(x) * (1 + x * expit(-x)),
    ),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "sigmoid": (expit, lambda x: expit(x) * expit(-x)),
    "relu_squared": (lambda x: np.maximum(x, 0) ** 2, lambda x: 2 * np.maximum(x, 0)),
    "mish": (
        lambda x: x * np.tanh(np.logaddexp(0, x)),
        lambda x: np.tanh(np.logaddexp(0, x)) + x * expit(x) / np.cosh(np.logaddexp(0, x)) ** 2,
    ),
    "softplus": (lambda x: np.logaddexp(0, x), expit),
    "sine": (np.sin, np.cos),
    "gauss": (lambda x: np.exp(-(x**2) / 2), lambda x: -x * np.exp(-(x**2) / 2)),
}
LINEAR_ABOVE_20 = {"softplus": 2.1e-9}  # e⁻²⁰, what torch's kernel leaves out
# where torch's products begin to overflow, in value or slope, as a power of the largest number:
# gelu doubles its input and gelu_tanh squares it, gelu_sigmoid is the SiLU of 1.702x
LARGEST = {"silu": 1, "mish": 1, "gelu": 0.99, "gelu_sigmoid": 0.99, "gelu_tanh": 0.49}
SQUARED = {"relu_squared"}  # the value itself overflows
# value at −∞, value at ∞, derivative at −∞, derivative at ∞; torch's own are left to torch
LIMITS = {
    "identity": (-math.inf, math.inf, 1, 1),
    "relu": (0, math.inf, 0, 1),
    "leaky_relu": (-math.inf, math.inf, 0.1, 1),
    "srelu": (-1, math.inf, 0, 1),
    "prelu": (-math.inf, math.inf, 0.25, 1),
    "rrelu": (-math.inf, math.inf, 11 / 48, 1),
    "elu": (-1, math.inf, 0, 1),
    "soi": (0, math.inf, 0, 1),
    "cauchy_lu": (-1 / math.pi, math.inf, 0, 1),
    "laplace_lu": (0, math.inf, 0, 1),
    "adaptive_dropout": (0, math.inf, 0, 1),
    "tanh": (-1, 1, 0, 0),
    "sigmoid": (0, 1, 0, 0),
    "relu_squared": (0, math.inf, 0, math.inf),
    "softplus": (0, math.inf, 0, 1),
    "sine": (math.nan,) * 4,  # it has none
    "gauss": (0, 0, 0, 0),
}


def value_and_gradient(module: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().clone().requires_grad_()
    y = module(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), gradient


def test_every_unit_has_an_oracle():
    assert set(ORACLES) == set(names())
    assert set(ORACLES) - set(LIMITS) == set(LARGEST)


@pytest.mark.parametrize("name", names())
def test_value_and_gradient_in_evaluation(name):
    y, gradient = value_and_gradient(create(name).double().eval(), torch.from_numpy(RANGE))
    value, derivative = ORACLES[name]
    apart = LINEAR_ABOVE_20.get(name, 0)
    np.testing.assert_allclose(y, value(RANGE), rtol=1e-12, atol=1e-15 + apart)
    smooth = ~np.isin(RANGE, KINKED.get(name, []))
    np.testing.assert_allclose(
        gradient[smooth], derivative(RANGE)[smooth], rtol=1e-10, atol=1e-14 + apart
    )
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", names())
def test_infinities_give_limits_and_nan_stays_nan(name):
    for dtype in (torch.float16, torch.float32, torch.float64):
        module = create(name).to(dtype).eval()
        assert module(torch.full((3,), math.nan, dtype=dtype)).isnan().all()
        if name in LIMITS:
            x = torch.tensor([-math.inf, math.inf], dtype=dtype)
            y, gradient = value_and_gradient(module, x)
            np.testing.assert_allclose(torch.cat([y, gradient]), LIMITS[name], rtol=1e-3)


@pytest.mark.parametrize("name", names())
def test_finite_for_every_finite_input(name):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for training in (True, False):
            info = torch.finfo(dtype)
            powers = torch.logspace(
                math.log10(info.smallest_normal), math.log10(info.max), 400, dtype=torch.float64
            )
            x = torch.cat([powers, -powers]).clamp(info.min, info.max)
            x = torch.cat([x, torch.tensor([0.0, -0.0, info.tiny / 4, info.max, info.min])]).to(
                dtype
            )
            wide = max(info.max, torch.finfo(torch.float32).max)
            x = x[
                x.abs().double()
                <= (info.max**0.49 if name in SQUARED else wide ** LARGEST.get(name, 1))
            ]
            module = create(name).to(dtype).train(training)
            y, gradient = value_and_gradient(module, x)
            assert y.isfinite().all()
            assert gradient.isfinite().all()
            for parameter in module.parameters():
                (slope_gradient,) = torch.autograd.grad(module(x.clamp(-9, 9)).sum(), parameter)
                assert slope_gradient.isfinite().all()


@pytest.mark.parametrize("name", names())
def test_low_precision_is_accurate(name):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = torch.linspace(-8, 8, 641, dtype=torch.float64).to(dtype)
        y, gradient = value_and_gradient(create(name).to(dtype).eval(), x)
        expected, slope = value_and_gradient(create(name).double().eval(), x.double())
        for found, wanted in ((y, expected), (gradient, slope)):
            error = (found.double() - wanted).abs()
            assert (error <= 8 * torch.finfo(dtype).eps * wanted.abs().clamp_min(1)).all()


def test_gelu_of_any_gaussian():
    x = torch.from_numpy(RANGE)
    y, gradient = value_and_gradient(create("gelu", mu=0.5, sigma=2.0), x)
    z = (RANGE - 0.5) / 2
    np.testing.assert_allclose(y, RANGE * Phi(z), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(gradient, Phi(z) + RANGE * phi(z) / 2, rtol=1e-9, atol=1e-15)


def test_gelu_goes_to_relu_as_sigma_goes_to_0():
    x = torch.linspace(-5, 5, 1001, dtype=torch.float64)
    errors = [(create("gelu", sigma=s)(x) - x.relu()).abs().max().item() for s in (0.1, 0.01, 1e-6)]
    bound = 0.17  # max |x|Φ(−|x|), at σ = 1
    assert errors[0] > errors[1] > errors[2]
    assert all(e <= bound * s for e, s in zip(errors, (0.1, 0.01, 1e-6), strict=True))


def test_gelu_and_relu_agree_far_from_0():
    """They differ by |x|Φ(−|x|), at most φ(x), which falls faster than any power."""
    x = torch.tensor([-20.0, -10.0, -5.0, 5.0, 10.0, 20.0], dtype=torch.float64)
    apart = (create("gelu")(x) - x.relu()).abs()
    assert (apart <= torch.from_numpy(phi(x.numpy())) * (1 + 1e-9) + 1e-15).all()
    assert apart[2] > 10 * apart[1]


def test_curvature_of_gelu_relu_and_elu():
    """GELU″ = φ(x)(2 − x²): neither convex nor monotonic, flat at ±√2; ELU is convex for α ≤ 1."""
    x = torch.linspace(-5, 5, 2001, dtype=torch.float64, requires_grad=True)

    def derivatives(**spec: Any) -> tuple[Tensor, Tensor]:
        (slope,) = torch.autograd.grad(create(spec)(x).sum(), x, create_graph=True)
        return slope.detach(), torch.autograd.grad(slope.sum(), x)[0]

    slope, curvature = derivatives(name="gelu")
    torch.testing.assert_close(
        curvature, torch.from_numpy(phi(x.detach().numpy())) * (2 - x.detach() ** 2)
    )
    assert slope.min() < 0 < slope.max()
    assert curvature.min() < 0 < curvature.max()
    for name in ("relu", "elu"):
        steps = create(name)(x).detach().diff()
        assert (steps >= 0).all()
        assert (steps.diff() >= -1e-12).all()
    assert (create("elu", alpha=2.0)(x).detach().diff().diff() < -1e-4).any()


def test_elu_saturates_at_minus_alpha():
    """E §3: the value for x → −∞."""
    for alpha in (0.5, 1.0, 2.0):
        x = torch.tensor([-10.0, -20.0, -40.0], dtype=torch.float64)
        torch.testing.assert_close(
            create("elu", alpha=alpha)(x) + alpha, alpha * x.exp(), rtol=1e-6, atol=1e-15
        )


@pytest.mark.parametrize("learnable", [True, "mu", "sigma"])
@pytest.mark.parametrize("channels", [None, 3])
def test_learnt_gaussians(learnable, channels):
    module = create("gelu", mu=0.3, sigma=0.7, learnable=learnable, channels=channels).double()
    parameters = dict(module.named_parameters())
    assert (
        set(parameters)
        == {True: {"mu", "log_sigma"}, "mu": {"mu"}, "sigma": {"log_sigma"}}[learnable]
    )
    x = torch.randn(
        2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()
    torch.testing.assert_close(module(x), create("gelu", mu=0.3, sigma=0.7)(x))

    def call(x: Tensor, *values: Tensor) -> Tensor:
        y: Tensor = torch.func.functional_call(
            module, dict(zip(parameters, values, strict=True)), (x,)
        )
        return y

    assert torch.autograd.gradcheck(call, (x, *parameters.values()))


def test_learnt_gaussians_survive_huge_inputs():
    module = create("gelu", sigma=0.01, learnable=True)
    x = torch.tensor([3.4e38, -3.4e38, 0, 1], requires_grad=True)
    module(x).sum().backward()
    assert all(t.grad is not None and t.grad.isfinite().all() for t in (x, *module.parameters()))


def test_the_network_gives_the_number_of_channels():
    for spec in ({"name": "gelu", "learnable": True}, {"name": "prelu", "slope": 0.1}):
        fixed = create(spec, channels=3)
        for given in ({"per_channel": True}, {"channels": "width"}):
            made = factory({**spec, **given})(3)
            assert type(made) is type(fixed)
            assert repr(made) == repr(fixed)
            made.load_state_dict(fixed.state_dict())
            for shape in ((2, 3), (2, 3, 4), (2, 3, 4, 4)):
                x = -1 - torch.rand(shape)
                assert torch.equal(made(x), fixed(x))
            with torch.no_grad():
                for parameter in made.parameters():
                    parameter[1] += 0.5
            moved = (made(x) - fixed(x)).abs().transpose(0, 1).flatten(1).amax(1)
            assert (moved > 0).tolist() == [False, True, False]
    inside = {"name": "adaptive_dropout", "activation": {"name": "prelu", "per_channel": True}}
    assert factory(inside)(5).get_parameter("activation.weight").shape == (5,)


def test_elu_is_asymptotic_to_the_cauchy_form():
    """P §5: ELU(α = 1/π) and xP(C ≤ x) part by 1/π on the right, by 0 on the left, like 1/x."""
    cauchy, elu = create("cauchy_lu"), create("elu", alpha=1 / math.pi)
    for x in (1e2, 1e4, 1e6):
        right, left = torch.tensor([x, -x], dtype=torch.float64)
        assert (elu(right) - 1 / math.pi - cauchy(right)).abs() < 1 / x
        assert (elu(left) - cauchy(left)).abs() < 1 / x


def test_logistic_and_normal_differ_by_a_tenth():
    x = torch.linspace(-5, 5, 100_001, dtype=torch.float64)
    assert (torch.sigmoid(x) - CDFS["normal"](x)).abs().max().item() == pytest.approx(
        0.1174, abs=1e-4
    )
    assert (create("gelu")(x) - create("gelu_sigmoid")(x)).abs().max().item() < 0.021
    assert (create("gelu")(x) - create("gelu_tanh")(x)).abs().max().item() < 5e-4


def test_torch_modules_are_torch_modules():
    """All that torch has, except the one with draws of a run: so costs compare torch's kernels."""
    for name in (
        "ELU",
        "GELU",
        "Identity",
        "Mish",
        "PReLU",
        "ReLU",
        "SiLU",
        "Sigmoid",
        "Softplus",
        "Tanh",
    ):
        assert type(create(name.lower())) is getattr(nn, name)
    for name, kind in (
        ("gelu_tanh", nn.GELU),
        ("leaky_relu", nn.LeakyReLU),
        ("srelu", nn.Threshold),
    ):
        assert type(create(name)) is kind
    x = torch.linspace(-5, 5, 64)
    assert torch.equal(create("gelu_tanh")(x), nn.functional.gelu(x, approximate="tanh"))
    assert torch.equal(create("rrelu").eval()(x), nn.RReLU().eval()(x))
    with pytest.raises(ActlabError, match=r"got -1\.0\. For the limit at 0, use relu"):
        create("gelu", sigma=-1.0)
