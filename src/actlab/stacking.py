"""Stacks: R runs of one network trained as one program; parameters carry a leading run axis.

The layers are explicit batched ones: a linear layer is one ``baddbmm``, a unit that acts elementwise is
applied once to all members, any other unit is called member by member. ``vmap`` over ``functional_call``
takes 1.2 times as long on two cores (``benchmarks/stacks.py``, figure ``func_vs_explicit``), and cannot map
a unit that changes its buffers. A member has the initial weights, data order and random masks that it would
have alone, so its numbers are those of a run of its own up to the order of floating-point sums.

Shapes: ``R`` runs, ``B`` batch, ``D`` features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from actlab import activations
from actlab.errors import ActlabError
from actlab.networks import Dropout
from actlab.streams import Stream, Uniform
from actlab.tasks import Batch, Task, has_uniform

# Optimisers that act on every element by itself, so that a slice of a stacked parameter is updated as the
# parameters of its members are when they are alone.
ELEMENTWISE_OPTIMIZERS = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam,
    torch.optim.RAdam, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta,
)  # fmt: skip


class StackedLinear(nn.Module):
    """R linear layers as one batched product.

    The weight is kept as ``(R, D, out)``: its gradient comes out of the product in that order, and keeping a
    member's own order would copy all gradients once an update.

    Shape: ``(R, B, D)`` → ``(R, B, out)``.
    """

    def __init__(self, members: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([m.weight.detach().T for m in members]))
        has_bias = members[0].bias is not None
        self.bias = nn.Parameter(torch.stack([m.bias.detach() for m in members])) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """y_r = x_r W_rᵀ + b_r."""
        if self.bias is None:
            return torch.bmm(x, self.weight)
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight)


class StackedFlatten(nn.Module):
    """Flattens everything behind run and batch axes."""

    def forward(self, x: Tensor) -> Tensor:
        """``(R, B, *)`` → ``(R, B, D)``."""
        return x.flatten(2)


class PerMember(nn.Module):
    """Any module, called member by member with its member's slice of the stacked parameters and buffers.

    The general way, for units with parameters or from elsewhere. Each member keeps a module of its own, so
    what a unit holds outside its parameters stays apart too.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members: Sequence[nn.Module]
        self.__dict__["members"] = list(members)  # not submodules: their parameters are the stacked ones
        stacked = copy.deepcopy(members[0])
        for name, _ in list(stacked.named_parameters()):
            set_tensor(stacked, name, nn.Parameter(torch.stack([m.get_parameter(name).data for m in members])))
        for name, _ in list(stacked.named_buffers()):
            set_tensor(stacked, name, torch.stack([m.get_buffer(name) for m in members]))
        self.stacked = stacked

    def forward(self, x: Tensor) -> Tensor:
        """``(R, B, *)`` → ``(R, B, *)``."""
        own = {n: t.unbind() for n, t in (*self.stacked.named_parameters(), *self.stacked.named_buffers())}
        outputs = []
        for r, (member, inputs) in enumerate(zip(self.members, x.unbind(), strict=True)):
            member.train(self.training)
            outputs.append(functional_call(member, {name: slices[r] for name, slices in own.items()}, inputs))
        return torch.stack(outputs)


def set_tensor(module: nn.Module, name: str, value: Tensor) -> None:
    """Replace a parameter or buffer, named with dots."""
    path, _, last = name.rpartition(".")
    setattr(module.get_submodule(path), last, value)


def stack_layer(members: Sequence[nn.Module], stream: Stream) -> nn.Module:
    """The stacked form of one layer of R networks."""
    first = members[0]
    if isinstance(first, nn.Linear):
        return StackedLinear([m for m in members if isinstance(m, nn.Linear)])
    if isinstance(first, nn.Flatten):
        return StackedFlatten()
    if isinstance(first, Dropout):
        dropout = Dropout(_common([float(m.p) for m in members if isinstance(m, Dropout)]))
        dropout.uniform.stream, dropout.uniform.site = stream, first.uniform.site
        return dropout
    if activations.is_elementwise(first):
        layer = copy.deepcopy(first)
        for uniform in (m for m in layer.modules() if isinstance(m, Uniform)):
            uniform.stream = stream
        return layer
    return PerMember(members)


