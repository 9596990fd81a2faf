"""Which gradients count as wrong: those of hand-written backward passes, but no kink, jump or random map."""

import pytest
import torch

from actlab import activations
from actlab.engines.gradient_trial import fault_of_gradient, wrong_share

SHAPE = (8, 16)


def share(spec, shape=SHAPE):
    unit = activations.create(spec)
    unit(torch.zeros(shape, requires_grad=True))  # infers the channels of lazy parameters
    return wrong_share(unit, torch.zeros(shape))


@pytest.fixture
def file(programs):
    return programs / "hand_written_gradients.py"


@pytest.mark.parametrize("shape", [(8, 16), (8, 3, 5, 5)])
@pytest.mark.parametrize("name", activations.names())
def test_registered_activations_have_the_gradient_of_their_output(name, shape):
    assert share(name, shape) == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(
    "spec",
    [
        *("torch.nn:Hardtanh", "torch.nn:RReLU", "torch.nn:PReLU", "torch.nn:Softmax2d", "torch.nn:Hardshrink"),
        *("torch.nn:ReLU6", "torch.nn:AlphaDropout", "torch.nn:Hardsigmoid", "torch:round", "torch:sign"),
        {"name": "prelu", "per_channel": True},
        {"name": "gelu", "learnable": True, "channels": 3},
        {"name": "adaptive_dropout", "activation": "prelu"},
    ],
    ids=str,
)
def test_kinks_plateaus_and_masks_are_no_faults(spec):
    assert share(spec, (8, 3, 5, 5)) == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(
    "name", ["Right", "RightCentred", "steps", "single", "Single", "Bernoulli", "FromZero"]
)
def test_right_gradients_are_right(file, name):
    assert share(f"{file}:{name}") == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("TwiceForNegative", 0.1),
        *((name, 0.3) for name in ("StraightThrough", "DeclaredStraightThrough")),
        *((name, 0.9) for name in ("Twice", "TwiceAndKept", "TwiceInTraining", "TwiceCentred", "WrongSlope")),
        *((name, 0.9) for name in ("undeclared_function", "stopped", "SingleTwice")),
    ],
)
def test_wrong_gradients_are_wrong(file, name, least):
    assert share(f"{file}:{name}") > least


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        *((name, True) for name in ("DeclaredStraightThrough", "DeclaredInside", "declared_function")),
        *((name, False) for name in ("Undeclared", "StraightThrough", "undeclared_function")),
    ],
)
def test_a_declared_surrogate_is_accepted(file, name, accepted):
    unit = activations.create(f"{file}:{name}")
    fault = fault_of_gradient(unit, torch.zeros(SHAPE))
    if accepted:
        assert fault is None
    else:
        assert "surrogate_gradient = True" in fault


def test_adaptive_dropout_around_a_surrogate_is_one(file):
    inner = f"{file}:DeclaredStraightThrough"
    assert activations.has_surrogate_gradient(
        activations.create({"name": "adaptive_dropout", "activation": inner})
    )
    assert not any(activations.has_surrogate_gradient(activations.create(name)) for name in activations.names())


def test_the_trial_leaves_the_activation_and_the_generators_as_they_were(file):
    unit = activations.create(f"{file}:FromZero").train()
    state = torch.get_rng_state()
    assert fault_of_gradient(unit, torch.zeros(SHAPE)) is None
    assert torch.equal(torch.get_rng_state(), state)
    assert unit.training
    assert unit.slope.dtype == torch.float32
    assert unit.slope.item() == 0
    assert unit.slope.grad is None
