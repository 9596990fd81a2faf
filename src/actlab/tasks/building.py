"""Checks of a task's settings, and the construction of its optimiser and activations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adam, AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from actlab.config.signatures import parameters
from actlab.errors import ActlabError
from actlab.errors.messages import one_line, shown
from actlab.networks import ActivationFactory
from actlab.optim import L2, By
from actlab.random import hashing
from actlab.random.seeding import own_generators
from actlab.runtime.modules import plain_attributes

NO_PLATEAU = (  # in studies, whose stacks have one scheduler
    "model.scheduler ReduceLROnPlateau: leave it out and give model.schedules "
    "{lr: {class_path: actlab.optim.Plateau, init_args: {metric: val/loss, shrink: 0.1, patience: 10}}}"
)
_FUSED = (Adam, AdamW, SGD)
_DECOUPLED = (AdamW, Adafactor, Muon)  # whatever their settings


def check_given(network: Any, **builders: Any) -> None:
    """Reject a network that is built already, and an optimiser or scheduler that is not to be called."""
    if isinstance(network, nn.Module) or not callable(network):
        example = "nn.Sequential(nn.Flatten(), nn.LazyLinear(64), act(), nn.LazyLinear(outputs))"
        raise ActlabError(
            f"network {shown(network)}: give a function that builds it, such as lambda act, outputs, shape: "
            f"{example}; actlab.replace exchanges the activations of a built network"
        )
    for name, builder in builders.items():
        if builder is not None and not callable(builder):
            example = "such as functools.partial(torch.optim.SGD, lr=0.1)"
            raise ActlabError(
                f"{name} {shown(builder)}: give a class of torch.optim or a partial, {example}"
            )


def saves_hyperparameters(part: object) -> bool:
    """Return whether the class of a task or datamodule calls ``save_hyperparameters``."""
    return getattr(part, "_hparams_name", None) is not None


def checked_optimizer(task: Any, groups: Any) -> Optimizer:
    """Build a task's optimiser; reject settings that would override each other or have no effect."""
    try:
        optimizer: Optimizer = task.optimizer(groups)
    except (ValueError, TypeError) as error:
        raise ActlabError(f"model.optimizer: {one_line(error)}") from error
    for name, value in optimizer.defaults.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ActlabError(
                f"model.optimizer.{name} is {value}: give a finite number, such as 1e-3"
            )
    if task.l2 is not None:
        _check_decay(optimizer, task.l2)
    if task.scheduler is not None and "lr" in task.schedules:
        raise ActlabError("both 'scheduler' and 'schedules: lr' are set: give one of them")
    return optimizer


def fuse(optimizers: Sequence[Optimizer], device: torch.device) -> None:
    """Let a GPU make the steps of common optimisers by one kernel, unless their settings choose another form.

    Done at the start of training, because a checkpoint has the form of the device on which it was
    written.
    """
    for optimizer in optimizers:
        settings = optimizer.defaults
        if type(optimizer) not in _FUSED or {settings["fused"], settings["foreach"]} != {None}:
            continue
        fused = True if device.type == "cuda" else None
        if optimizer.param_groups[0]["fused"] is fused:
            continue
        for group in optimizer.param_groups:
            group["fused"] = fused
        for parameter, state in optimizer.state.items():
            if "step" in state:  # the number of steps, which one kernel reads on the device
                state["step"] = state["step"].float().to(parameter.device if fused else "cpu")


def is_penalty(task: Any) -> bool:
    """Return whether a task's ``l2`` is a penalty, and not the decoupled decay of its optimiser."""
    if task.l2 is None:
        return False
    optimizer = checked_optimizer(task, [nn.Parameter(torch.zeros(1, 1))])
    return not decouples(type(optimizer), optimizer.defaults)


def decouples(kind: type, settings: Mapping[str, Any]) -> bool:
    """Return whether an optimiser of a class decays weights apart from the gradient, which no penalty does."""
    return issubclass(kind, _DECOUPLED) or bool(settings.get("decoupled_weight_decay"))


def _check_decay(optimizer: Optimizer, l2: L2) -> None:
    kind: Any = type(optimizer)
    name, defaults = kind.__name__, optimizer.defaults
    if "weight_decay" not in defaults:
        raise ActlabError(
            f"{name} has no 'weight_decay', which 'l2' requires: leave out 'l2', or use another optimizer"
        )
    if decouples(kind, defaults) and not l2.half:
        raise ActlabError(
            f"model.l2.half is false, but {name} decouples weight decay from the gradient, so 'l2' is no "
            "penalty with or without ½: leave 'half' out and give the decay as 'strength'"
        )
    default = (parameters(kind) or {}).get("weight_decay")  # AdamW's default is not 0
    if defaults["weight_decay"] not in (0, default and default.default):
        raise ActlabError("both 'l2' and the optimizer's 'weight_decay' are set: give one of them")


def total(task: pl.LightningModule, by: By) -> int:
    """Return the number of all epochs or updates of the training of a task or a stack."""
    trainer = task.trainer
    number = trainer.max_epochs if by == "epoch" else trainer.estimated_stepping_batches
    if number is None or not 0 <= number < math.inf:
        limit = "trainer.max_epochs" if by == "epoch" else "trainer.max_steps or trainer.max_epochs"
        raise ActlabError(
            f"a schedule by shares of a training without a number of {by}s: set {limit}, or give its lengths "
            f"as whole numbers of {by}s"
        )
    return int(number)


