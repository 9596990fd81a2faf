"""Activation functions by name: deterministic, stochastic and user-defined.

`factory` turns a name into a factory; a network calls it once per site, with the number of features
there::

    act = factory({"name": "elu", "alpha": 0.5})
    network = nn.Sequential(nn.Linear(784, 128), act(128), nn.Linear(128, 10))
"""

from actlab.activations import deterministic, gates, stochastic
from actlab.activations.example_pass import FunctionalCall
from actlab.activations.plugins import Function
from actlab.activations.registry import (
    Entry,
    Factory,
    create,
    declared,
    entry,
    factory,
    has_surrogate_gradient,
    is_elementwise,
    is_stochastic,
    names,
    register,
)
from actlab.activations.replacement import Replacement, replace
from actlab.storage.spec import Activation, Spec

__all__ = [
    "Activation",
    "Entry",
    "Factory",
    "Function",
    "FunctionalCall",
    "Replacement",
    "Spec",
    "create",
    "declared",
    "deterministic",
    "entry",
    "factory",
    "gates",
    "has_surrogate_gradient",
    "is_elementwise",
    "is_stochastic",
    "names",
    "register",
    "replace",
    "stochastic",
]
