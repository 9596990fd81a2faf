"""x·P(X ≤ x) against mpmath (1e-30 to 1e30) and torch: value, derivatives, memory, extremes."""

import math
from collections.abc import Callable
from functools import lru_cache

import mpmath
import pytest
import torch
from torch import Tensor

from actlab.activations import create
from actlab.activations.gates import CDFS, GATES

Real = Callable[[mpmath.mpf], mpmath.mpf]


def logistic(c: str) -> tuple[Real, Real, Real]:
    """x·σ(cx), its slope and its curvature."""

    def rise(x: mpmath.mpf, sign: int = 1) -> mpmath.mpf:
        return 1 / (1 + mpmath.exp(-sign * mpmath.mpf(c) * x))

    return (
        lambda x: x * rise(x),
        lambda x: rise(x) * (1 + mpmath.mpf(c) * x * rise(x, -1)),
        lambda x: (
            mpmath.mpf(c)
            * rise(x)
            * rise(x, -1)
            * (2 + mpmath.mpf(c) * x * (rise(x, -1) - rise(x)))
        ),
    )


def density(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


normal: tuple[Real, Real, Real] = (
    lambda x: x * mpmath.ncdf(x),
    lambda x: mpmath.ncdf(x) + x * density(x),
    lambda x: (2 - x * x) * density(x),
)
laplace: tuple[Real, Real, Real] = (
    lambda x: x * (mpmath.exp(x) / 2 if x < 0 else 1 - mpmath.exp(-x) / 2),
    lambda x: (1 + x) * mpmath.exp(x) / 2 if x < 0 else 1 - (1 - x) * mpmath.exp(-x) / 2,
    lambda x: (1 - abs(x) / 2) * mpmath.exp(-abs(x)),
)
cauchy: tuple[Real, Real, Real] = (
    lambda x: x * mpmath.atan2(1, -x) / mpmath.pi,
    lambda x: (mpmath.atan2(1, -x) + x / (1 + x * x)) / mpmath.pi,
    lambda x: 2 / (mpmath.pi * (1 + x * x) ** 2),
)
sigmoid = logistic("1")
EXACT = {
    "silu": sigmoid,
    "gelu_sigmoid": logistic("1.702"),
    "laplace_lu": laplace,
    "cauchy_lu": cauchy,
    "gate normal": normal,
    "gate logistic": sigmoid,
    "gate laplace": laplace,
    "gate cauchy": cauchy,
}


def unit_of(name: str) -> Callable[[Tensor], Tensor]:
    kind, _, cdf = name.partition(" ")
    return GATES[cdf] if cdf else create(kind)


def grid() -> list[float]:
    """Both signs from 1e-30 to 1e30, dense about 1 and where exponentials end; all are bfloat16."""
    coarse = [2.0**k for k in range(-100, 101, 4)]
    fine = [2.0**k * (1 + m / 4) for k in range(-8, 9) for m in range(4)]
    ends = [float(x) for x in [*range(4, 16), *range(80, 112, 2), *range(696, 760, 8)]]
    sizes = sorted({*coarse, *fine, *ends})
    return [-x for x in sizes] + sizes


@lru_cache
def exactly(exact: Real) -> list[tuple[float, float, float]]:
    """At each point of the grid: the point, the exact value, its change with x, both relative."""
    step, found = mpmath.mpf(10) ** -30, []
    # The Cauchy slope's terms agree in 120 digits at 1e60.
    with mpmath.workdps(150 if exact in cauchy else 70):
        for x in map(mpmath.mpf, grid()):
            value, moved = exact(x), exact(x * (1 + step)) - exact(x * (1 - step))
            found.append(
                (float(x), float(value), float(abs(moved / (2 * step * value))) if value else 0.0)
            )
    return found


def derivatives(unit: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, slope and curvature."""
    x = x.detach().clone().requires_grad_()
    y = unit(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    return y.detach(), slope.detach(), curvature


@pytest.mark.parametrize("name", list(EXACT))
def test_tails_keep_their_relative_accuracy(name):
    """Within 16 ε, where the input is known to 16 ε, down to 1,000 times the least normal number.

    It is 2 ε in bfloat16. Below that number values may be 0, and on the right curvatures, which go
    to 0 beside slopes of 1, count within 16 ε of 1. So do both derivatives of the Cauchy form,
    which autograd sums.
    """
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        limits = torch.finfo(dtype)
        eps = limits.eps * (2 if dtype == torch.bfloat16 else 16)
        least = 1000 * limits.tiny
        found = derivatives(unit_of(name), torch.tensor(grid(), dtype=dtype))
        for order, values in enumerate(found):
            for value, (x, exact, condition) in zip(
                values.tolist(), exactly(EXACT[name][order]), strict=True
            ):
                summed = order > 0 and "cauchy" in name
                scale = 1.0 if summed or (order == 2 and x > 0) else abs(exact)
                allowed = (
                    eps * (1 + condition) * scale if abs(exact) > least else max(least, eps * scale)
                )
                assert abs(value - exact) <= allowed, (order, x, value, exact)


def test_gelu_is_as_accurate_as_its_input_is_large():
    """torch's kernel rounds the left tail: 1 + erf(x/√2) loses it."""
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([x for x in grid() if abs(x) < 1000], dtype=dtype)
        for order, values in enumerate(derivatives(create("gelu"), x)):
            with mpmath.workdps(30):
                exact = torch.tensor(
                    [float(normal[order](mpmath.mpf(v))) for v in x.tolist()], dtype=torch.float64
                )
            scale = x.double().abs().clamp_min(1)
            assert ((values.double() - exact).abs() <= 4 * torch.finfo(dtype).eps * scale).all()


PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "cauchy_lu": lambda x: x * torch.atan2(torch.ones_like(x), -x) / math.pi,
    "laplace_lu": lambda x: (
        x * torch.where(x < 0, 0.5 * x.clamp_max(0).exp(), 1 - 0.5 * (-x.clamp_min(0)).exp())
    ),
}
UNITS = pytest.mark.parametrize("name", list(PLAIN))
GRID = torch.cat(
    [torch.linspace(-30, 30, 6001, dtype=torch.float64), torch.tensor([0.0, -0.0, 1e-30, -1e-30])]
)
EXTREMES = [1e4, 6e4, -6e4, 3e38, -3e38, math.inf, -math.inf, 1e-40, -1e-40, 0.0, -0.0]


@pytest.mark.parametrize("cdf", list(CDFS))
def test_gates_of_any_location_and_scale(cdf):
    """As μ and σ move and widen X, also in evaluation of the SOI map."""
    mu, sigma = 0.7, 1.6

    def plain(x: Tensor) -> Tensor:
        return x * CDFS[cdf]((x - mu) / sigma)

    def gated(x: Tensor) -> Tensor:
        return GATES[cdf](x, mu, sigma)

    for found, wanted in zip(derivatives(gated, GRID), derivatives(plain, GRID), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-13)
    unit = create("soi", cdf=cdf, mu=mu, sigma=sigma).eval()
    assert all(map(torch.equal, derivatives(unit, GRID), derivatives(gated, GRID)))


@UNITS
def test_extremes(name):
    """Limits at ±∞ and finite elsewhere, up to the curvature; nan stays nan."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor(EXTREMES, dtype=dtype)
        if name == "gelu_sigmoid":  # torch's SiLU of 1.702x, whose product may overflow
            x = x[x.abs() < torch.finfo(dtype).max / 2]
        y, slope, curvature = derivatives(create(name), x)
        assert y.dtype == slope.dtype == dtype
        torch.testing.assert_close(
            y[x > 1e10], x[x > 1e10], rtol=2 * torch.finfo(dtype).eps, atol=0
        )
        left = -1 / math.pi if name == "cauchy_lu" else 0
        torch.testing.assert_close(
            y[x < -1].double(), torch.full_like(y[x < -1], left).double(), rtol=1e-3, atol=0
        )
        limits = torch.where(x.abs() < 1, 0.5, (x > 0).double())
        exactness = max(1e-10, torch.finfo(dtype).eps if name == "cauchy_lu" else 0)
        torch.testing.assert_close(slope.double(), limits, rtol=0, atol=exactness)
        assert curvature[x.abs() > 1].abs().max() < 1e-6
        assert (curvature[x.abs() < 1] > 0.5).all()
        assert all(t.isnan().all() for t in derivatives(create(name), x[:2] * math.nan))


SMOOTH = ("gelu_sigmoid", "gelu", "gelu_tanh", "silu", "relu_squared", "mish", "softplus", "sine")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", [*SMOOTH, "rrelu", "soi"])
def test_one_tensor_is_kept_for_the_backward(name, dtype):
    """A mask has a byte an element if it is 0 or 1, else the type of the input."""
    saved: dict[int, Tensor] = {}
    x = torch.randn(64, 32, dtype=dtype, requires_grad=True)

    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.setdefault(t.data_ptr(), t), lambda t: t
    ):
        create(name)(x).sum().backward()

    (kept,) = (tensor for tensor in saved.values() if tensor.numel() > 1)
    assert kept.numel() == x.numel()
    assert kept.dtype == {"soi": torch.int8, "rrelu": dtype}.get(name, kept.dtype)


@UNITS
def test_shapes_and_strides(name):
    unit, x = create(name), torch.randn(6, 4, 3)
    expected = unit(x)
    for view, wanted in (
        (x.mT, expected.mT),
        (x[::2], expected[::2]),
        (x[0, :1].expand(5, 3), None),
    ):
        torch.testing.assert_close(
            unit(view), expected[0, :1].expand(5, 3) if wanted is None else wanted
        )
        for found, plain in zip(
            derivatives(unit, view), derivatives(PLAIN[name], view), strict=True
        ):
            torch.testing.assert_close(found, plain)
    for shape in ((0,), (3, 0, 2), ()):
        assert [t.shape for t in derivatives(unit, torch.ones(shape))] == [shape] * 3
    weights = torch.randn(3, 6, 4).permute(1, 2, 0)  # a gradient that is not contiguous
    torch.testing.assert_close(*(torch.func.vjp(f, x)[1](weights)[0] for f in (unit, PLAIN[name])))


@UNITS
def test_the_input_is_left_alone_and_the_output_may_be_changed(name):
    x = torch.randn(50, requires_grad=True)
    before = x.detach().clone()
    y = create(name)(x)
    y.mul_(2).sum().backward()
    assert torch.equal(x, before)
    torch.testing.assert_close(x.grad, 2 * derivatives(PLAIN[name], x)[1])
