"""Any module: its training and evaluation mode, a batch looked at in between, attributes of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Found = TypeVar("Found")
_BARE = vars(nn.Module()).keys()  # what every module has


def own_attributes(module: nn.Module) -> dict[str, Any]:
    """What a module holds beside parameters, buffers, children and all else that every module has."""
    return {name: value for name, value in vars(module).items() if name not in _BARE}


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards each part is in the mode in which it was.

    `nn.Module.train` would also wake up parts that a network keeps in evaluation mode.
    """
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


class Lending:
    """Gives a batch to be looked at before it is trained on; copies of it to what overwrites its inputs.

    Whether that is so shows the first batch.
    """

    def __init__(self) -> None:
        self._copies = True

    def __call__(self, look: Callable[[tuple[Tensor, ...]], Found], batch: tuple[Tensor, ...]) -> Found:
        """What ``look`` finds."""
        if not self._copies:
            return look(batch)
        lent = tuple(part.clone() if isinstance(part, Tensor) else part for part in batch)
        found = look(lent)
        self._copies = any(isinstance(part, Tensor) and part._version for part in lent)
        return found
