"""The stacked task: R tasks that differ in seed or settings, trained as one LightningModule.

Each member has the initial weights, data order and random masks of a run alone. Shapes: ``R`` runs,
``B`` batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab.errors import ActlabError
from actlab.random.streams import Stream
from actlab.runtime import matmul
from actlab.runtime.third_party import calling
from actlab.stacking import layers, mapping
from actlab.stacking.mapping import MappingError
from actlab.stacking.network import StackedNetwork
from actlab.stacking.slices import Slices
from actlab.tasks import Batch, Quantity, Task
from actlab.tasks.batches import as_batch
from actlab.tasks.evaluation import Measured
from actlab.tasks.quantities import with_gradients
from actlab.tasks.training import STEP_LOSS, Training

# Methods of Lightning that a stack does not call for its members. Members predict and
# are restored without a stack.
HOOKS = [
    name
    for name, _ in inspect.getmembers(pl.LightningModule, inspect.isfunction)
    if not name.startswith("_") and name not in ("predict_step", "load_from_checkpoint")
]


class StackedTask(Training):
    """Train R untrained tasks, with networks of the same layers, as one.

    It computes and logs the quantities of all members at once, and builds their optimiser. It
    stores no files. `actlab.engines.packing` decides which runs share a stack.

    The loss is the sum of the members' mean losses, so each member has the gradient that it has in
    a stack of one, and equals it in every bit. Metrics are vectors over members; `latest` holds the
    metrics of the epoch, as ``{split}/{name}`` → ``(R,)``.
    """

    network: StackedNetwork
    stacked = True

    def __init__(self, members: Sequence[Task]) -> None:
        super().__init__(StackedTask)
        # Members share all that decides: layers, class and hooks
        reason = reason_against(members[0])
        if reason:
            raise ActlabError(
                f"{type(members[0]).__name__} cannot be stacked: {reason}"
            )

        # Join the networks, which draw random numbers as the members do.
        # A plain list, because the members' parameters live in the stack.
        self._members = list(members)
        self.stream = Stream([m.seed for m in members])
        self.stream.reserve(members[0].stream.sites)
        networks = [member.network for member in members]
        self.network = StackedNetwork(networks, self.stream, not has_forms(members[0]))
        self.latest: dict[str, Tensor] = {}
        self.loggers_of: Mapping[int, Logger] = {}  # of members, by index

    @property
    def members(self) -> Sequence[Task]:
        """The task of each run."""
        return self._members

    def setup(self, stage: str) -> None:
        """Give the members the Trainer, because their quantities may depend on the epoch."""
        # Its settings hold for all members
        prototype = self.members[0]
        devices = self.trainer.world_size
        # Each run's part of a batch would have its own offset.
        if prototype.ragged and devices > 1:
            raise ActlabError(
                f"a stack of {type(prototype).__name__} on {devices} devices: its batches differ "
                "in size. Set trainer.devices to 1, or train the runs one by one."
            )

        for member in self.members:
            member.trainer = self.trainer
        super().setup(stage)

    def record_update(self, loss: Tensor, measured: Measured, batch_idx: int) -> None:
        """Record the losses of the batch, and log them to the members' loggers."""
        super().record_update(loss, measured, batch_idx)
        if not self.loggers_of or not self.logs_update(batch_idx):
            return

        # One transfer from the device for all members
        losses = measured["train/loss"][0].tolist()
        for r, logger in self.loggers_of.items():
            metrics = {STEP_LOSS: losses[r], "epoch": self.current_epoch}
            logger.log_metrics(metrics, step=self.global_step)

    @property
    def sites(self) -> dict[str, nn.Module]:
        """The activation modules of the stacked network, by module name in a member.

        Raises:
            MappingError: for a mapped network, which has none.
        """
        if self.network.mapped:  # hooks would see tensors that exist within vmap alone
            name = type(self.network.layers).__name__
            raise MappingError(
                f"{name} has no stacked form, and vmap hides its activations from a callback"
            )
        return {
            name: self.network.layers.get_submodule(name)
            for name in self.members[0].sites
        }

    def layers_of(self, r: int) -> list[nn.Module]:
        """Return the activation modules of member ``r`` in the order of its network."""
        self.network.share(r, self.members[r].network)
        return self.members[r].layers_of(r)

    def observe(self, batch: Batch) -> None:
        """Pass a batch shared by all members through the network, for callers with hooks on it."""
        self.measured(batch, shared=True)

    def apart(self) -> Iterator[Task]:
        """Yield the members one by one, each with its current weights."""
        for r, member in enumerate(self.members):
            member.network.load_state_dict(self.network.member_state(r))
            yield member.to(self.device).train(self.training)

    @calling()
    def measured(
        self, batch: Batch, shared: bool, split: str | None = None
    ) -> dict[str, Quantity]:
        """Return the quantities of a batch, with values ``(R, B, *)``; see `Training.measured`."""
        prototype = self.members[0]
        prototype.training = self.training
        batch = as_batch(batch)
        by_run = batch
        if shared:
            # A view for each run, without a copy
            by_run = tuple(
                part.expand(len(self.members), *part.shape) for part in batch
            )

        # Measure all members.
        output = None
        if prototype.sees_network:
            quantities = with_gradients(prototype, self.network, by_run)
        else:
            output = self._outputs(batch, by_run)
            quantities = self._quantities(output, by_run)
        if split is None:
            return quantities

        # Update the metrics of each member.
        if output is None:
            output = self._outputs(batch, by_run)
        for r, member in enumerate(self.members):
            loss = quantities["loss"].of_run(r) if "loss" in quantities else None
            member.update_metrics(split, output[r], _of_member(by_run, r), loss)
        return quantities

    def _outputs(self, batch: Batch, by_run: Batch) -> Tensor:
        """Return the outputs for a batch; ``by_run`` is the batch itself, or is expanded."""
        prototype = self.members[0]
        shared = batch is not by_run
        if getattr(prototype.inputs, "takes_run_axis", False):
            inputs = prototype.inputs(batch)
        else:
            # The task may look at a batch (B, …) only
            inputs_by_run = []
            for r, member in enumerate(self.members):
                inputs_by_run.append(member.inputs(_of_member(by_run, r)))
            inputs = tuple(
                torch.stack(parts) for parts in zip(*inputs_by_run, strict=True)
            )
            shared = False
        output: Tensor = self.network(*inputs, shared=shared)
        return output

    def _quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        # Some tasks measure all members in one call
        prototype = self.members[0]
        if prototype.measures_all:
            return prototype.quantities(output, batch)

        # Measure the members one by one.
        measured = []
        for r, member in enumerate(self.members):
            member.training = self.training
            # Each member is in the mode of the stack
            measured.append(member.quantities(output[r], _of_member(batch, r)))
        # All members have the same names
        stacked = {}
        for name in measured[0]:
            stacked[name] = stacked_quantity(
                [quantities[name] for quantities in measured]
            )
        return stacked

    def penalty(self) -> Tensor:
        """Return ½·decay·Σw² of each run, ``(R,)``."""
        return self.slices.penalty()

    def log(self, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        """Store a metric in `latest`: one number per run, ``(R,)``."""
        values = torch.as_tensor(value)
        runs = len(self.members)
        if values.shape != (runs,):
            shape = tuple(values.shape)
            raise ActlabError(
                f"{name} of a stack: expected {runs} logged numbers, one per run, got {shape}"
            )
        self.latest[name] = values

    def log_dict(  # type: ignore[override]
        self, dictionary: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Store several metrics; see `log`."""
        for name, value in dictionary.items():
            self.log(name, value)

    def optimizer_of_all(self) -> tuple[Optimizer, Sequence[int]]:
        """Return an optimiser over slices and the first run of each group; see `Slices`."""
        self.slices = Slices(self.network, self.members)
        return self.slices.optimizer, self.slices.owners

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Move the gradients to the slices."""
        self.slices.take_gradients()

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradient of each member as in a stack of one: by its norm, or each element."""
        if gradient_clip_algorithm == "value":
            # Elementwise, so of no member in particular.
            super().configure_gradient_clipping(
                optimizer, gradient_clip_val, gradient_clip_algorithm
            )
        elif gradient_clip_val and gradient_clip_val > 0:
            self.slices.clip_norms(gradient_clip_val)


def reason_against(task: pl.LightningModule) -> str | None:
    """Return why a task cannot be stacked; None if it can, or if a mapped network must be tried."""
    name = type(task).__name__
    if not isinstance(task, Task):
        return f"{name} is a LightningModule, but not an actlab.tasks.Task"
    for hook in HOOKS:
        if getattr(type(task), hook) is not getattr(Task, hook):
            return f"{name} overrides {hook!r}, which a stack does not call"
    # Such a loss would need the network of each member
    if task.sees_network and not task.measures_all:
        return (
            f"'measure' of {name} may not accept a run axis; mark it with "
            "actlab.tasks.takes_run_axis if it does"
        )

    # A network without stacked forms can be mapped.
    reason = layers.reason_against(task.network, task.activations)
    if reason is None:
        return None
    against_mapping = mapping.reason_against(task.network)
    return f"{reason}, and {against_mapping}" if against_mapping else None


def has_forms(task: Task) -> bool:
    """Return whether the network of a task has stacked forms; otherwise it is mapped."""
    return layers.reason_against(task.network, task.activations) is None


def matmul_of(task: pl.LightningModule) -> str:
    """Return the matmul backend for a task.

    It depends only on the network and the kind of processor.
    """
    if not isinstance(task, Task) or not has_forms(task):
        return matmul.DEFAULT
    for part in task.network.modules():
        if getattr(part, "multiplies_activations", False):
            return matmul.DEFAULT
    return matmul.for_mlps()


def _of_member(batch: Batch, r: int) -> Batch:
    return tuple(tensor[r] for tensor in batch)


def stacked_quantity(quantities: Sequence[Quantity]) -> Quantity:
    """Stack the quantities of the R members into one."""
    values = []
    weights = []
    for quantity in quantities:
        values.append(quantity.values)
        if quantity.weights is not None:
            weights.append(quantity.weights)

    # All members have weights, or none has
    if not weights:
        return Quantity(torch.stack(values))
    return Quantity(torch.stack(values), torch.stack(weights))
