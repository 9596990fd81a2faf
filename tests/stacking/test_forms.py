"""Stacked forms: what enters the table, what is walked, called member by member, or refused."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from actlab.networks import Dropout, initialise
from actlab.stacking import StackedTask, layers, stacked_form, walked
from actlab.tasks import ClassificationTask
from stacking.equality import assert_trains_as_alone

RUNS, STEPS = 3, 8


class Scale(nn.Module):
    """A layer of a user's own, with a gain a feature."""

    stochastic = False

    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features, features))

    def forward(self, x):
        return x * self.gain.diagonal()


class Residual(nn.Module):
    """A composite of a user's own."""

    stochastic = False

    def __init__(self, act):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), act(8), Dropout(0.3))

    def forward(self, x):
        return x + self.body(x)


class Network(nn.Sequential):
    """With a layer of each kind."""

    def __init__(self, act, num_classes, input_shape, middle):
        super().__init__(
            nn.Flatten(), nn.Linear(6, 8), act(8), *middle(act), nn.Linear(8, num_classes)
        )
        initialise(self, "he")


class DriftingBuffer(nn.Module):
    """An activation that replaces its buffer instead of writing into it."""

    mean: torch.Tensor
    stochastic = False

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return (x - self.mean).relu()


class RandomSlope(nn.Module):
    """Says that it acts elementwise, and draws from torch's own generator."""

    elementwise = True

    def forward(self, x):
        slope = torch.rand(()) if self.training else torch.tensor(0.5)
        return torch.where(x < 0, slope.to(x.dtype) * x, x)


class DrawnOnce(nn.Module):
    """Says that it acts elementwise, but each has a slope drawn when it was made."""

    elementwise = True
    stochastic = False

    def __init__(self):
        super().__init__()
        self._slope = torch.rand(()).item()

    def forward(self, x):
        return torch.where(x < 0, self._slope * x, x)


def task(seed, middle=lambda act: [], activation="elu"):
    return ClassificationTask(
        num_classes=4,
        input_shape=(6,),
        activation=activation,
        network=partial(Network, middle=middle),
        optimizer=partial(torch.optim.Adam, lr=0.01 * (seed + 1)),
        seed=seed,
    ).double()


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(RUNS, 16, 6, generator=generator, dtype=torch.float64)
        yield x, torch.randint(4, (RUNS, 16), generator=generator)


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(layers, "_FORMS", dict(layers._FORMS))


@pytest.mark.usefixtures("table")
def test_a_users_layer_enters_the_table():
    make = partial(task, middle=lambda act: [Scale(8)])
    assert "Scale has no stacked form" in layers.reason_against(make(0).network)

    @stacked_form(Scale)
    class StackedScale(nn.Module):
        def __init__(self, members, stream):
            super().__init__()
            self.gain = nn.Parameter(torch.stack([m.gain.detach() for m in members]))

        def forward(self, x):
            return x * self.gain.diagonal(dim1=1, dim2=2).unsqueeze(1)

    stack = assert_trains_as_alone(make, batches)
    assert any(isinstance(m, StackedScale) for m in stack.modules())


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("activation", ["elu", "soi", f"{__file__}:RandomSlope"])
def test_a_composite_is_walked(activation):
    make = partial(task, middle=lambda act: [Residual(act), Residual(act)], activation=activation)
    assert "Residual has no stacked form" in layers.reason_against(make(0).network)
    stacked_form(Residual)(walked)
    stack = assert_trains_as_alone(make, batches)
    assert sum(isinstance(m, layers.StackedLinear) for m in stack.modules()) == 4


@pytest.mark.usefixtures("table")
def test_a_composite_that_may_draw_is_not_walked(monkeypatch):
    stacked_form(Residual)(walked)
    monkeypatch.delattr(Residual, "stochastic")
    one = task(0, middle=lambda act: [Residual(act)])
    assert "stochastic = False" in layers.reason_against(one.network, one.activations)


@pytest.mark.usefixtures("table")
def test_a_subclass_with_a_forward_of_its_own_needs_a_form_of_its_own():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    class Named(nn.Linear):
        """Nothing but another name."""

    assert layers.form_of(Named(2, 2)) is layers.StackedLinear
    assert layers.form_of(Doubled(2, 2)) is None


@pytest.mark.parametrize(
    "activation",
    [
        "gelu_tanh",
        "soi",
        "rrelu",
        {"name": "gelu", "per_channel": True, "learnable": True},
        {"name": "adaptive_dropout", "activation": "prelu"},  # masks must move with the steps
        f"{__file__}:RandomSlope",
        f"{__file__}:DrawnOnce",
        f"{__file__}:DriftingBuffer",
        "torch.nn:RReLU",
        "torch.nn:AlphaDropout",
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else None,
)
def test_units_keep_to_themselves(activation):
    """Beside dropout, a stacked layer."""
    middle = lambda act: [Dropout(0.4)]  # noqa: E731
    assert_trains_as_alone(
        partial(task, middle=middle, activation=copy.deepcopy(activation)), batches
    )


def test_masks_of_members_move_with_the_steps():
    one = StackedTask(
        [
            task(seed, activation={"name": "adaptive_dropout", "activation": "prelu"})
            for seed in (0, 1)
        ]
    )
    (x, y), masks = next(batches()), []
    for step in range(3):
        one.stream.move(0, step)
        one.train().measured((x[:2], y[:2]), shared=False)
        unit = one.network.layers[2].members[1]
        masks.append(unit(torch.ones(1000, dtype=torch.float64)) == 0)
    assert not any(torch.equal(a, b) for a, b in ((masks[0], masks[1]), (masks[1], masks[2])))


@pytest.mark.parametrize("axes", [(5,), (4, 5), (2, 4, 5)])
def test_linear_layers_take_further_axes(axes):
    members = [nn.Linear(5, 3, bias=bias).double() for bias in (True,) * 3]
    x = torch.randn(3, 7, *axes, dtype=torch.float64)
    together = layers.StackedLinear(members, None)(x)  # type: ignore[arg-type]  # draws nothing
    for r, one in enumerate(members):
        torch.testing.assert_close(together[r], one(x[r]))


def shared_unit(act):
    unit = act()
    return [nn.Linear(8, 8), unit, nn.Linear(8, 8), unit]


@pytest.mark.parametrize("activation", ["elu", "soi", "prelu", f"{__file__}:DriftingBuffer"])
def test_a_unit_that_acts_at_two_places_does_so_in_a_stack(activation):
    assert_trains_as_alone(partial(task, middle=shared_unit, activation=activation), batches)


def drops_twice(act):
    drop = Dropout(0.4)
    return [nn.Linear(8, 8), drop, act(), drop]


def test_a_shared_dropout_draws_two_masks_in_a_training_step_as_it_does_alone():
    def make(seed):
        one = task(seed, middle=drops_twice)
        one.stream.steps = True
        return one

    assert_trains_as_alone(make, batches, steps=True)
