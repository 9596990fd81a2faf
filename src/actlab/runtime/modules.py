"""Helpers for any module: plain attributes, and evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_BARE = vars(nn.Module()).keys()  # attributes of every module


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes without parameters, buffers, children and the attributes of every module."""
    return {name: value for name, value in vars(module).items() if name not in _BARE}


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run a block in evaluation mode without gradients; restore the mode of each submodule afterwards."""
    # Listed before `eval`, which changes all of them.
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:  # `train` would also change submodules that a network keeps in evaluation mode
            part.training = True
