"""Theorems and lemmas of the ELU paper against direct inverses; variances against simulation."""

import math
from typing import Any

import pytest
import torch

from actlab.activations import factory
from actlab.networks import Dropout
from actlab.probes import theory
from actlab.random.streams import Stream, attach

TOLERANCE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}


@pytest.fixture(params=["relu", "elu", "tanh"])
def layer(request):
    """Incoming activations, δ and gradients of a random layer, in float64."""
    source = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=source, dtype=torch.float64)  # noqa: E731
    a = factory(request.param)()(draw(400, 12) @ draw(12, 12) / 3 + 0.3)
    delta = draw(400, 5) * torch.sigmoid(a @ draw(12, 5))
    return theory.unit_moments(a, delta), draw(5, 12), draw(5), a, delta


def fisher(of):
    """The unit Fisher matrix, weights first, the bias last: ``(U, I + 1, I + 1)``."""
    upper = torch.cat((of.A, of.b.unsqueeze(-1)), dim=-1)
    lower = torch.cat((of.b, of.c.unsqueeze(-1)), dim=-1).unsqueeze(-2)
    return torch.cat((upper, lower), dim=-2)


def test_moments_are_means_over_samples(layer):
    of, _, _, a, delta = layer
    one = torch.cat((a, torch.ones(len(a), 1, dtype=a.dtype)), 1)
    expected = torch.stack([(one.T * delta[:, u].square()) @ one / len(a) for u in range(5)])
    torch.testing.assert_close(fisher(of), expected, **TOLERANCE)
    q = delta[:, 2].square() / delta[:, 2].square().sum()
    torch.testing.assert_close(of.mean_q[2], q @ a, **TOLERANCE)
    torch.testing.assert_close(
        of.variance_q[2], torch.cov(a.T, aweights=q, correction=0), **TOLERANCE
    )


def test_theorem_1_is_the_inverse_of_the_unit_fisher_matrix(layer):
    of, g, g0, *_ = layer
    update, bias = theory.natural_update(of, g, g0)
    direct = torch.linalg.inv(fisher(of)) @ torch.cat((g, g0.unsqueeze(-1)), -1).unsqueeze(-1)
    torch.testing.assert_close(
        torch.cat((update, bias.unsqueeze(-1)), -1), direct.squeeze(-1), **TOLERANCE
    )


def test_theorem_2_decomposes_the_shift(layer):
    """It is (E_p(a) − k E_q(a))ᵀ A⁻¹ g + k g₀ / E(δ²)."""
    of, g, g0, *_ = layer
    shift, k = theory.bias_shift(of.mean, *theory.natural_update(of, g, g0)), theory.correction(of)
    corrected = (
        theory.dot(of.mean - k.unsqueeze(-1) * of.mean_q, torch.linalg.solve(of.A, g))
        + k * g0 / of.c
    )
    torch.testing.assert_close(corrected, shift, **TOLERANCE)
    assert (shift - theory.bias_shift(of.mean, g, g0)).abs().max() > 1e-3, (
        "the gradient's own shift is another"
    )


def test_without_a_mean_there_is_nothing_to_correct(layer):
    """k grows with the length of E_q(a) at fixed covariances, and is 1 at none."""
    of, *_ = layer
    lengths = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    shifted = [
        of._replace(b=of.b * t, A=of.A + of.c[:, None, None] * theory.outer(of.mean_q) * (t**2 - 1))
        for t in lengths
    ]
    distances = torch.stack(
        [(theory.correction(one._replace(mean=0 * of.mean)) - 1).abs() for one in shifted]
    )
    assert distances[0].abs().max() < 1e-12
    assert (distances.diff(dim=0) > 0).all()


def test_at_fixed_covariances_the_correction_is_proportional_to_the_mean(layer):
    """With Var_q(a) and Cov(δ², a) fixed, |k − 1| is proportional to the length of E_q(a)."""
    of, *_ = layer
    for unit in range(len(of.c)):
        one = of.of_units(torch.arange(len(of.c)) == unit)
        apart = one.mean_q[0] - one.mean  # Cov(δ², a) / E(δ²)
        distances = []
        for t in (0.0, 0.5, 1.0, 2.0):
            of_t = theory.Moments(
                one.A + one.c[:, None, None] * theory.outer(one.mean_q) * (t**2 - 1),
                one.b * t,
                one.c,
                one.mean_q[0] * t - apart,
            )
            torch.testing.assert_close(of_t.variance_q, one.variance_q, **TOLERANCE)
            distances.append(float((theory.correction(of_t) - 1).abs()))
        assert distances[2] > 0
        assert distances == pytest.approx(
            [0, 0.5 * distances[2], distances[2], 2 * distances[2]], abs=1e-9
        )


