"""The gradients of an update as one program, which a GPU starts at once.

From Python a GPU starts some 300 kernels an update, which takes longer than the kernels. A program has the
forward pass, the loss, the backward pass and clipping. What changes from update to update stays outside: the
batch, the keys of the random numbers, and the optimiser's step with its settings.

Whatever Python does in an update is done once, when the program is made. So it is made again only if a value
changes that code outside the update sets, and it is compared with the update itself: three times at first,
after each such change, and in the epochs 1, 2, 4, 8 and so on. Before it is made, the update is made three
times more from Python: as it is, which shows how far two equal updates differ on this device, and with other
numbers of updates and epochs. Where a comparison fails, the updates are made from Python.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from statistics import median
from types import ModuleType
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from actlab.networks import Dropout
from actlab.random import streams
from actlab.runtime import accidents
from actlab.tasks import graphs
from actlab.tasks.progress import moved

Outputs = Any  # the loss, what is measured, and the gradient of each parameter of the optimiser
Gradients = Callable[[tuple[Tensor, ...]], Outputs]
Frozen = list[tuple[str, list[Any]]]  # values by what they are
CHECKS = 3  # comparisons of the first program
FAR = 1e-6  # relative difference by which equal updates may differ, and …
TIMES = 10  # … the multiple of the difference of two updates from Python
PATIENCE = 100  # updates of which none is replayed before that has a reason


@contextmanager
def _without_waiting() -> Iterator[None]:
    """Raise an error where an update waits for the GPU: a capture would end there, and harm the process."""
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


class Captured:
    """The gradients of an update as a CUDA graph."""

    def __init__(self, gradients: Gradients, batch: tuple[Tensor, ...]) -> None:
        self.batch = tuple(part.clone() for part in batch)
        self.graph = torch.cuda.CUDAGraph()
        stream, complete = torch.cuda.current_stream(), False
        try:
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.outputs = gradients(self.batch)
            complete = True
        finally:
            torch.cuda.set_stream(stream)  # after an error that of the capture would stay current
            if not complete:
                accidents.mark_harmed()
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
TRIALS: dict[str, Callable[[], AbstractContextManager[None]]] = {"cuda": _without_waiting}


class Replay:
    """The program of a task or a stack, made and compared as training goes.

    Attributes:
        reason: why updates are made from Python; None where there is a program, or none was tried yet.
        replayed: number of updates made by the program.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.replayed = 0
        self._program: Gradients | None = None
        self._made_with: Frozen = []
        self._of_block: Frozen = []  # what the program holds of Python, and only code between blocks changes
        self._frozen: Frozen = []  # also what changes within blocks
        self._changed = ""  # what has changed last
        self._dropouts: list[Dropout] = []
        self._noise: list[list[float]] | None = None  # between two updates from Python
        self._reads_epoch = False  # whether the loss depends on the number of the epoch
        self._epoch = 0
        self._checks = CHECKS

    def begin(self, module: Any) -> bool:
        """Begin a block of updates; return whether there is a program, from an earlier block."""
        if module.device.type not in PROGRAMS:
            return False
        if reason := self.reason or reason_against(module):
            self.reject(reason)
        self._dropouts = [layer for layer in module.modules() if isinstance(layer, Dropout)]
        self._of_block = _frozen_in(module, self._dropouts, self._reads_epoch)
        epoch = module.current_epoch
        if epoch != self._epoch and epoch & (epoch - 1) == 0:
            self._checks = max(self._checks, 1)
        self._epoch = epoch
        return self._program is not None

    def is_settled(self, module: Any) -> bool:
        """Return whether the updates to come are like each other: none is compared or made into a program."""
        return module.device.type not in PROGRAMS or bool(self.reason) or not self._checks

    @property
    def is_ready(self) -> bool:
        """Whether there is a program that needs no comparison now."""
        return self._program is not None and not self._checks

    @property
    def why_none(self) -> str:
        """Why many updates were made and none replayed."""
        if self._changed:
            return f"{self._changed} changes at each update"
        return "an update or a batch draws from torch's own generators"

    def reject(self, reason: str) -> None:
        """Make all updates from Python from now on, for a reason, and free the program."""
        self.reason, self._program = reason, None

    def __call__(self, module: Any, gradients: Gradients, batch: tuple[Any, ...]) -> Outputs | None:
        """Return the outputs of an update, or None where it must be made from Python."""
        if self.reason or module.device.type not in PROGRAMS:
            return None
        frozen = self._of_block + _moving_in(module, self._dropouts, batch)
        if (changed := _change(frozen, self._frozen)) is not None:
            self._changed = changed if self._frozen else ""
            self._frozen, self._checks = frozen, max(self._checks, 1)
            return None  # a value that changes at each update leaves all of them to Python
        if self._program is not None and not self._checks:
            self.replayed += 1
            return self._program(batch)
        return self._checked(module, gradients, batch)

    def _checked(self, module: Any, gradients: Gradients, batch: tuple[Tensor, ...]) -> Outputs:
        """Return the outputs of the update itself, with which those of the program are compared."""
        begun, values = [buffer.clone() for buffer in module.buffers()], _values(module)
        outputs = gradients(batch)
        ended = [buffer.clone() for buffer in module.buffers()]
        if not _same(_values(module), values):
            self.reject("an update changes an attribute of a module")
            return outputs
        try:
            right = outputs, ended
            if self._noise is None:
                self._try(module, gradients, batch, begun, right)
            if not self.reason and _change(self._frozen, self._made_with) is not None:
                self._program = None  # first, because two programs need twice the memory
                _again(module, begun)
                self._program = PROGRAMS[module.device.type](gradients, batch)
                self._made_with = self._frozen
            if not self.reason and not self._agrees(module, batch, begun, right):
                self.reject("a replayed update differs from the update")
        except RuntimeError as error:
            self.reject(str(error).strip().partition("\n")[0])
        self._checks -= 1
        _set(module, ended)
        return outputs

    def _try(self, module: Any, gradients: Gradients, batch: Any, begun: list[Tensor], right: Any) -> None:
        """Make the update from Python again: as it is, with another number, and in another epoch."""

        def distances(context: AbstractContextManager[None]) -> list[list[float]]:
            _again(module, begun)
            with context:
                outputs = gradients(batch)
            return _distances((outputs, [*module.buffers()]), right)

        self._noise = distances(TRIALS.get(module.device.type, nullcontext)())
        if not _within(distances(moved(module.trainer, updates=True)), self._noise):
            self.reject("the loss depends on the number of the update")
        self._reads_epoch = not _within(distances(moved(module.trainer, updates=False)), self._noise)
        self._of_block = _frozen_in(module, self._dropouts, self._reads_epoch)
        self._frozen = self._of_block + _moving_in(module, self._dropouts, batch)

    def _agrees(self, module: Any, batch: Any, begun: list[Tensor], right: Any) -> bool:
        assert self._program is not None
        assert self._noise is not None
        _set(module, begun)
        return _within(_distances((self._program(batch), [*module.buffers()]), right), self._noise)


