"""Which gradients count as wrong: hand-written backward passes, but no kink, jump or random map."""

import pytest
import torch

from actlab import activations
from actlab.activations.smooth import differentiable
from actlab.checks.gradient_trial import fault_of_gradient, fault_of_rows, wrong_share

SHAPE = (8, 16)


def share(spec, shape=SHAPE):
    unit = activations.factory(spec)(shape[1])
    unit(torch.zeros(shape, requires_grad=True))  # creates lazy parameters
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
        *(
            "torch.nn:Hardtanh",
            "torch.nn:RReLU",
            "torch.nn:PReLU",
            "torch.nn:Softmax2d",
            "torch.nn:Hardshrink",
        ),
        *(
            "torch.nn:ReLU6",
            "torch.nn:AlphaDropout",
            "torch.nn:Hardsigmoid",
            "torch:round",
            "torch:sign",
        ),
        {"name": "prelu", "per_channel": True},
        {"name": "gelu", "learnable": True, "channels": 3},
        {"name": "adaptive_dropout", "activation": "prelu"},
    ],
    ids=str,
)
def test_kinks_plateaus_and_masks_are_no_faults(spec):
    assert share(spec, (8, 3, 5, 5)) == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("TwiceForNegative", 0.1),
        *((name, 0.3) for name in ("StraightThrough", "DeclaredStraightThrough")),
        *(
            (name, 0.9)
            for name in ("Twice", "TwiceAndKept", "TwiceInTraining", "TwiceCentred", "WrongSlope")
        ),
        *((name, 0.9) for name in ("undeclared_function", "stopped", "SingleTwice")),
    ],
)
def test_wrong_gradients_are_wrong(file, name, least):
    assert share(f"{file}:{name}") > least


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        *(
            (name, True)
            for name in ("DeclaredStraightThrough", "DeclaredInside", "declared_function")
        ),
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


@pytest.mark.parametrize(
    "spec",
    [
        *activations.names(),
        *({"name": "gelu", "learnable": True, "channels": n} for n in (1, 16)),
        *("torch.nn:Hardtanh", "torch.nn:RReLU", "torch.nn:AlphaDropout", "torch:round"),
    ],
    ids=str,
)
def test_the_second_and_third_derivative_of_registered_activations_are_right(spec):
    unit = differentiable(lambda: activations.create(spec))()  # as tasks use it
    assert [wrong_share(unit, torch.zeros(SHAPE), order) for order in (2, 3)] == [0, 0]


@pytest.mark.parametrize(
    "name",
    ["Right", "RightCentred", "steps", "single", "Single", "Bernoulli", "FromZero", "RowSoftmax"],
)
def test_right_derivatives_are_right(file, name):
    unit = activations.create(f"{file}:{name}")
    assert fault_of_gradient(unit, torch.zeros(SHAPE), order=3) is None


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_reentrant_checkpoint_has_the_gradient_that_trains(file):
    assert share(f"{file}:Checkpointed") == 0


@pytest.mark.parametrize(
    ("name", "order"),
    [("KeptSlope", 2), ("KeptSoftmax", 2), ("KeptSharpness", 2), ("KeptCurvature", 3)],
)
def test_a_derivative_of_a_constant_is_wrong(file, name, order):
    unit = activations.create(f"{file}:{name}")
    assert fault_of_gradient(unit, torch.zeros(SHAPE), order - 1) is None
    told = {2: "second", 3: "third"}[order]
    said = fault_of_gradient(unit, torch.zeros(SHAPE), order=3)
    assert said.startswith(f"has a {told} derivative that differs from the difference quotient at ")
    assert "updates of this task require it. Compute" in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FirstSize", "a batch of 3 after one of 2 (RuntimeError: "),
        ("SecondSize", "a batch of 16 after one of 3 "),
    ],
)
def test_state_of_the_size_of_a_batch_is_a_fault(file, name, text):
    assert text in fault_of_rows(activations.create(f"{file}:{name}"), torch.zeros(SHAPE))
    for right in ("Right", "TwiceInTraining"):
        assert fault_of_rows(activations.create(f"{file}:{right}"), torch.zeros(SHAPE)) is None
    assert fault_of_rows(torch.nn.LazyBatchNorm1d(), torch.zeros(SHAPE)) is None


def test_adaptive_dropout_around_a_surrogate_is_one(file):
    inner = f"{file}:DeclaredStraightThrough"
    assert activations.has_surrogate_gradient(
        activations.create({"name": "adaptive_dropout", "activation": inner})
    )
    assert not any(
        activations.has_surrogate_gradient(activations.create(name)) for name in activations.names()
    )


def test_the_trial_leaves_the_activation_and_the_generators_as_they_were(file):
    unit = activations.create(f"{file}:FromZero").train()
    state = torch.get_rng_state()
    assert fault_of_gradient(unit, torch.zeros(SHAPE)) is None
    assert torch.equal(torch.get_rng_state(), state)
    assert unit.training
    assert unit.slope.dtype == torch.float32
    assert unit.slope.item() == 0
    assert unit.slope.grad is None
