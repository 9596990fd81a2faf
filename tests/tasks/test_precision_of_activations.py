"""Activations with tensors of less precision than the network's learn in the network's."""

import pytest
import torch
from torch import nn

from actlab.tasks import ClassificationTask

ACTIVATION = """
import torch
from torch import nn

class Low(nn.Module):
    stochastic = False

    def __init__(self, dtype="bfloat16"):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.75], dtype=getattr(torch, dtype)))
        self.register_buffer("scale", torch.ones(1, dtype=torch.float16))
        for kept in (torch.float64, torch.complex64, torch.int8):
            self.register_buffer(str(kept)[6:] + "_kept", torch.zeros(1, dtype=kept))

    def forward(self, x):
        return torch.where(x > 0, self.slope * x, torch.tanh(x)) * self.scale.to(x.dtype)

class Lazy(nn.LazyBatchNorm1d):
    pass
"""


@pytest.fixture
def make(tmp_path):
    (tmp_path / "low.py").write_text(ACTIVATION)

    def make(name, **params):
        spec = {"name": f"{tmp_path}/low.py:{name}", **params}
        return ClassificationTask(activation=spec, num_classes=3, input_shape=(1, 4, 4))

    return make


def test_a_narrow_slope_learns_as_a_float32_one(make):
    learnt = []
    for dtype in ("bfloat16", "float32"):
        task = make("Low", dtype=dtype)
        optimizer = torch.optim.SGD(task.parameters(), 1e-3)
        for _ in range(3):
            task.loss((torch.ones(2, 1, 4, 4), torch.tensor([0, 1]))).backward()
            optimizer.step()
        learnt.append([float(unit.slope.detach()) for unit in task.activations])
    assert learnt[0] == learnt[1] != [0.75] * 8


def test_wide_complex_and_whole_numbers_stay(make):
    unit = make("Low").activations[0]
    found = {name: str(value.dtype)[6:] for name, value in unit.state_dict().items()}
    kept = {f"{dtype}_kept": dtype for dtype in ("float64", "complex64", "int8")}
    assert found == {"slope": "float32", "scale": "float32", **kept}


def test_lazy_modules_of_users_are_raised_too(make):
    assert all(
        isinstance(unit, nn.BatchNorm1d) and unit.weight.shape == (128,)
        for unit in make("Lazy").activations
    )
