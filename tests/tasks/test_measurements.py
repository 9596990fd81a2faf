"""Measurements during training change nothing of what is trained, whatever an activation holds."""

from typing import Any

import pytest
import torch
from torch import nn

import actlab
from actlab.callbacks import TestEveryEpoch, UnitStatistics
from actlab.networks import Dropout
from toys import FrameNetwork, Frames, FrameTask, fitted
from updates_in_blocks import check_equal


class Started(nn.Module):
    """Divides by the spread of its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        if not self.scale:
            self.scale.fill_(x.detach().std())
        return torch.relu(x) / self.scale


class StartedParameter(nn.Module):
    """The same, in the data of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.is_ready = nn.Parameter(torch.zeros(())), False

    def forward(self, x: Any) -> Any:
        if not self.is_ready:
            self.scale.data.fill_(x.detach().std())
            self.is_ready = True
        return torch.relu(x) / self.scale


class StartedPart(nn.Module):
    """The same, in a layer of torch that it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(1, 1)
        nn.init.zeros_(self.scale.weight)

    def forward(self, x: Any) -> Any:
        if not self.scale.weight:
            self.scale.weight.data.fill_(1 / x.detach().std())
        return self.scale(torch.relu(x).unsqueeze(-1)).squeeze(-1)


class Following(nn.Module):
    """Divides by a mean of the spreads of all batches, an attribute that it creates."""

    def forward(self, x: Any) -> Any:
        spread = x.detach().std()
        self.spread = 0.9 * getattr(self, "spread", spread) + 0.1 * spread
        return torch.relu(x) / self.spread


class StartedNetwork(FrameNetwork):
    """The network divides by the spread of its first outputs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.first = torch.zeros(())

    def forward(self, x: Any) -> Any:
        output = super().forward(x)
        if not self.first:
            self.first = output.detach().std()
        return output / self.first


def network(kind: type[nn.Module]) -> Any:
    """Training differs from evaluation before the activation already."""
    return lambda act, number, shape: nn.Sequential(Dropout(0.5), kind(act, number, shape))


ACTIVATIONS = [Started, StartedParameter, StartedPart, Following]


@pytest.mark.parametrize(
    ("unit", "kind"),
    [*((unit, FrameNetwork) for unit in ACTIVATIONS), (nn.ReLU, StartedNetwork)],
    ids=lambda value: value.__name__,
)
@pytest.mark.parametrize("measurement", ["clean loss", "unit statistics", "tests"])
def test_a_measurement_leaves_training_as_it_is(measurement, unit, kind, tmp_path):
    callbacks = {"unit statistics": UnitStatistics(), "tests": TestEveryEpoch()}
    states = []
    for is_measured in (True, False):
        clean = is_measured and measurement == "clean loss"
        task = FrameTask(activation=unit, network=network(kind), clean_training_loss=clean)
        callback = callbacks.get(measurement) if is_measured else None
        trainer = fitted(task, Frames(), tmp_path, *([callback] if callback else []))
        assert ("train/clean_loss" in trainer.callback_metrics) == clean
        states.append(task.state_dict())
    check_equal(*states)


@pytest.mark.parametrize("unit", ACTIVATIONS)
def test_the_example_of_replace_leaves_the_model_as_it_was(unit):
    model = nn.Sequential(unit(), nn.ReLU())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    actlab.replace(model, "relu", "gelu", example=torch.randn(5, 3))
    check_equal(model.state_dict(), before)
    assert not hasattr(model[0], "spread")
    assert not getattr(model[0], "is_ready", False)


def test_the_example_of_replace_serves_expanded_and_lazy_tensors():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    model.register_buffer("mask", torch.zeros(1).expand(3))
    assert actlab.replace(model, "relu", "gelu", example=torch.randn(5, 4)).paths == ("1",)
    assert model[0].in_features == 4
