"""Wrong arguments of public constructors: an ActlabError, and no other error."""

import importlib
import inspect
import math
import re
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

import actlab
from actlab import datamodules, networks, optim, probes
from actlab.errors import ActlabError

GIVEN = {
    **{
        "activation": "relu",
        "act": actlab.factory("relu"),
        "network": networks.MLP,
        "num_classes": 3,
    },
    **{
        "num_outputs": 3,
        "input_shape": (4,),
        "dataset": "x",
        "factors": {1: 0.5},
        "length": 5,
        "p": 0.5,
    },
    **{
        "params": [torch.nn.Parameter(torch.zeros(1))],
        "seed": 0,
        "strength": 0.1,
        "strengths": [0.5],
    },
}
NAN: Any = math.nan
WRONG = ["text", -1, math.nan, [None], b"x", object()]


def constructors():
    for room in ("optim", "probes", "datamodules", "callbacks", "tasks", "networks"):
        module = importlib.import_module(f"actlab.{room}")
        for name in getattr(
            module, "__all__", [name for name in vars(module) if not name.startswith("_")]
        ):
            found = getattr(module, name)
            if inspect.isclass(found) and hasattr(found.__init__, "__wrapped__"):
                yield pytest.param(found, id=name)


@pytest.mark.parametrize("made", [*constructors()])
def test_wrong_arguments_raise_no_other_error(made):
    parameters = inspect.signature(made.__init__).parameters
    needed = {
        name: GIVEN[name]
        for name, one in parameters.items()
        if one.default is one.empty and name in GIVEN
    }
    for name in parameters.keys() - {"self", "params"}:
        for value in WRONG:
            # Some values are right, as a text may be
            with (
                suppress(ActlabError),
                torch.device("meta"),
            ):
                made(**{**needed, name: value})


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            lambda: optim.Plateau(patience=-1),
            "Plateau: patience: expected a number greater than or equal to 0",
        ),
        (
            lambda: probes.PassedNoise(draws=NAN),
            "PassedNoise: draws: expected a whole number, got nan",
        ),
        (
            lambda: datamodules.CIFARDataModule(eval_batch_size=NAN),
            "eval_batch_size: expected a whole",
        ),
        (lambda: optim.Linear(final=math.nan), "Linear: final: expected a finite number, got nan"),
        (
            lambda: networks.MLP(actlab.factory("relu"), 0),
            "MLP: num_classes: expected a number greater than",
        ),
    ],
)
def test_what_was_accepted_once_is_named(made, text):
    with pytest.raises(ActlabError, match=re.escape(text)):
        made()


def test_numbers_of_numpy_are_numbers():
    number, hidden, strengths = np.int64(3), np.array([8, 8]), np.linspace(0, 1, 3)
    network = networks.MLP(actlab.factory("relu"), number, torch.zeros(2, 4).shape[1:], hidden)  # type: ignore[arg-type]
    assert network(torch.zeros(1, 4)).shape == (1, 3)
    assert probes.InputNoise(strengths).split == "test"  # type: ignore[arg-type]
