"""Blocks of updates: several updates in one batch of a Trainer.

The loops and hooks of the Trainer then run once a block.
Lightning's loops cost about a millisecond a batch on a CPU, whatever the network
(``benchmarks/stacks.py``). The loader of training data may therefore yield a `BatchBlock`, the
positions of several batches: a task makes all updates but the last itself, in Lightning's order,
and Lightning makes the last. What Lightning counts stays in updates, so checkpoints, schedules,
``max_steps`` and logged steps count single updates. All numbers equal the numbers of single
updates, bit for bit, however large the blocks are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from pytorch_lightning.plugins.precision import (
    DoublePrecision,
    HalfPrecision,
    MixedPrecision,
    Precision,
)
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.strategies import SingleDeviceStrategy
from pytorch_lightning.utilities import rank_zero_info
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop

from actlab.errors import RunError
from actlab.optim import AdamEpsilonInRoot
from actlab.random.seeding import Generators
from actlab.runtime import signals
from actlab.tasks.batches import as_batch
from actlab.tasks.progress import add, updates_of
from actlab.tasks.replay import PROGRAMS, Replay

MOST, LONGEST = 64, 1.0  # updates of a block, and seconds
MOST_REPLAYED = 512  # updates of a block of which all but the last are replayed
PATIENCE = 100  # updates of which none is replayed before that has a reason
# Hooks that Lightning calls at each update, but once a block
_OF_UPDATES = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)
_OF_TRANSFER = (
    "on_before_batch_transfer",
    "transfer_batch_to_device",
    "on_after_batch_transfer",
)
_OF_MODULES = (
    *_OF_UPDATES,
    "training_step",
    "backward",
    "optimizer_step",
    "optimizer_zero_grad",
    "lr_scheduler_step",
    "configure_gradient_clipping",
    "clip_gradients",
    *_OF_TRANSFER,
)
_PRECISIONS = (Precision, DoublePrecision, HalfPrecision, MixedPrecision)
# They compute nothing before their closure, within which the other updates of a block
# are made.
_OPTIMIZERS = (
    Adam,
    AdamW,
    NAdam,
    RAdam,
    Adamax,
    SGD,
    RMSprop,
    Adagrad,
    AdamEpsilonInRoot,
)


def _hook_against(module: Any) -> str | None:
    """Return which hook of the user or of a callback has to see single updates, if any."""
    # Hooks of the module and of the data
    trainer: Any = module.trainer
    data: Any = trainer.datamodule
    for hook in _OF_MODULES:
        method = getattr(module, hook)
        if getattr(method, "__func__", None) is not getattr(module.known_class, hook):
            return f"{type(module).__name__} overrides {hook}"
    for hook in _OF_TRANSFER:
        if data is not None and is_overridden(hook, data, pl.LightningDataModule):
            return f"{type(data).__name__} overrides {hook}"

    # Callbacks
    for callback in trainer.callbacks:
        if isinstance(callback, GradientAccumulationScheduler):
            return "gradients are accumulated"
        if _most_for(callback) < 2:
            return f"{type(callback).__name__} watches single updates"
    return None


def _setting_against(trainer: pl.Trainer) -> str | None:
    """Return which setting of the Trainer requires single updates, if any."""
    plugin = trainer.precision_plugin
    if trainer.accumulate_grad_batches > 1:
        return "gradients are accumulated"
    if type(trainer.strategy) is not SingleDeviceStrategy:
        return f"the strategy is {type(trainer.strategy).__name__}"
    if type(plugin) not in _PRECISIONS or getattr(plugin, "scaler", None) is not None:
        return f"the precision is {trainer.precision}"
    if type(trainer.profiler) is not PassThroughProfiler:  # type: ignore[attr-defined]
        return "a profiler times single updates"
    if any(config.interval == "step" for config in trainer.lr_scheduler_configs):
        return "a scheduler of torch steps at each update"
    for optimizer in trainer.optimizers:
        if type(optimizer) not in _OPTIMIZERS:
            return f"the optimiser is {type(optimizer).__name__}"
    return None


def _most_for(callback: Any) -> int:
    """Return the most updates of a block with which a callback works.

    Its attribute ``blocks`` is a number, or True. Without it, a callback that has no hook of
    updates works with any.
    """
    if isinstance(callback, ModelCheckpoint):
        single = (
            callback._every_n_train_steps or callback._train_time_interval is not None
        )
        return 1 if single else MOST_REPLAYED
    hooks = [hook for hook in _OF_UPDATES if is_overridden(hook, callback)]
    allowed = getattr(callback, "blocks", not hooks)
    return MOST_REPLAYED if allowed is True else int(allowed)


def _next_validation(trainer: pl.Trainer, first: int) -> int:
    """Return the batch of an epoch before which a block from ``first`` ends for a validation.

    A validation that no number of batches determines, by time or by a request to stop, may follow
    each update.
    """
    every = trainer.val_check_batch
    if trainer.should_stop or not isinstance(every, int):
        return first + 1

    counted = first
    if trainer.check_val_every_n_epoch is None:  # Lightning counts on over epochs
        counted = trainer.fit_loop.epoch_loop.total_batch_idx + 1
    return first + every - counted % every


class Blocks:
    """The blocks of a task or a stack.

    It says where blocks end, makes all updates of a block except the last, and counts updates as
    Lightning does. It computes no loss: `actlab.tasks.training.Training` does. It does not decide
    about programs: `actlab.tasks.replay.Replay` does.

    Attributes:
        reason: why each update is a batch of its own; None if updates are in blocks.
        drew: in the first update of a block, a list that gets whether it drew from the global
            generators.
        undrawn: whether the first update of this block has drawn nothing, so that the others are
            not seeded.
        replay: the program that replaces updates on a GPU.
        updates: number of updates, in blocks or not.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.drew: list[bool] | None = None
        self.undrawn = False
        self.replay = Replay()
        self.updates = 0
        self._began = time.perf_counter()
        # Seconds of an update of the last block; the first block has one update.
        self._seconds = LONGEST

    def begin(self, module: Any) -> Callable[[int], int] | None:
        """Begin an epoch; return a function from the first batch of a block to its end.

        The end is the batch after the last one. None if each update is a batch of its own.
        Callbacks may change settings of the Trainer between epochs.
        """
        before = self.reason
        self.reason = _hook_against(module) or _setting_against(module.trainer)
        if self.reason is None:
            most = min(map(_most_for, module.trainer.callbacks), default=MOST_REPLAYED)
            return partial(self._end, module.trainer, most)

        if self.reason != before:
            rank_zero_info(
                "each update runs alone, which adds about a millisecond and changes no number: "
                f"{self.reason}"
            )
        return None

    def _end(self, trainer: pl.Trainer, most: int, first: int) -> int:
        if self.replay.reason or not self.replay.checked:
            most = min(most, MOST)
        updates = max(1, min(int(LONGEST / self._seconds), most))
        if trainer.max_steps >= 0:
            updates = min(updates, trainer.max_steps - trainer.global_step)
        ends = (
            first + updates,
            trainer.num_training_batches,
            _next_validation(trainer, first),
        )
        return int(min(ends))

    def train(self, module: Any, block: Any, first: int) -> Tensor:
        """Make the update of each batch of a block but the last, and return the loss of the last.

        Seeding the global generators takes a fifth of a millisecond. If the first update draws
        nothing from them, the others are not seeded, and may be replayed.

        Raises:
            RunError: if only some updates draw from them.
        """
        # Prepare the block
        start = time.perf_counter()
        before = Generators.now()
        trainer = module.trainer
        last = first + len(block) - 1
        epoch = trainer.current_epoch
        module.stream.prepare([(epoch, number) for number in range(first, last + 1)])

        # A program from an earlier block was made of updates that draw nothing
        has_program = block.by_position and self.replay.begin(module)
        self.undrawn = has_program
        may_know = block.by_position and not has_program

        # Make the updates
        try:
            for number, batch in enumerate(block, first):
                batch = _placed(as_batch(batch), module)
                if (
                    number < last
                    and self.undrawn
                    and self._replayed(module, batch, number)
                ):
                    continue
                # If gathering a batch draws, nothing can be said of the updates: all
                # are seeded.
                is_looked_at = may_know and number == first
                if is_looked_at and before.same(Generators.now()):
                    self.drew = []
                loss: Tensor = module.loss_of_update(batch, number)
                if is_looked_at:
                    self.undrawn = self.drew == [False]
                    self.drew = None
                if number < last:
                    signals.check()
                    # The graph of a loss that lives keeps nodes that name the stream of
                    # its update.
                    with outside_autocast(trainer):
                        _differentiate(module, loss)
                        loss = loss.detach()
                        _step(trainer)
            if self.undrawn and not before.same(Generators.now()):
                raise RunError(
                    "the network or the loss draws random numbers in some updates only. Draw in "
                    "every update, or override training_step in the task, which is then called in "
                    "every update."
                )
        finally:
            self.drew = None
            self.undrawn = False
        self._seconds = (time.perf_counter() - start) / len(block)

        # Lightning has counted only the blocks
        progress = trainer.fit_loop.epoch_loop.batch_progress
        progress.is_last_batch = progress.current.ready >= trainer.num_training_batches
        return loss

    def not_replayed(self, module: Any) -> str:
        """Return why a GPU got no updates as one program; empty if it did, or on a CPU."""
        # The replay was rejected for a reason
        replay = self.replay
        if replay.reason:
            return replay.reason

        # Replayed, on a CPU, or too early to judge
        if (
            module.device.type not in PROGRAMS
            or replay.replayed
            or self.updates < PATIENCE
        ):
            return ""

        # Name the probable cause
        if replay.changed:
            return f"{replay.changed} changes at each update"
        return (
            "updates are made one by one, have a DataLoader's batches, or draw from torch's own "
            "generators"
        )

    def is_settled(self, module: Any) -> bool:
        """Return whether the updates to come take a usual time; on a GPU the first take longer."""
        if module.device.type not in PROGRAMS or self.updates >= PATIENCE:
            return True
        return bool(self.reason or self.replay.reason or self.replay.checked)

    def tell(self, module: Any) -> None:
        """Say how fast the updates on an accelerator were."""
        if module.device.type not in PROGRAMS or not self.updates:
            return
        pace = self.updates / (time.perf_counter() - self._began)
        share = self.replay.replayed / self.updates
        memory = torch.cuda.max_memory_allocated() / 2**30
        rank_zero_info(
            f"{self.updates} updates, {pace:.0f} a second with evaluations, {share:.0%} replayed; "
            f"{memory:.2f} GiB of the device's memory"
        )

    def _replayed(self, module: Any, batch: tuple[Any, ...], number: int) -> bool:
        """Make an update by the program; return whether there was one for it."""
        if self.replay.reason or module.device.type not in PROGRAMS:
            return False
        module.begin_update(batch, number)
        outputs = self.replay(module, partial(_gradients, module), batch)
        if outputs is None:
            return False
        signals.check()
        loss, measured, gradients = outputs
        module.record_update(loss, measured, number)
        for parameter, gradient in zip(_parameters(module), gradients, strict=True):
            parameter.grad = gradient
        with outside_autocast(module.trainer):
            _step(module.trainer)
        return True