def _common(values: Sequence[float]) -> float | Tensor:
    """One number where all are equal, else one a run, ``(R, 1)``."""
    return values[0] if len(set(values)) == 1 else torch.tensor(values).view(-1, 1)


def can_stack(network: nn.Module) -> bool:
    """Whether a network is a sequence of linear layers, units and dropout, which stacking is made for."""
    if not isinstance(network, nn.Sequential):
        return False
    unit_like = [m for m in network if not isinstance(m, nn.Linear | nn.Flatten | Dropout)]
    known = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
    return not any(isinstance(m, known) for unit in unit_like for m in unit.modules())


class StackedNetwork(nn.Sequential):
    """R networks of the same layers as one.

    Its parameters and buffers have the names they have in a member, each with a leading run axis.

    Shape: ``(R, B, *)``, or ``(B, *)`` for inputs that all members share → ``(R, B, K)``.
    """

    def __init__(self, members: Sequence[nn.Sequential], stream: Stream) -> None:
        layers = [stack_layer(layer, stream) for layer in zip(*members, strict=True)]
        super().__init__(*layers)
        self.size = len(members)

    def forward(self, x: Tensor, shared: bool = False) -> Tensor:
        """Outputs of all members; ``shared`` inputs lack the run axis."""
        x = x.expand(self.size, *x.shape) if shared else x
        for layer in self:
            x = layer(x)
        return x

    def member_state(self, r: int) -> dict[str, Tensor]:
        """State dict of member ``r`` as its own network would have it (copies)."""
        transposed = {f"{n}.weight" for n, m in self.named_modules() if isinstance(m, StackedLinear)}
        own = {name: (v[r].T if name in transposed else v[r]) for name, v in self.state_dict().items()}
        return {name.replace(".stacked.", "."): v.clone().contiguous() for name, v in own.items()}


class StackedTask(pl.LightningModule):
    """R tasks that differ in seed, dropout or optimiser settings, trained as one.

    The loss is the sum over members of each one's batch mean: a member's gradient is what it is alone.
    Metrics are vectors over members; `latest` holds those of the epoch, as ``{split}/{name}`` → ``(R,)``.

    Args:
        members: one task a run, fresh, with networks of the same layers.

    Raises:
        ActlabError: when the members' networks cannot be stacked.
    """

    def __init__(self, members: Sequence[Task]) -> None:
        super().__init__()
        networks = [m.network for m in members]
        if not all(can_stack(n) for n in networks):
            raise ActlabError(
                f"{type(networks[0]).__name__} is no sequence of linear layers and cannot be stacked"
            )
        self.members: Sequence[Task]
        self.__dict__["members"] = list(members)  # not submodules: their parameters live in the stack
        self.stream = Stream([m.seed for m in members])
        self.stream.reserve(members[0].stream.sites)
        self.network = StackedNetwork([n for n in networks if isinstance(n, nn.Sequential)], self.stream)
        self.template: Task
        self.__dict__["template"] = members[0]
        self.foreign = [m.stream for m in members if not _draws_only_uniform(m.network)]
        self.latest: dict[str, Tensor] = {}
        self._sums: dict[str, tuple[Tensor, int]] = {}

    def _quantities(self, batch: Batch, shared: bool) -> dict[str, Tensor]:
        self.template.train(self.training)
        return self.template.quantities(self.network(batch[0], shared), batch)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Sum of the members' batch means; inputs ``(R, B, *)``, labels ``(R, B)``."""
        for stream in (self.stream, *self.foreign):
            stream.move(self.current_epoch, batch_idx)
        if self.template.clean_training_loss and self.template.random:
            self._add("train/clean_loss", self._clean_loss(batch))
        losses = self._quantities(batch, shared=False)["loss"].mean(-1)
        self._add("train/loss", losses.detach())
        return losses.sum()

    @torch.no_grad()
    def _clean_loss(self, batch: Batch) -> Tensor:
        self.network.eval()
        losses = self._quantities(batch, shared=False)["loss"].mean(-1)
        self.network.train()
        return losses

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``val/…``; inputs ``(B, *)`` are shared by all members."""
        self._evaluate("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``test/…``."""
        self._evaluate("test", batch)

    def _evaluate(self, split: str, batch: Batch) -> None:
        for name, values in self._quantities(batch, shared=True).items():
            self._add(f"{split}/{name}", values.sum(-1), len(batch[0]))

    def _add(self, name: str, values: Tensor, count: int = 1) -> None:
        total, number = self._sums.get(name, (0.0, 0))
        self._sums[name] = (total + values, number + count)

    def _collect(self, split: str) -> None:
        for name in [n for n in self._sums if n.startswith(f"{split}/")]:
            total, number = self._sums.pop(name)
            self.latest[name] = total / number
        if split == "train" and self.template.clean_training_loss and not self.template.random:
            self.latest["train/clean_loss"] = self.latest["train/loss"]

    def on_train_epoch_end(self) -> None:
        """Take the epoch's training metrics."""
        self._collect("train")

    def on_validation_epoch_end(self) -> None:
        """Take ``val/…``."""
        self._collect("val")

    def on_test_epoch_end(self) -> None:
        """Take ``test/…``."""
        self._collect("test")

    def configure_optimizers(self) -> Any:
        """The optimiser of torch over slices of the stacked parameters; see `Slices`."""
        self.slices = Slices(self.network, [m.optimizer for m in self.members])
        optimizer = self.slices.optimizer
        scheduler: LRSchedulerCallable | None = self.template.scheduler
        if scheduler is None:
            return optimizer
        schedule = {"scheduler": scheduler(optimizer), "interval": self.template.scheduler_interval}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Hand each slice its part of the gradient."""
        self.slices.take_gradients()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Drop the gradients of the stacked parameters."""
        self.network.zero_grad(set_to_none=True)


