"""torchvision beside a torch that its native extension fits and does not fit."""

from importlib import import_module
from pathlib import Path

import torch

from actlab.runtime.operators import OPERATORS, define_operators


def test_missing_operators_are_defined_and_those_of_an_extension_stay(monkeypatch):
    import_module("torchvision.transforms.v2.functional")  # `import actlab` watches for torchvision
    assert all(hasattr(torch.ops.torchvision, name) for name in OPERATORS)
    defined: list[str] = []
    monkeypatch.setattr(torch.library, "define", lambda name, schema: defined.append(name))
    define_operators(Path("nowhere"))  # without an extension
    assert defined == [f"torchvision::{name}" for name in OPERATORS]
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    define_operators(Path("nowhere"))
    assert len(defined) == len(OPERATORS)