def test_lemma_1_is_the_inverse(layer):
    """By the Schur complement of ((A, b), (bᵀ, c))."""
    of, *_ = layer
    u = -torch.linalg.solve(of.A, of.b)
    s = 1 / (of.c + theory.dot(of.b, u))
    inverse = torch.linalg.inv(fisher(of))
    block = torch.linalg.inv(of.A) + s[:, None, None] * theory.outer(u)
    torch.testing.assert_close(inverse[:, :-1, :-1], block, **TOLERANCE)
    for border in (inverse[:, :-1, -1], inverse[:, -1, :-1]):
        torch.testing.assert_close(border, s.unsqueeze(-1) * u, **TOLERANCE)
    torch.testing.assert_close(inverse[:, -1, -1], s, **TOLERANCE)


def test_lemma_2_holds(layer):
    """(1 − Eᵀ E⁻¹(a aᵀ) E)⁻¹ = 1 + Eᵀ Var⁻¹(a) E."""
    of, *_ = layer
    mean, second = of.mean_q, of.A / of.c[:, None, None]
    left = 1 / (1 - theory.dot(mean, torch.linalg.solve(second, mean)))
    right = 1 + theory.dot(mean, torch.linalg.solve(second - theory.outer(mean), mean))
    torch.testing.assert_close(left, right, **TOLERANCE)


def test_covariances_that_cannot_be_inverted_are_found():
    source = torch.Generator().manual_seed(0)
    a = torch.randn(500, 6, dtype=torch.float64, generator=source)
    dependent = torch.cat([a[:, :5], a[:, :5].sum(1, keepdim=True)], 1)
    small, nearly = a * torch.logspace(-9, 0, 6), a + 1e6 * a[:, :1]
    still = torch.cat([a[:, :5], torch.ones(500, 1)], 1)
    covariances = torch.stack([torch.cov(x.T) for x in (a, small, nearly, dependent, still)])
    covariances[4, 5, :] = covariances[4, :, 5] = 0
    assert theory.is_definite(covariances).tolist() == [True, True, True, False, False]
    assert not theory.is_definite(torch.full((2, 2), math.nan)).item()


def test_constant_units_are_found():
    a = torch.tensor([[1.0, 2.0, 0.0, 0.1], [1.0, 3.0, 0.0, 0.1], [1.0, 4.0, 5.0, 0.1]]).double()
    delta = torch.tensor(
        [[1.0, 1.0], [2.0, 2.0], [0.0, 3.0]]
    ).double()  # the last sample moves the second unit alone
    kept = theory.varying(theory.unit_moments(a, delta), len(a))
    assert kept.tolist() == [[False, True, False, False], [False, True, True, False]]


def test_without_constant_units_the_others_get_what_they_have_alone(layer):
    """Also where each unit has constant ones of its own."""
    of, g, g0, a, delta = layer
    kept = torch.ones(5, 12, dtype=torch.bool)
    kept[1, 3] = kept[1, 7] = kept[2, 0] = False
    padded = theory.without_constant(of, kept)
    update, bias = theory.natural_update(padded, g * kept, g0)
    for unit in range(5):
        smaller = theory.unit_moments(a[:, kept[unit]], delta[:, [unit]])
        torch.testing.assert_close(
            theory.correction(padded)[[unit]], theory.correction(smaller), **TOLERANCE
        )
        expected, of_bias = theory.natural_update(smaller, g[[unit]][:, kept[unit]], g0[[unit]])
        torch.testing.assert_close(update[[unit]][:, kept[unit]], expected, **TOLERANCE)
        torch.testing.assert_close(bias[[unit]], of_bias, **TOLERANCE)
        assert (update[unit][~kept[unit]] == 0).all()


def drawn(unit, x, number=40_000):
    """What a stochastic module gives for x, drawn over and over."""
    stream = Stream(0)
    attach(unit, stream)
    stream.move(0, 0)
    return unit.train()(x.expand(number, -1))


def test_variance_of_soi_and_dropout_is_as_simulated():
    x = torch.tensor([-1.5, -1.0, -0.3, 0.0, 0.5, 1.0, 2.0, 5.0])
    for unit, expected in (
        (factory("soi")(), theory.soi_variance(x)),
        (Dropout(0.25), theory.dropout_variance(x, 0.25)),
    ):
        torch.testing.assert_close(drawn(unit, x).var(0), expected, rtol=0.05, atol=2e-4)
    # Under dropout it grows with x, under SOI Φ(1 − Φ) damps it.
    assert theory.dropout_variance(x[3:], 0.25).diff().gt(0).all()
    assert theory.soi_variance(x[-1]) < 1e-4 < theory.soi_variance(x[-2])
