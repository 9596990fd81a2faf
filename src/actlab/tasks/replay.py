"""The gradients of an update as one program, which a GPU starts at once.

From Python a GPU starts some 300 kernels an update, which takes longer than the kernels. A program has the
forward pass, the loss, the backward pass and clipping. What changes from update to update stays outside: the
batch, the keys of the random numbers, and the optimiser's step with its settings.

Whatever Python does in an update is done once, when the program is made. So a program serves while the plain
values of all modules are those it was made with, and is compared with the update itself: at first three times,
in each later epoch once. Where they differ, the updates are made from Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from actlab.networks import Dropout
from actlab.random import streams

Outputs = Any  # the loss, what is measured, and the gradient of each parameter of the optimiser
Gradients = Callable[[tuple[Tensor, ...]], Outputs]
CHECKS = 3  # comparisons of the first program
FAR = 1e-3  # share of the largest value by which equal updates may differ on a GPU, whose sums have no order


class Captured:
    """The gradients of an update as a CUDA graph."""

    def __init__(self, gradients: Gradients, batch: tuple[Tensor, ...]) -> None:
        self.batch = tuple(part.clone() for part in batch)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.outputs = gradients(self.batch)
        self.kept = dict(streams._counters)  # the graph reads their memory, which a longer counter would free

    def __call__(self, batch: tuple[Tensor, ...]) -> Outputs:
        """Return the outputs of a batch, in tensors that the next call overwrites."""
        for part, given in zip(self.batch, batch, strict=True):
            part.copy_(given)
        self.graph.replay()
        return self.outputs


def traced(gradients: Gradients, batch: tuple[Tensor, ...]) -> Gradients:
    """Return the operators of an update as one program: on a CPU no faster, but as frozen as a CUDA graph."""
    return make_fx(gradients)(batch)


PROGRAMS: dict[str, Callable[[Gradients, tuple[Tensor, ...]], Gradients]] = {"cuda": Captured}  # by device


class Replay:
    """The program of a task or a stack, made and compared as training goes.

    Attributes:
        reason: why updates are made from Python; None where there is a program, or none was tried yet.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._program: Gradients | None = None
        self._frozen: list[Any] = []  # what the program holds of Python
        self._checks = CHECKS

    def is_ready(self, module: Any) -> bool:
        """Return whether there is a program, from an earlier block."""
        return self._program is not None and not self.reason and module.device.type in PROGRAMS

    def __call__(self, module: Any, gradients: Gradients, batch: tuple[Any, ...]) -> Outputs | None:
        """Return the outputs of an update, or None where it must be made from Python."""
        if self.reason or module.device.type not in PROGRAMS:
            return None
        if not _same(frozen := _frozen_in(module, batch), self._frozen):
            self._frozen, self._checks = frozen, max(self._checks, 1)
            return None  # a value that changes at each update leaves all of them to Python
        if self._program is not None and not self._checks:
            return self._program(batch)
        return self._checked(module, gradients, batch)

    def _checked(self, module: Any, gradients: Gradients, batch: tuple[Tensor, ...]) -> Outputs:
        """Return the outputs of the update itself, with which those of the program are compared."""
        begun, values = [buffer.clone() for buffer in module.buffers()], _values(module)
        right = gradients(batch)
        ended = [buffer.clone() for buffer in module.buffers()]
        if not _same(_values(module), values):
            self.reason = "an update changes an attribute of a module"
            return right
        try:
            # A program of an epoch before must be right in every bit, a new one as far as sums have an order.
            if self._program is None or not self._agrees(module, batch, begun, (right, ended), 0.0):
                _set(module, begun)
                module.stream.moves += 1  # else each site would count its draws as repeated ones
                self._program = PROGRAMS[module.device.type](gradients, batch)
                if not self._agrees(module, batch, begun, (right, ended), FAR):
                    self.reason = "a replayed update differs from the update"
        except RuntimeError as error:
            self.reason = str(error).strip().partition("\n")[0]
        self._checks -= 1
        _set(module, ended)
        return right

    def _agrees(self, module: Any, batch: Any, begun: list[Tensor], right: Any, far: float) -> bool:
        assert self._program is not None
        _set(module, begun)
        here = tree_leaves((self._program(batch), [*module.buffers()]))
        there = tree_leaves(right)
        return len(here) == len(there) and all(map(lambda a, b: _close(a, b, far), here, there))


def _close(here: Any, there: Any, far: float) -> bool:
    """Return whether two values are equal, tensors up to a share of the largest value."""
    if not (isinstance(here, Tensor) and isinstance(there, Tensor)):
        return bool(here == there)
    most = far * float(there.detach().abs().max()) if far and there.numel() else 0.0
    return torch.allclose(here.detach(), there.detach(), rtol=0, atol=most, equal_nan=True)


@torch.no_grad()
def _set(module: Any, buffers: list[Tensor]) -> None:
    for buffer, value in zip(module.buffers(), buffers, strict=True):
        buffer.copy_(value)


def _frozen_in(module: Any, batch: tuple[Any, ...]) -> list[Any]:
    """Return what a program freezes and code outside it may change between two updates."""
    return [
        module.current_epoch,
        module.trainer.gradient_clip_val,
        *((part.shape, part.dtype) if isinstance(part, Tensor) else object() for part in batch),
        *(layer.probability for layer in module.modules() if isinstance(layer, Dropout)),
        *(group.get("weight_decay") for group in module.trainer.optimizers[0].param_groups),
        module.stream.keys,
    ]


def _values(module: Any) -> list[Any]:
    values = (value for part in (*module.modules(), *module.members) for value in vars(part).values())
    plain = (value for value in values if isinstance(value, bool | int | float | str | Tensor))
    return [*module.parameters(), *module.buffers(), *plain]


def _same(here: list[Any], there: list[Any]) -> bool:
    return len(here) == len(there) and all(
        a is b if isinstance(a, Tensor) or isinstance(b, Tensor) else a == b
        for a, b in zip(here, there, strict=True)
    )