def _placed(batch: Any, module: pl.LightningModule) -> Any:
    batch = module.trainer.precision_plugin.convert_input(batch)
    device = module.device
    if isinstance(batch, tuple) and all(
        getattr(part, "device", None) == device for part in batch
    ):
        return batch
    return module.trainer.strategy.batch_to_device(batch)


def _differentiate(module: Any, loss: Tensor) -> None:
    """Set the gradients of an update as Lightning does after a training step."""
    trainer = module.trainer
    optimizer = trainer.optimizers[0]
    for parameter in _parameters(module):
        # Torch's own `zero_grad` takes eight times as long.
        parameter.grad = None
    loss.backward()  # type: ignore[no-untyped-call]
    module.on_before_optimizer_step(optimizer)
    if trainer.gradient_clip_val:
        module.configure_gradient_clipping(
            optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm
        )


def _gradients(module: Any, batch: tuple[Tensor, ...]) -> Any:
    """Return the loss of an update, the means of its batch, and the gradient of each parameter."""
    torch.clear_autocast_cache()  # a program must round the weights itself
    loss, measured = module.measured_update(batch)
    with outside_autocast(module.trainer):
        _differentiate(module, loss)
    means = {name: (mean.detach(), weight) for name, (mean, weight) in measured.items()}
    return loss.detach(), means, [parameter.grad for parameter in _parameters(module)]


def _parameters(module: Any) -> list[Tensor]:
    parameters: list[Tensor] = []
    for group in module.trainer.optimizers[0].param_groups:
        parameters += group["params"]
    return parameters


def _step(trainer: pl.Trainer) -> None:
    """Make the step of the optimiser as Lightning does, and count the update."""
    trainer.optimizers[0].step()
    # Lightning has not counted this update, wherever it counts its own.
    add(1, *updates_of(trainer))
    trainer.fit_loop.epoch_loop._batches_that_stepped += 1


@contextmanager
def outside_autocast(trainer: pl.Trainer) -> Iterator[None]:
    """Leave the context of the precision, in which training steps run but no backward pass."""
    plugin = trainer.precision_plugin
    if isinstance(plugin, MixedPrecision):
        with torch.autocast(plugin.device, enabled=False):
            yield
        # Else the next forward pass would use the weights before the update.
        torch.clear_autocast_cache()
    else:
        yield