def reason_against(module: Any) -> str | None:
    """Return why no program of a task or a stack is tried."""
    if PROGRAMS[module.device.type] is Captured and not graphs.are_used(module.device):
        return graphs.OFF
    if streams.seeded(module):
        return "a layer draws from torch's own generators, which are seeded at each call"
    parts = {*module.modules(), *chain.from_iterable(member.modules() for member in module.members)}
    if any(_hooks_of(part) for part in parts):
        return "a hook of a module or a parameter is called at each update"
    return None


def _hooks_of(part: nn.Module) -> list[Any]:
    of_parameters = (
        hooks
        for parameter in part.parameters(recurse=False)
        for hooks in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
    )
    of_part = part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks
    return [*chain.from_iterable(hooks for hooks in (*of_part, *of_parameters) if hooks)]


def _distances(here: Any, there: Any) -> list[list[float]]:
    """Return the relative differences of losses and means, of gradients, and of buffers."""
    pairs = zip(_grouped(*here), _grouped(*there), strict=True)
    return [[*map(_distance, *pair)] for pair in pairs]


def _grouped(outputs: Outputs, buffers: list[Tensor]) -> tuple[list[Any], ...]:
    loss, means, gradients = outputs
    return tree_leaves((loss, means)), gradients, buffers


def _distance(here: Any, there: Any) -> float:
    """Return the norm of the difference of two tensors, relative to the norm of the second."""
    if not (isinstance(here, Tensor) and isinstance(there, Tensor)):
        return 0.0 if here == there else math.inf
    if torch.allclose(here, there, rtol=0, atol=0, equal_nan=True):
        return 0.0
    right = there.double()
    return float((here.double() - right).norm() / right.norm())


