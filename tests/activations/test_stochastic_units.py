"""What the stochastic maps draw: expectation, variance, gradient, memory. All draws are seeded."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from actlab.activations import create, is_elementwise
from actlab.activations.gates import CDFS
from actlab.random.streams import Stream, attach

POINTS = torch.tensor([-3.0, -1.5, -0.7, -0.1, 0.2, 0.75, 1.4, 3.0], dtype=torch.float64)
N = 200_000


def draws(spec: object, x: Tensor = POINTS, seed: int = 11) -> Tensor:
    """N training outputs at each point, shape (N, points)."""
    module = create(spec).train()  # type: ignore[arg-type]
    attach(module, Stream(seed))
    y: Tensor = module(x.expand(N, -1))
    return y.detach()


def z_bound(tests: int) -> float:
    """|z| that ``tests`` normal statistics stay under together with confidence 99.9 %."""
    return float(stats.norm.isf(0.001 / tests / 2))


@pytest.mark.parametrize("cdf", list(CDFS))
@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 1.0), (0.4, 0.5)])
def test_soi_mean_and_variance(cdf, mu, sigma):
    """E = xF(x), Var = x²F(x)(1 − F(x)); jointly at 99.9 % confidence, by the normal limit."""
    oracle = getattr(stats, "norm" if cdf == "normal" else cdf)
    p = torch.from_numpy(oracle.cdf(POINTS.numpy(), mu, sigma))
    spec = {"name": "soi", "cdf": cdf, "mu": mu, "sigma": sigma}
    y = draws(spec)
    kept = (y != 0).double().mean(0)
    z = (kept - p) / (p * (1 - p) / N).sqrt()
    assert z.abs().max() < z_bound(len(POINTS))
    torch.testing.assert_close(y.mean(0), POINTS * kept)
    error = (y.var(0) / (POINTS**2 * p * (1 - p)) - 1).abs()
    # Of the relative variance
    deviation = ((1 - 2 * p).abs() / (p * (1 - p) * N).sqrt()).clamp_min(1e-4)
    assert (error < z_bound(len(POINTS)) * deviation + 20 / N / (p * (1 - p))).all()
    torch.testing.assert_close(create(spec).eval()(POINTS), POINTS * p, rtol=1e-12, atol=0)


def test_the_output_may_be_changed_in_place():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = create("soi")(x)
    kept = (y != 0).float()
    y.mul_(2).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, 2 * kept)


def test_function_transforms():
    soi, x = create("soi"), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    gradient = torch.func.grad(lambda t: soi(t).sum())
    of_each = torch.func.vmap(gradient, randomness="different")(x)
    for mask in (gradient(x), of_each):
        assert ((mask == 0) | (mask == 1)).all()
    mapped = torch.func.vmap(soi, randomness="different")(x)
    assert ((mapped == 0) | (mapped == x)).all()


@pytest.mark.parametrize("name", ["soi", "adaptive_dropout", "rrelu"])
def test_nan_and_infinities_in_training(name):
    for dtype in (torch.float16, torch.float32, torch.float64):
        x = torch.tensor([math.nan, math.inf, -math.inf], dtype=dtype)
        y = create(name)(x)
        assert y[0].isnan()
        assert y[1] == math.inf
        assert y[2] == (-math.inf if name == "rrelu" else 0)


def test_float64_is_compared_in_float64():
    """F(x) just above and below a drawn number decides, though both round to it in float32."""
    module = create("soi", cdf="logistic")
    attach(module, Stream(5))
    u = module.uniform(torch.zeros(512)).double()
    u = u[(u > 0.2) & (u < 0.8)][:1]
    first = int((module.uniform(torch.zeros(512)).double() == u).nonzero()[0])
    x = torch.zeros(512, dtype=torch.float64)
    for shift, kept in ((1e-12, True), (-1e-12, False)):
        x[first] = torch.logit(u)[0] + shift
        assert bool(module(x)[first] != 0) is kept


def test_adaptive_dropout_masks_the_output_of_the_nonlinearity():
    """E = f(x)σ(αx + β), at 99.9 % confidence."""
    spec = {"name": "adaptive_dropout", "activation": "elu", "alpha": 2.0, "beta": -0.5}
    f, p = create("elu")(POINTS), torch.sigmoid(2 * POINTS - 0.5)
    y = draws(spec)
    assert torch.equal((y == 0) | (y == f), torch.ones_like(y, dtype=torch.bool))
    z = ((y != 0).double().mean(0) - p) / (p * (1 - p) / N).sqrt()
    assert z.abs().max() < z_bound(len(POINTS))
    torch.testing.assert_close(create(spec).eval()(POINTS), f * p)
    assert not is_elementwise(create("adaptive_dropout", activation="prelu"))


class Overwriting(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.elu_(x)


def test_adaptive_dropout_around_a_unit_that_acts_in_place():
    x = torch.linspace(-2, 2, 9)
    own = create("adaptive_dropout", activation=f"{__name__}:Overwriting").eval()
    assert torch.equal(own(x.clone()), create("adaptive_dropout", activation="elu").eval()(x))


def test_rrelu_slopes_are_uniform():
    """Kolmogorov–Smirnov at 0.1 %; the evaluation has the mean slope."""
    spec = {"name": "rrelu", "lower": 0.1, "upper": 0.6}
    slopes = draws(spec, torch.tensor([-2.0], dtype=torch.float64))[:, 0] / -2
    assert stats.kstest(slopes.numpy(), stats.uniform(0.1, 0.5).cdf).pvalue > 1e-3
    assert torch.equal(draws(spec)[0, 4:], POINTS[4:])
    assert create(spec).eval()(torch.tensor(-2.0)).item() == pytest.approx(-0.7)
    x = POINTS.clone().requires_grad_()
    y = create(spec)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, (y / x).detach())


def test_rrelu_is_the_plain_one_to_the_bit():
    for stream in (True, False):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            x = torch.randn(40, 30, generator=torch.Generator().manual_seed(3)).to(dtype)
            x.view(-1)[:8] = torch.tensor(
                [0.0, -0.0, math.inf, -math.inf, 6e4, -6e4, 1e-40, -1e-40]
            )
            module = create("rrelu", lower=0.1, upper=0.6)
            if stream:
                attach(module, Stream(5))
            for view in (x, x.mT, x[:0], x[0, 4]):
                drawn = view.detach().clone().requires_grad_()
                torch.manual_seed(7)
                slope = (0.1 + (0.6 - 0.1) * module.uniform(view)).to(dtype)
                torch.manual_seed(7)
                y = module(drawn)
                assert torch.equal(y, torch.where(view < 0, slope * view, view))
                (gradient,) = torch.autograd.grad(y.sum(), drawn)
                assert torch.equal(gradient, torch.where(view < 0, slope, torch.ones_like(slope)))
