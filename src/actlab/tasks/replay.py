"""The gradients of an update as one program, which a GPU starts at once.

From Python a GPU starts some 300 kernels an update, which takes longer than the kernels. A program
has the forward pass, the loss, the backward pass and clipping. What changes from update to update
stays outside: the batch, the keys of the random numbers, and the optimiser's step with its
settings.

Whatever Python does in an update is done once, when the program is made. So it is made again only
if a value changes that code outside the update sets, and it is compared with the update itself:
three times at first, after each such change, and in the epochs 1, 2, 4, 8 and so on. Before it is
made, the update is made three times more from Python: as it is, which shows how far two equal
updates differ on this device, and with other numbers of updates and epochs. Where a comparison
fails, the updates are made from Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from statistics import median
from types import ModuleType
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from actlab.networks import Dropout
from actlab.random import masks, streams
from actlab.random.seeding_hooks import seeded
from actlab.runtime import accidents
from actlab.tasks import graphs
from actlab.tasks.progress import far_away, updates_of

Outputs = Any  # the loss, what is measured, and the gradient of each parameter of the optimiser
Gradients = Callable[[tuple[Tensor, ...]], Outputs]
Frozen = dict[str, list[Any]]  # values by what they are
CHECKS = 3  # comparisons of the first program
FAR = 1e-6  # relative difference by which equal updates may differ, and …
TIMES = 10  # … the multiple of the difference of two updates from Python
FAR_LOSS = 1e-3  # largest relative difference of equal losses


@contextmanager
def _without_waiting() -> Iterator[None]:
    """Raise an error if an update waits for the GPU: in a capture this would harm the process."""
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


class Captured:
    """The gradients of an update as a CUDA graph."""

    def __init__(self, gradients: Gradients, batch: tuple[Tensor, ...]) -> None:
        self.batch = [part.clone() for part in batch]
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        try:
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.outputs = gradients(tuple(self.batch))
        except BaseException:
            accidents.harmed = True
            raise
        finally:
            # After an error, torch leaves the stream of the capture current.
            torch.cuda.set_stream(stream)

        # The graph reads the memory of the counters, which a longer counter would free.
        self.counters = dict(masks.counters)

    def __call__(self, batch: tuple[Tensor, ...]) -> Outputs:
        """Return the outputs of a batch, in tensors that the next call overwrites."""
        for memory, part in zip(self.batch, batch, strict=True):
            memory.copy_(part)
        self.graph.replay()
        return self.outputs


def traced(gradients: Gradients, batch: tuple[Tensor, ...]) -> Gradients:
    """Return an update as one program of operators: as frozen as a CUDA graph, but not faster."""
    return make_fx(gradients)(batch)


_HOOKS = ("forward", "forward_pre", "backward", "backward_pre", "post_accumulate_grad")
# By device
PROGRAMS: dict[str, Callable[[Gradients, tuple[Tensor, ...]], Gradients]] = {
    "cuda": Captured
}


class Replay:
    """The program of a task or a stack, made and compared as training goes.

    It decides for each update whether the program replaces it. It makes no update itself, and
    takes no step of the optimiser: `actlab.tasks.blocks.Blocks` does.

    Attributes:
        reason: why updates are made from Python; None if there is a program, or none was tried
            yet.
        replayed: number of updates made by the program.
        changed: name of the value that has changed last, of those that the program holds.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.replayed = 0
        self.changed = ""
        self._program: Gradients | None = None
        self._checks = CHECKS  # comparisons that are due
        self._epoch = 0  # of the last block

        # Values that a program freezes: at the start of this block, at their last
        # change, and those in the program
        self._of_block: Frozen = {}
        self._frozen: Frozen = {}
        self._made_with: Frozen = {}
        self._dropouts: list[Dropout] = []
        self._noise: list[float] = []  # relative differences of two updates from Python
        self._reads_epoch = False  # whether the loss depends on the number of the epoch

    @property
    def checked(self) -> bool:
        """Whether no comparison of the program is due."""
        return not self._checks

    def begin(self, module: Any) -> bool:
        """Begin a block of updates; return whether there is a program, from an earlier block."""
        if module.device.type not in PROGRAMS:
            return False

        # After a rejection there is no program any more.
        reason = self.reason or reason_against(module)
        if reason:
            self.reject(reason)

        # Note what a program freezes.
        self._dropouts = [
            layer for layer in module.modules() if isinstance(layer, Dropout)
        ]
        self._of_block = self._frozen_in(module)

        # Compare again in epochs that are powers of two, or 0.
        epoch = module.current_epoch
        is_power = epoch & (epoch - 1) == 0
        if epoch != self._epoch and is_power:
            self._checks = self._checks or 1
        self._epoch = epoch
        return self._program is not None

    def reject(self, reason: str) -> None:
        """Make all updates from Python from now on, for a reason, and free the program."""
        self.reason = reason
        self._program = None

    def __call__(
        self, module: Any, gradients: Gradients, batch: tuple[Any, ...]
    ) -> Outputs | None:
        """Return the outputs of an update, or None if it must be made from Python."""
        # Look at what the program freezes. Schedules change values within the block.
        frozen = self._frozen_in(module) if module.moving else self._of_block
        frozen = {**frozen, "the shape of batches": [_shape(part) for part in batch]}
        changed = _change(self._frozen, frozen)
        if changed:
            self.changed = changed if self._frozen else ""
            self._frozen = frozen
            self._checks = self._checks or 1

            # A value that changes at each update leaves all updates to Python.
            return None

        # Replay only a program without a due comparison
        if self._program is not None and self.checked:
            self.replayed += 1
            return self._program(batch)
        return self._checked(module, gradients, batch)

    def _frozen_in(self, module: Any) -> Frozen:
        """Return what a program freezes and code outside it may change between two updates."""
        groups = module.trainer.optimizers[0].param_groups
        return {
            "the epoch": [module.current_epoch] if self._reads_epoch else [],
            "the clipping of gradients": [module.trainer.gradient_clip_val],
            "the probability of dropout": [
                layer.probability for layer in self._dropouts
            ],
            "weight decay": [group.get("weight_decay") for group in groups],
            "the memory of random keys": [module.stream.keys],
        }

    def _checked(
        self, module: Any, gradients: Gradients, batch: tuple[Tensor, ...]
    ) -> Outputs:
        """Return the outputs of the update itself, to compare them with the program's."""
        # Make the update from Python.
        buffers = [buffer.clone() for buffer in module.buffers()]
        values = _values(module)
        outputs = gradients(batch)
        if not _same(_values(module), values):
            self.reject("an update changes an attribute of a module")
            return outputs

        buffers_after = [buffer.clone() for buffer in module.buffers()]
        expected = tree_leaves((outputs, buffers_after))

        # Buffers, such as running means, are results too
        def distances(update: Gradients) -> list[float]:
            _again(module, buffers)
            leaves = tree_leaves((update(batch), [*module.buffers()]))
            return [*map(_distance, leaves, expected)]

        # Make the program, and compare it with the update.
        try:
            if not self._noise:
                self._try(module, partial(distances, gradients))
            if not self.reason and _change(self._made_with, self._frozen):
                # The old program goes first, because two programs need twice the
                # memory.
                self._program = None
                _again(module, buffers)
                self._program = PROGRAMS[module.device.type](gradients, batch)
                self._made_with = self._frozen
            if self._program is not None and not self._agrees(distances(self._program)):
                self.reject("a replayed update differs from the update")
        except RuntimeError as error:
            self.reject(str(error).strip().partition("\n")[0])

        # Leave what the update left.
        self._checks -= 1
        _set(module, buffers_after)
        return outputs

    def _try(self, module: Any, distances: Callable[[], list[float]]) -> None:
        """Make the update from Python again: as it is, with other numbers of updates and epochs."""
        # Two equal updates show the noise of the device
        is_captured = PROGRAMS[module.device.type] is Captured
        with _without_waiting() if is_captured else nullcontext():
            self._noise = distances()
        if self._noise[0] > FAR_LOSS:
            self.reject("the losses of two equal updates differ")
            return

        def is_read(*counted: Any) -> bool:
            with far_away(*counted):
                try:
                    return not self._agrees(distances())
                except Exception:
                    # Third-party code may raise anything where it has no such number.
                    return True

        if is_read(*updates_of(module.trainer)):
            self.reject("the loss depends on the number of the update")

        # If true, each epoch requires a program of its own
        self._reads_epoch = is_read(module.trainer.fit_loop.epoch_progress)
        if self._reads_epoch:
            self._of_block["the epoch"] = self._frozen["the epoch"] = [
                module.current_epoch
            ]

    def _agrees(self, distances: list[float]) -> bool:
        """Return whether no tensor differs by more than its own noise, or the usual noise."""
        usual = median(self._noise)
        limits = [TIMES * max(noise, usual) + FAR for noise in self._noise]
        limits[0] = FAR_LOSS
        return all(
            distance <= limit for distance, limit in zip(distances, limits, strict=True)
        )