def check_devices(trainer: pl.Trainer, network: nn.Module) -> None:
    """Reject batch norm over parts of a batch: results would depend on the number of devices."""
    normed = any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules()
    )
    if normed and trainer.world_size > 1 and getattr(trainer.strategy, "_layer_sync", None) is None:
        raise ActlabError(
            f"batch norm on {trainer.world_size} devices, each with a part of the batch: on GPUs set "
            "trainer.sync_batchnorm true, on CPUs trainer.devices 1"
        )


def check_built_on_cpu(network: nn.Module) -> None:
    """Reject weights drawn on an accelerator: they would depend on whether the process had used it before."""
    accelerator = torch.accelerator.current_accelerator()
    for tensor in itertools.chain(network.parameters(), network.buffers()):
        if accelerator is not None and tensor.device.type == accelerator.type:
            raise ActlabError(
                f"the network has weights on {tensor.device}: create them on the CPU; the Trainer moves "
                "them to its device"
            )


def scheduled(task: Any, optimizer: Optimizer) -> Any:
    """Return the optimiser of a task or a stack for Lightning, with torch's scheduler if there is one."""
    first = task.members[0]
    if first.scheduler is None:
        return optimizer
    configured = {"scheduler": first.scheduler(optimizer), "interval": first.scheduler_interval}
    if isinstance(configured["scheduler"], ReduceLROnPlateau):
        configured["monitor"] = _monitor(configured["scheduler"], task)
    return {"optimizer": optimizer, "lr_scheduler": configured}


def _monitor(scheduler: Any, task: Any) -> str:
    monitor = getattr(scheduler, "monitor", None)
    if monitor is None:
        raise ActlabError(
            "model.scheduler torch.optim.lr_scheduler.ReduceLROnPlateau has no metric: give "
            "pytorch_lightning.cli.ReduceLROnPlateau and its monitor, such as val/loss"
        )
    if monitor.startswith("test/"):
        raise ActlabError(
            f"model.scheduler.monitor {monitor!r}: give a metric of validation, such as val/loss"
        )
    if task.scheduler_interval == "step":
        raise ActlabError(
            "model.scheduler ReduceLROnPlateau steps every epoch: leave model.scheduler_interval out"
        )
    return str(monitor)


def check_learning(loss: Tensor, task: pl.LightningModule) -> None:
    """Reject a network with a trainable tensor that the optimiser lacks: the tensor would never change."""
    if task.trainer.world_size > 1:  # a strategy may have replaced the parameters
        return
    given = {
        id(p) for o in task.trainer.optimizers for group in o.param_groups for p in group["params"]
    }
    if fault := fault_of_learning(loss, given, task):
        raise ActlabError(f"the network {fault}")


def fault_of_learning(loss: Tensor, given: Collection[int], module: nn.Module) -> str | None:
    """Return a message for a leaf of a loss's graph that is not among the optimiser's parameters, by id.

    Tensors that are no parameters and that the module does not hold, such as inputs by which a loss
    differentiates, are no fault.
    """
    held = {id(tensor) for part in module.modules() for tensor in _tensors(plain_attributes(part))}
    held |= {id(parameter) for parameter in module.parameters()}
    leaves = (leaf for leaf in _leaves(loss) if id(leaf) in held or isinstance(leaf, nn.Parameter))
    strays = [leaf for leaf in leaves if id(leaf) not in given]
    if not strays:
        return None
    return (
        f"learns a tensor of shape {tuple(strays[0].shape)} that is not in the optimiser: make it a "
        "Parameter of the module in its constructor, or one in a ParameterList or ParameterDict"
    )


def fault_of_made(module: nn.Module, known: Collection[str]) -> str | None:
    """Return a message for a parameter that is not among the ``known`` names, those before the first call."""
    made = sorted({name for name, _ in module.named_parameters()} - {*known})
    if not made:
        return None
    return (
        f"creates a parameter in its first call ({made[0]}), after the optimiser was built: create it in the "
        "constructor, as an UninitializedParameter if its shape is unknown"
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(inner)


def _leaves(loss: Tensor) -> Iterator[Tensor]:
    waiting, seen = [loss.grad_fn], set[Any]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [below for below, _ in node.next_functions]
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf


def recorded(
    factory: ActivationFactory, activations: list[nn.Module], seed: int
) -> ActivationFactory:
    """Return a factory that appends each module it makes to ``activations``.

    Each module is built with random numbers of its own. Floating-point tensors get at least
    torch's default precision: a narrower slope rounds small updates off.
    """
    least = torch.get_default_dtype()

    def raised(tensor: Tensor) -> Tensor:
        is_low = tensor.is_floating_point() and tensor.dtype.itemsize < least.itemsize
        return tensor.to(least) if is_low else tensor

    def activation(width: int | None = None) -> nn.Module:
        with own_generators(hashing.seed_for(seed, "unit", len(activations))):
            activations.append(factory(width)._apply(raised))  # type: ignore[no-untyped-call]
        return activations[-1]

    return activation


def materialise(network: nn.Module, input_shape: Sequence[int]) -> None:
    """Initialise lazy parameters, if any, by a forward pass of a zero sample in evaluation mode."""
    if nn.UninitializedParameter in map(type, network.parameters()):
        training = network.training
        takes_tokens = any(isinstance(module, nn.Embedding) for module in network.modules())
        with torch.no_grad():
            network.eval()(torch.zeros(1, *input_shape, dtype=torch.long if takes_tokens else None))
        network.train(training)