def _within(distances: list[list[float]], noise: list[list[float]]) -> bool:
    """Return whether no tensor differs by more than the noise: its own, or the usual one of its group."""
    for group, usual in zip(distances, noise, strict=True):
        least = median(usual) if usual else 0.0
        for distance, own in zip(group, usual, strict=True):
            if not distance <= TIMES * max(own, least) + FAR:
                return False
    return True


def _again(module: Any, buffers: list[Tensor]) -> None:
    """Prepare to make an update again."""
    _set(module, buffers)
    module.stream.moves += 1  # else each site would count its draws as repeated ones


@torch.no_grad()
def _set(module: Any, buffers: list[Tensor]) -> None:
    for buffer, value in zip(module.buffers(), buffers, strict=True):
        buffer.copy_(value)


def _frozen_in(module: Any, dropouts: Iterable[Dropout], reads_epoch: bool) -> Frozen:
    """Return what a program freezes and code outside it may change between two blocks."""
    frozen: Frozen = [("the clipping of gradients", [module.trainer.gradient_clip_val])]
    if reads_epoch:
        frozen.append(("the epoch", [module.current_epoch]))
    return frozen if module.moving else frozen + _scheduled_in(module, dropouts)


def _moving_in(module: Any, dropouts: Iterable[Dropout], batch: tuple[Any, ...]) -> Frozen:
    """Return what a program freezes and code outside it may change between two updates."""
    moving: Frozen = [("the memory of random keys", [module.stream.keys])]
    for part in batch:
        shape = [part.shape, part.dtype] if isinstance(part, Tensor) else [object()]
        moving.append(("the shape of batches", shape))
    return moving + _scheduled_in(module, dropouts) if module.moving else moving


def _scheduled_in(module: Any, dropouts: Iterable[Dropout]) -> Frozen:
    groups = module.trainer.optimizers[0].param_groups
    return [
        ("the probability of dropout", [layer.probability for layer in dropouts]),
        ("weight decay", [group.get("weight_decay") for group in groups]),
    ]


def _change(here: Frozen, there: Frozen) -> str | None:
    """Return what differs; None if nothing does."""
    if len(here) != len(there):
        return "a value"
    pairs = zip(here, there, strict=True)
    return next((name for (name, values), (_, known) in pairs if not _same(values, known)), None)


_OF_MODULES = frozenset(vars(nn.Module()))  # among them ``training``, which an evaluation changes
_PLAIN = (bool, int, float, str, torch.Size, torch.dtype)
# What is looked at itself, or does not belong to the update, or tells repeated draws apart.
_WHOLE = (nn.Module, type, ModuleType, pl.Trainer, streams.Stream, streams.MemberStream, streams.Calls)


def _values(module: Any) -> list[Any]:
    """Return the Python values that the parts of a task have, also those in containers and objects."""
    logged = getattr(module.trainer, "_results", None) or {}
    parts = (*module.modules(), *module.members, *logged.values())
    own = ({name: value for name, value in vars(part).items() if name not in _OF_MODULES} for part in parts)
    return [*module.parameters(), *module.buffers(), *logged, *_leaves([*own], set())]


def _leaves(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield what can be compared of a value: numbers and words, tensors with their version, other objects."""
    if isinstance(value, Tensor):
        yield from (value, None if value.is_inference() else value._version)
        return
    if id(value) in seen or isinstance(value, _WHOLE):
        yield value
        return
    seen.add(id(value))
    if isinstance(value, list | tuple | set | deque):
        yield len(value)
        items = [*value]
    elif isinstance(value, dict):
        yield len(value)
        items = [*chain(*value.items())]
    else:
        yield value
        items = [*getattr(value, "__dict__", {}).values()]
    for item in items:
        yield from _leaves(item, seen)


def _same(here: list[Any], there: list[Any]) -> bool:
    return len(here) == len(there) and all(map(_equal, here, there))


def _equal(here: Any, there: Any) -> bool:
    """Return whether plain values are equal, or others the same object."""
    plain = isinstance(here, _PLAIN) and type(here) is type(there)
    return here is there or (plain and bool(here == there))
