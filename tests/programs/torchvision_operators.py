"""Makes torchvision's operators where they are missing; prints which there are in each copy of this process."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch

from actlab.runtime import operators


def real() -> None:
    """`import actlab` watches for torchvision."""
    import_module("torchmetrics")
    import_module("torchvision.transforms.v2.functional")


def loads() -> None:
    vars(torch.ops)["load_library"] = lambda path: None
    operators.define_operators(Path())


def does_not_load() -> None:
    operators.define_operators(Path())


cases: tuple[Callable[[], None], ...] = (real, loads, does_not_load)
for case in cases:
    if not (copy := os.fork()):
        case()
        print(
            case.__name__, *(hasattr(torch.ops.torchvision, name) for name in operators.OPERATORS), flush=True
        )
        os._exit(0)
    os.waitpid(copy, 0)
