"""Helpers for any module: its own attributes, evaluation mode, and batches safe from in-place changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Found = TypeVar("Found")
_BARE = vars(nn.Module()).keys()  # attributes of every module


def own_attributes(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes without parameters, buffers, children and the attributes of every module."""
    return {name: value for name, value in vars(module).items() if name not in _BARE}


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run a block in evaluation mode without gradients; restore the mode of each submodule afterwards."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:  # `train` would also change submodules that a network keeps in evaluation mode
            part.training = True


class Lending:
    """Evaluates a function on a batch before training on this batch, without changing the batch.

    The function receives copies until it leaves a copy unchanged, normally at the first batch.
    """

    def __init__(self) -> None:
        self._copies = True

    def __call__(self, look: Callable[[tuple[Tensor, ...]], Found], batch: tuple[Tensor, ...]) -> Found:
        """Return ``look(batch)``."""
        if not self._copies:
            return look(batch)
        lent = tuple(part.clone() if isinstance(part, Tensor) else part for part in batch)
        found = look(lent)
        self._copies = any(isinstance(part, Tensor) and part._version for part in lent)
        return found
