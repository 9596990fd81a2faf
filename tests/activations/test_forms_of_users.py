"""Activations in the forms that people write, and the messages on those that cannot be built."""

import copy
import sys

import pytest
import torch

import actlab
from actlab.activations import is_stochastic
from actlab.errors import ActlabError
from actlab.tasks import ClassificationTask

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")  # torch's own
FORMS = """
import functools
import torch
from torch import nn

def logged(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

@logged
def decorated(x, slope=2.0):
    return slope * x

@logged
def building(slope=0.5):
    return nn.LeakyReLU(slope)

@logged
def failing(x):
    return x.no_such_method()

class Double(torch.autograd.Function):
    stochastic = False

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.slope * x

def scripted():
    return torch.jit.script(Plain())

class Holding(nn.Module):
    stochastic = False

    def __init__(self):
        super().__init__()
        self.inner = scripted()

    def forward(self, x):
        return self.inner(x)

@torch.jit.script
def script(x: torch.Tensor):
    return 2 * x

"""


@pytest.fixture
def forms(tmp_path):
    (tmp_path / "forms.py").write_text(FORMS)
    return f"{tmp_path}/forms.py"


@pytest.mark.parametrize("name", ["decorated", "Double", "scripted", "Holding", "script"])
def test_a_form_trains(name, forms):
    x = torch.ones(2, 3)
    assert torch.equal(copy.deepcopy(actlab.create(f"{forms}:{name}"))(x), 2 * x)
    task = ClassificationTask(activation=f"{forms}:{name}", num_classes=3, input_shape=(1, 4, 4))
    task.loss((torch.ones(2, 1, 4, 4), torch.tensor([0, 1]))).backward()
    assert all(parameter.grad is not None for parameter in task.parameters())


def test_a_decorated_function_may_build_a_module(forms):
    assert actlab.create(f"{forms}:building", slope=0.25).negative_slope == 0.25
    shown, is_random = (
        repr(actlab.create(f"{forms}:Double")),
        is_stochastic(actlab.create(f"{forms}:Double")),
    )
    assert ("Double" in shown, is_random) == (True, False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "failing",
            (
                "'Tensor' object has no attribute 'no_such_method' .*line 21: .*Without a "
                "tensor: .*'x'"
            ),
        ),
        (
            "nothing_near",
            "Allowed: Double, Holding, Plain, building, decorated, .*script, scripted",
        ),
    ],
)
def test_what_cannot_be_built_says_what_to_write(name, message, forms):
    with pytest.raises(ActlabError, match=message):
        actlab.factory(f"{forms}:{name}")


def test_many_attributes_are_not_listed():
    with pytest.raises(ActlabError, match=r"name in torch.nn 'Relu'; did you mean 'ReLU' .*\?$"):
        actlab.factory("torch.nn:Relu")


def test_a_file_that_parses_arguments_sees_its_own(tmp_path, monkeypatch):
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({!r})\n"
        "parser.parse_args()\n"
    )
    (tmp_path / "optional.py").write_text(text.format("--beta") + "def act(x):\n    return x\n")
    (tmp_path / "required.py").write_text(text.format("beta"))
    monkeypatch.setattr(sys, "argv", words := ["actlab", "check", "./optional.py:act"])
    assert actlab.factory(f"{tmp_path}/optional.py:act")()(torch.ones(2))[0] == 1
    with pytest.raises(
        ActlabError, match=r"required\.py ends the process with code 2 when it is imported"
    ):
        actlab.factory(f"{tmp_path}/required.py:act")
    assert sys.argv is words


def test_a_file_of_a_package_is_named_by_it(tmp_path, monkeypatch):
    inner = tmp_path / "own_package" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").touch()
    (inner / "__init__.py").write_text("FACTOR = 2\n")
    (inner / "acts.py").write_text("from . import FACTOR\ndef act(x):\n    return FACTOR * x\n")
    with pytest.raises(ActlabError, match="relative import"):
        actlab.factory(f"{inner}/acts.py:act")
    monkeypatch.syspath_prepend(tmp_path)
    assert actlab.create("own_package.inner.acts:act")(torch.ones(1)) == 2
