"""The Triton form of the SOI map against the plain one: on a GPU, else interpreted by Triton."""

import math

import pytest
import torch

from actlab.activations import create, stochastic
from actlab.activations.gates import normal_cdf
from actlab.random.streams import Stream

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def unit(slice_=0, **settings):
    soi = create({"name": "soi", **settings})
    soi.uniform.stream = Stream((3, 4, 5))
    soi.uniform.stream.move(1, 2, slice_=slice_)
    return soi.to(DEVICE)


def both(monkeypatch, soi, x, weights):
    """Output and gradient of the fused form, then of the plain one, with the same keys."""
    outcomes = []
    for forget in (False, True):
        if forget:
            monkeypatch.setattr(stochastic, "_kernels", lambda: None)
        y = soi(x)
        outcomes += [y, *torch.autograd.grad(y, x, weights)]
    return outcomes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("settings", [{}, {"mu": 0.5, "sigma": 2.0}])
@pytest.mark.parametrize("slice_", [0, 2])
def test_same_keys_give_the_same_output_and_gradient(monkeypatch, dtype, settings, slice_):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 41, 51, generator=generator).to(DEVICE, dtype).requires_grad_()
    weights = torch.randn(3, 41, 51, generator=generator).to(DEVICE, dtype)
    fused, fused_gradient, plain, plain_gradient = both(monkeypatch, unit(slice_, **settings), x, weights)
    assert fused.dtype == dtype
    assert ((fused != plain) | (fused_gradient != plain_gradient)).sum() <= 1  # Φ rounds otherwise: 1 in 10⁶


def test_what_is_not_contiguous(monkeypatch):
    x = torch.randn(3, 10, 20, generator=torch.Generator().manual_seed(1)).to(DEVICE).requires_grad_()
    fused, fused_gradient, plain, plain_gradient = both(
        monkeypatch, unit(), x.mT, torch.ones(3, 20, 10, device=DEVICE)
    )
    assert torch.equal(fused, plain)
    assert torch.equal(fused_gradient, plain_gradient)


def test_keeps_nothing_but_x():
    saved = []
    x = torch.randn(3, 64, 32, device=DEVICE).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        unit()(x)
    assert sum(t.numel() for t in saved if t.data_ptr() != x.data_ptr()) == 6  # two words a run


def test_masks_are_as_likely_as_they_should_be_without_a_stream():
    torch.manual_seed(0)
    n = 40_000
    for point in (-2.0, -0.5, 0.0, 1.0, 2.5):
        y = create("soi")(torch.full((n,), point, device=DEVICE) + 1e-6)
        p = normal_cdf(torch.tensor(point, dtype=torch.float64)).item()
        kept = (y != 0).double().mean().item()
        assert abs(kept - p) < 5 * math.sqrt(p * (1 - p) / n)
    x = torch.ones(50, device=DEVICE)
    assert not torch.equal(create("soi")(x), create("soi")(x))


def test_infinities_and_nan():
    x = torch.tensor([math.inf, -math.inf, math.nan] * 3, device=DEVICE).view(3, 3)
    y = unit()(x)
    assert torch.equal(y[:, 0].cpu(), torch.full((3,), math.inf))
    assert not y[:, 1].any()
    assert y[:, 2].isnan().all()


def test_float64_and_function_transforms_take_the_plain_form():
    assert unit()(torch.randn(3, 5, dtype=torch.float64, device=DEVICE)).dtype == torch.float64
    x = torch.randn(4, 6, device=DEVICE)
    mapped = torch.func.vmap(create("soi"), randomness="different")(x)
    assert ((mapped == x) | (mapped == 0)).all()