def reason_against(module: Any) -> str | None:
    """Return why no program of a task or a stack is tried."""
    if PROGRAMS[module.device.type] is Captured and not graphs.are_used(module.device):
        return graphs.OFF
    if seeded(module):
        return "a layer may draw from torch's own generators, which are seeded at each call"
    for part in (*module.modules(), *module.parameters()):
        if any(getattr(part, f"_{hooks}_hooks", None) for hooks in _HOOKS):
            return "a hook of a module or a parameter is called at each update"
    return None


def _shape(part: Any) -> Any:
    """Return shape and type of a tensor of a batch; for anything else a value equal to nothing."""
    return (part.shape, part.dtype) if isinstance(part, Tensor) else object()


def _distance(value: Any, expected: Any) -> float:
    """Return the norm of the difference of two tensors, relative to the norm of the second."""
    if not (isinstance(value, Tensor) and isinstance(expected, Tensor)):
        return 0.0 if value == expected else math.inf
    if torch.allclose(value, expected, rtol=0, atol=0, equal_nan=True):
        return 0.0
    return float((value.double() - expected.double()).norm() / expected.double().norm())


def _again(module: Any, buffers: list[Tensor]) -> None:
    """Prepare to make an update again."""
    _set(module, buffers)
    module.stream.moves += 1  # else each site would count its draws as repeated ones