class Slices:
    """Stacked parameters cut along the run axis where the optimiser's settings change.

    Neighbouring members of equal settings share a slice and a parameter group, so a stack of three learning
    rates costs three groups whatever its size. A slice shares storage with its parameter. The optimisers in
    `ELEMENTWISE_OPTIMIZERS` treat every element by itself, so each member is updated as it is alone.

    Args:
        network: with parameters ``(R, *)``.
        factories: each member's optimiser factory.

    Raises:
        ActlabError: for an optimiser that mixes elements.
    """

    def __init__(self, network: nn.Module, factories: Sequence[OptimizerCallable]) -> None:
        self.parameters = list(network.parameters())
        settings = [member_settings(factory) for factory in factories]
        self.ranges: list[slice] = []
        groups = []
        for values, run in groupby(enumerate(settings), key=lambda item: item[1]):
            indices = [index for index, _ in run]
            self.ranges.append(slice(indices[0], indices[-1] + 1))
            parts = [nn.Parameter(p.detach()[self.ranges[-1]]) for p in self.parameters]
            groups.append({**values, "params": parts})
        self.optimizer = _optimizer(factories[0], groups)

    def take_gradients(self) -> None:
        """Point each slice's gradient into the gradient of its parameter."""
        for members, group in zip(self.ranges, self.optimizer.param_groups, strict=True):
            for parameter, part in zip(self.parameters, group["params"], strict=True):
                part.grad = None if parameter.grad is None else parameter.grad[members]


def member_settings(factory: OptimizerCallable) -> dict[str, Any]:
    """A member's optimiser settings, as a parameter group has them."""
    group = factory([nn.Parameter(torch.zeros(1))]).param_groups[0]
    return {name: value for name, value in group.items() if name != "params"}


def _optimizer(factory: OptimizerCallable, groups: Iterable[dict[str, Any]]) -> Optimizer:
    optimizer = factory(groups)
    if not isinstance(optimizer, ELEMENTWISE_OPTIMIZERS):
        names = ", ".join(o.__name__ for o in ELEMENTWISE_OPTIMIZERS)
        raise ActlabError(f"{type(optimizer).__name__} is not known to act elementwise; stacks take {names}")
    return optimizer


def _draws_only_uniform(network: nn.Module) -> bool:
    """Whether all units that may be random draw from a `Uniform` source."""
    units: Callable[[nn.Module], bool] = activations.is_stochastic
    layers = (m for m in network.children() if not isinstance(m, nn.Linear | nn.Flatten | Dropout))
    return all(has_uniform(m) for m in layers if units(m))
