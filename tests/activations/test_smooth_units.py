"""The units with derivatives by hand against plain torch: value, derivatives, memory, extremes."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from actlab import streams
from actlab.activations import create
from actlab.activations.smooth import FORMS

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "cauchy_lu": lambda x: x * torch.atan2(torch.ones_like(x), -x) / math.pi,
    "laplace_lu": lambda x: (
        x * torch.where(x < 0, 0.5 * x.clamp_max(0).exp(), 1 - 0.5 * (-x.clamp_min(0)).exp())
    ),
}
UNITS = pytest.mark.parametrize("name", list(PLAIN))
GRID = torch.cat([torch.linspace(-30, 30, 6001, dtype=torch.float64), torch.tensor([0.0, -0.0, 1e-30, -1e-30])])
EXTREMES = [1e4, 6e4, -6e4, 3e38, -3e38, math.inf, -math.inf, 1e-40, -1e-40, 0.0, -0.0]


def derivatives(unit: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, slope and curvature."""
    x = x.detach().clone().requires_grad_()
    y = unit(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    return y.detach(), slope.detach(), curvature


def test_every_form_has_a_plain_one() -> None:
    assert {create(name).form for name in PLAIN} == set(FORMS)  # type: ignore[comparison-overlap]


@UNITS
def test_value_and_derivatives_are_those_of_the_plain_form(name: str) -> None:
    exact = derivatives(PLAIN[name], GRID)
    for found, wanted in zip(derivatives(create(name), GRID), exact, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=2e-14)  # 1 − σ rounds in the plain ones
    single = GRID.float()
    for found, wanted in zip(
        derivatives(create(name), single), derivatives(PLAIN[name], single.double()), strict=True
    ):
        error = (found.double() - wanted).abs() / wanted.abs().clamp_min(1)
        assert error.max() < 10 * torch.finfo(torch.float32).eps  # 8 in the plain logistic slope too


@UNITS
def test_gradients_of_every_order_and_mode(name: str) -> None:
    x = torch.tensor([-9.0, -2.0, -0.3, 0.2, 1.0, 7.0], dtype=torch.float64, requires_grad=True)
    unit = create(name)
    assert torch.autograd.gradcheck(unit, (x,), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(unit, (x,), check_batched_grad=True)
    each = torch.func.vmap(torch.func.grad(unit))(x)
    torch.testing.assert_close(each, torch.func.vmap(torch.func.grad(PLAIN[name]))(x))
    (third,) = torch.autograd.grad(derivatives_of(unit, x, 2).sum(), x)
    torch.testing.assert_close(third, torch.autograd.grad(derivatives_of(PLAIN[name], x, 2).sum(), x)[0])


@UNITS
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch 2.13's own, at the first use
def test_forward_mode(name: str) -> None:
    x = torch.tensor([-2.0, -0.3, 0.2, 4.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(create(name), (x.clone().requires_grad_(),), check_forward_ad=True)
    hessian = torch.func.hessian(lambda t: create(name)(t).sum())(x)
    torch.testing.assert_close(hessian, torch.diag(derivatives(PLAIN[name], x)[2]))


def derivatives_of(unit: Callable[[Tensor], Tensor], x: Tensor, order: int) -> Tensor:
    """The derivative of some order, differentiable."""
    y = unit(x)
    for _ in range(order):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y


@UNITS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_extremes(name: str, dtype: torch.dtype) -> None:
    """Limits at ±∞ and finite elsewhere, up to the curvature; nan stays nan."""
    x = torch.tensor(EXTREMES, dtype=dtype)
    y, slope, curvature = derivatives(create(name), x)
    assert y.dtype == slope.dtype == dtype
    assert torch.equal(y[x > 1e10], x[x > 1e10])
    left = -1 / math.pi if name == "cauchy_lu" else 0
    torch.testing.assert_close(y[x < -1].double(), torch.full_like(y[x < -1], left).double(), rtol=1e-3, atol=0)
    limits = torch.where(x.abs() < 1, 0.5, (x > 0).double())
    torch.testing.assert_close(slope.double(), limits, rtol=0, atol=1e-10)
    assert curvature[x.abs() > 1].abs().max() < 1e-6
    assert (curvature[x.abs() < 1] > 0.5).all()
    assert all(t.isnan().all() for t in derivatives(create(name), x[:2] * math.nan))


@UNITS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_the_rounded_wide_value(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-8, 8, 641).to(dtype)
    for found, wide in zip(
        derivatives(create(name), x)[:2], derivatives(create(name), x.float())[:2], strict=True
    ):
        assert torch.equal(found, wide.to(dtype))


@UNITS
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_nothing_but_the_input_is_kept(name: str, dtype: torch.dtype) -> None:
    saved: list[Tensor] = []
    x = torch.randn(64, 32, dtype=dtype, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        create(name)(x).sum().backward()
    assert [t.data_ptr() for t in saved if t.numel() > 1] == [x.data_ptr()]


@UNITS
def test_shapes_and_strides(name: str) -> None:
    unit, x = create(name), torch.randn(6, 4, 3)
    expected = unit(x)
    for view, wanted in ((x.mT, expected.mT), (x[::2], expected[::2]), (x[0, :1].expand(5, 3), None)):
        assert torch.equal(unit(view), expected[0, :1].expand(5, 3) if wanted is None else wanted)
        for found, plain in zip(derivatives(unit, view), derivatives(PLAIN[name], view), strict=True):
            torch.testing.assert_close(found, plain)
    for shape in ((0,), (3, 0, 2), ()):
        assert [t.shape for t in derivatives(unit, torch.ones(shape))] == [shape] * 3
    weights = torch.randn(3, 6, 4).permute(1, 2, 0)  # a gradient that is not contiguous
    torch.testing.assert_close(
        *(torch.func.vjp(f, x)[1](weights)[0] for f in (unit, PLAIN[name]))  # type: ignore[arg-type]
    )


@UNITS
def test_the_input_is_left_alone_and_the_output_may_be_changed(name: str) -> None:
    x = torch.randn(50, requires_grad=True)
    before = x.detach().clone()
    y = create(name)(x)
    y.mul_(2).sum().backward()
    assert torch.equal(x, before)
    torch.testing.assert_close(x.grad, 2 * derivatives(PLAIN[name], x)[1])


def test_one_compiled_pass_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_compiled", None)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    assert streams.compile_masks() is None
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    for name, plain in PLAIN.items():
        for found, wanted in zip(derivatives(create(name), x), derivatives(plain, x), strict=True):
            torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(torch.func.vmap(create(name))(x), plain(x))
    assert len(streams._compiled or {}) == 3  # uniform numbers, values, pulled gradients