@torch.no_grad()
def _set(module: Any, buffers: list[Tensor]) -> None:
    for buffer, value in zip(module.buffers(), buffers, strict=True):
        buffer.copy_(value)


def _change(before: Frozen, now: Frozen) -> str:
    """Return the name of a value that has changed; empty if none has."""
    for name, values in now.items():
        if name not in before or not _same(values, before[name]):
            return name
    return ""


_PLAIN = (bool, int, float, str, set, tuple)
# Among them is ``training``, which an evaluation changes.
_OF_MODULES = frozenset(vars(nn.Module()))
# What is looked at itself, or does not belong to the update, or tells repeated draws
# apart.
_WHOLE = (
    nn.Module,
    type,
    ModuleType,
    pl.Trainer,
    Replay,
    streams.Stream,
    streams.MemberStream,
    streams.Calls,
)


def _values(module: Any) -> list[Any]:
    """Return the Python values of the parts of a task, also those in containers and objects."""
    logged = module.trainer._results or {}
    parts = [*module.modules(), *module.members, *logged.values()]
    seen = set[int]()
    values = [*module.parameters(), *module.buffers()]
    while parts:
        attributes = vars(parts.pop()).items()
        for value in tree_leaves(
            [value for name, value in attributes if name not in _OF_MODULES]
        ):
            if isinstance(value, Tensor):
                values.append(value.is_inference() or value._version)
            elif id(value) not in seen and _has_parts(value):
                seen.add(id(value))
                parts.append(value)
            # An update may change a set in place.
            values.append(set(value) if isinstance(value, set) else value)
    return values


def _has_parts(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, _WHOLE)


def _same(values: list[Any], before: list[Any]) -> bool:
    """Return whether tensors and objects are the same ones, and plain values are equal."""
    if len(values) != len(before):
        return False
    for value, earlier in zip(values, before, strict=True):
        is_plain = isinstance(value, _PLAIN) and type(value) is type(earlier)
        if value is not earlier and not (is_plain and value == earlier):
            return False
    return True
