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
from actlab.errors.messages import one_line, short_repr
from actlab.networks import ActivationFactory
from actlab.optim import L2, By
from actlab.random import hashing
from actlab.random.seeding import own_generators
from actlab.runtime.modules import plain_attributes

NO_PLATEAU = (  # in studies, whose stacks have one scheduler
    "model.scheduler: expected another scheduler in a study, got ReduceLROnPlateau. Remove it, and "
    "set model.schedules to {lr: {class_path: actlab.optim.Plateau, "
    "init_args: {metric: val/loss, shrink: 0.1, patience: 10}}}."
)
_FUSED = (Adam, AdamW, SGD)
_DECOUPLED = (AdamW, Adafactor, Muon)  # whatever their settings


def check_builders(network: Any, **builders: Any) -> None:
    """Reject a built network, and an optimiser or scheduler that cannot be called.

    Args:
        network: builds the network.
        builders: the optimiser and the scheduler by name; None if there is none.

    Raises:
        ActlabError: a value does not build its part.
    """
    # A built network has its activations already
    if isinstance(network, nn.Module) or not callable(network):
        example = "nn.Sequential(nn.Flatten(), nn.LazyLinear(64), act(), nn.LazyLinear(outputs))"
        raise ActlabError(
            f"network: expected a function that builds it, got {short_repr(network)}. Write, for "
            f"example, lambda act, outputs, shape: {example}. For the activations of a built "
            "network, use actlab.replace."
        )

    # Optimisers and schedulers are classes or partials.
    for name, builder in builders.items():
        if builder is not None and not callable(builder):
            example = "such as functools.partial(torch.optim.SGD, lr=0.1)"
            raise ActlabError(
                f"{name}: expected a class of torch.optim or a partial, {example}, got "
                f"{short_repr(builder)}"
            )


def saves_hyperparameters(part: object) -> bool:
    """Return whether the class of a task or datamodule calls ``save_hyperparameters``."""
    return getattr(part, "_hparams_name", None) is not None


def checked_optimizer(task: Any, groups: Any) -> Optimizer:
    """Build a task's optimiser from parameter groups.

    Raises:
        ActlabError: settings override each other or have no effect.
    """
    # The optimiser itself rejects invalid values
    try:
        optimizer: Optimizer = task.optimizer(groups)
    except (ValueError, TypeError) as error:
        raise ActlabError(f"model.optimizer: {one_line(error)}") from error

    # Values must be finite, and set once.
    for name, value in optimizer.defaults.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ActlabError(
                f"model.optimizer.{name}: expected a finite number, got {value}"
            )
    if task.l2 is not None:
        _check_decay(optimizer, task.l2)
    if task.scheduler is not None and "lr" in task.schedules:
        raise ActlabError(
            "both 'scheduler' and 'schedules: lr' are set. Remove one of them."
        )
    return optimizer


def fuse(optimizers: Sequence[Optimizer], device: torch.device) -> None:
    """Let a GPU make the steps of common optimisers by one kernel.

    Optimisers whose arguments state a form are left as they are. Call this after a checkpoint is
    restored, because its groups have the form of the device on which it was written.
    """
    # With None, torch selects the form
    fused = True if device.type == "cuda" else None
    for optimizer in optimizers:
        if type(optimizer) not in _FUSED:
            continue
        states_form = any(
            optimizer.defaults[name] is not None for name in ("fused", "foreach")
        )
        if states_form or optimizer.param_groups[0]["fused"] is fused:
            continue

        for group in optimizer.param_groups:
            group["fused"] = fused

        # The kernel reads the number of steps on the device, other forms on the CPU.
        for parameter, state in optimizer.state.items():
            if "step" in state:
                state["step"] = (
                    state["step"].float().to(parameter.device if fused else "cpu")
                )


def is_penalty(task: Any) -> bool:
    """Return whether a task's ``l2`` is a penalty, and not the decoupled decay of its optimiser."""
    if task.l2 is None:
        return False
    # Of any parameter, because the settings decide; Muon accepts only matrices
    optimizer = checked_optimizer(task, [nn.Parameter(torch.zeros(1, 1))])
    return not decouples(type(optimizer), optimizer.defaults)


def decouples(kind: type, settings: Mapping[str, Any]) -> bool:
    """Return whether a class of optimisers decays weights apart from the gradient.

    A penalty cannot do this.
    """
    return issubclass(kind, _DECOUPLED) or bool(settings.get("decoupled_weight_decay"))


def _check_decay(optimizer: Optimizer, l2: L2) -> None:
    """Reject an optimiser that cannot decay weights as ``l2`` asks for, or does so already."""
    # The optimiser itself applies the decay
    kind: Any = type(optimizer)
    name = kind.__name__
    defaults = optimizer.defaults
    if "weight_decay" not in defaults:
        raise ActlabError(
            f"model.l2: expected an optimizer with 'weight_decay', got {name}. Remove model.l2, or "
            "use another optimizer."
        )

    # Decoupled decay is λ itself, never 2λ
    if decouples(kind, defaults) and not l2.half:
        raise ActlabError(
            f"model.l2.half: expected true for {name}, which decouples weight decay from the "
            "gradient, got false. Remove 'half', and set 'strength' to the weight decay."
        )

    # AdamW's default is not 0.
    argument = (parameters(kind) or {}).get("weight_decay")
    if defaults["weight_decay"] not in (0, argument and argument.default):
        raise ActlabError(
            "both 'l2' and the optimizer's 'weight_decay' are set. Remove one of them."
        )


def total(task: pl.LightningModule, by: By) -> int:
    """Return the number of all epochs or updates of the training of a task or a stack.

    Raises:
        ActlabError: the Trainer has no such limit.
    """
    trainer = task.trainer
    number: float | None
    if by == "epoch":
        # None or -1 if nothing limits the epochs
        number = trainer.max_epochs
        limit = "trainer.max_epochs"
    else:
        number = trainer.estimated_stepping_batches
        limit = "trainer.max_steps or trainer.max_epochs"

    # Unlimited, or a length that cannot be estimated
    if number is None or not 0 <= number < math.inf:
        raise ActlabError(
            f"a schedule by shares of the training requires a number of {by}s. Set {limit}, or use "
            f"whole numbers of {by}s as lengths."
        )
    return int(number)


def check_devices(trainer: pl.Trainer, network: nn.Module) -> None:
    """Reject batch norm over parts of a batch: results would depend on the number of devices."""
    if (
        trainer.world_size == 1
        or getattr(trainer.strategy, "_layer_sync", None) is not None
    ):
        return
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network.modules()):
        raise ActlabError(
            f"batch norm on {trainer.world_size} devices would use only a part of each batch. "
            "Set trainer.sync_batchnorm to true on GPUs, or trainer.devices to 1 on CPUs."
        )


def check_built_on_cpu(network: nn.Module) -> None:
    """Reject weights drawn on an accelerator.

    They would depend on whether the process had used the accelerator before.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return
    # A buffer may hold random features, for example
    for tensor in itertools.chain(network.parameters(), network.buffers()):
        if tensor.device.type == accelerator.type:
            raise ActlabError(
                f"the network has weights on {tensor.device}. Create them on the CPU. The Trainer "
                "moves them to its device."
            )


def scheduled(task: Any, optimizer: Optimizer) -> Any:
    """Return the optimiser of a task or a stack for Lightning, with torch's scheduler if any."""
    member = task.members[0]
    if member.scheduler is None:
        return optimizer

    # All members of a stack have the scheduler of the first
    scheduler = member.scheduler(optimizer)
    config = {"scheduler": scheduler, "interval": member.scheduler_interval}
    if isinstance(scheduler, ReduceLROnPlateau):
        config["monitor"] = _monitor(scheduler, task)
    return {"optimizer": optimizer, "lr_scheduler": config}


def _monitor(scheduler: Any, task: Any) -> str:
    # Lightning's class has a monitor, torch's class has none
    monitor = getattr(scheduler, "monitor", None)
    if monitor is None:
        raise ActlabError(
            "model.scheduler: expected a scheduler with a monitor, got "
            "torch.optim.lr_scheduler.ReduceLROnPlateau. Use "
            "pytorch_lightning.cli.ReduceLROnPlateau, and set its monitor, such as val/loss."
        )

    # Test data must not influence the training
    if monitor.startswith("test/"):
        raise ActlabError(
            "model.scheduler.monitor: expected a metric of validation, such as val/loss, got "
            f"{monitor!r}"
        )

    # Metrics of validation exist once per epoch
    if task.scheduler_interval == "step":
        raise ActlabError(
            "model.scheduler_interval: expected epoch for ReduceLROnPlateau, got step. Remove the "
            "setting."
        )
    return str(monitor)


def check_learning(loss: Tensor, task: pl.LightningModule) -> None:
    """Reject a network with a trainable tensor that the optimiser lacks.

    The tensor would never change.
    """
    if task.trainer.world_size > 1:  # a strategy may have replaced the parameters
        return

    # Compare with the parameters of all optimisers.
    optimised = set()
    for optimizer in task.trainer.optimizers:
        for group in optimizer.param_groups:
            # By identity, because tensors are compared by value
            optimised |= {id(parameter) for parameter in group["params"]}
    fault = fault_of_learning(loss, optimised, task)
    if fault:
        raise ActlabError(f"the network {fault}")


def fault_of_learning(
    loss: Tensor, optimised: Collection[int], module: nn.Module
) -> str | None:
    """Return a message for a leaf of a loss's graph that no optimiser has, or None.

    Tensors that are not parameters and that the module does not hold are no fault, such as inputs
    by which a loss differentiates.

    Args:
        loss: with its graph.
        optimised: ids of the optimisers' parameters.
        module: whose parameters and plain tensors should be optimised.
    """
    # Collect the tensors of the module.
    held = {id(parameter) for parameter in module.parameters()}
    for part in module.modules():
        held |= {id(tensor) for tensor in _tensors(plain_attributes(part))}

    # Look for a leaf that is not optimised.
    for leaf in _leaves(loss):
        is_trainable = id(leaf) in held or isinstance(leaf, nn.Parameter)
        if is_trainable and id(leaf) not in optimised:
            return (
                f"learns a tensor of shape {tuple(leaf.shape)} that is not in the optimiser: make "
                "it a Parameter of the module in its constructor, or one in a ParameterList or "
                "ParameterDict"
            )
    return None


def fault_of_made(module: nn.Module, names: Collection[str]) -> str | None:
    """Return a message for a parameter that is not among ``names``, from before the first call."""
    created = sorted({name for name, _ in module.named_parameters()} - {*names})
    if not created:
        return None
    return (
        f"creates a parameter in its first call ({created[0]}), after the optimiser was built: "
        "create it in the constructor, as an UninitializedParameter if its shape is unknown"
    )


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested mappings, lists and tuples."""
    if isinstance(values, Mapping):
        values = list(values.values())
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Mapping | list | tuple):
            yield from _tensors(value)


def _leaves(loss: Tensor) -> Iterator[Tensor]:
    """Yield the leaves of a loss's graph."""
    waiting = [loss.grad_fn]
    visited: set[Any] = set()
    while waiting:
        # A loop, because the graph of a deep network exceeds Python's recursion limit
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)

        # Towards the inputs of the network
        waiting += [inner for inner, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            yield leaf


def recorded(
    factory: ActivationFactory, activations: list[nn.Module], seed: int
) -> ActivationFactory:
    """Return a factory that appends each module it makes to ``activations``.

    Each module is built with random numbers of its own. Floating-point tensors get at least
    torch's default precision: a narrower slope rounds small updates off.
    """
    least = torch.get_default_dtype()

    # Integers and wide floats stay as they are
    def raised(tensor: Tensor) -> Tensor:
        is_low = tensor.is_floating_point() and tensor.dtype.itemsize < least.itemsize
        return tensor.to(least) if is_low else tensor

    def activation(width: int | None = None) -> nn.Module:
        # The number of a module decides, so one more layer before it changes nothing
        # else
        with own_generators(hashing.seed_for(seed, "unit", len(activations))):
            module: nn.Module = factory(width)._apply(raised)  # type: ignore[no-untyped-call]
        activations.append(module)
        return module

    return activation


def materialise(network: nn.Module, input_shape: Sequence[int]) -> None:
    """Initialise lazy parameters, if any, by a forward pass of a zero sample in evaluation mode."""
    if nn.UninitializedParameter not in map(type, network.parameters()):
        return

    # Embeddings take whole numbers.
    takes_tokens = any(isinstance(module, nn.Embedding) for module in network.modules())
    sample = torch.zeros(1, *input_shape, dtype=torch.long if takes_tokens else None)
    training = network.training
    with torch.no_grad():
        network.eval()(sample)
    # The pass in evaluation mode has changed no running statistics
    network.train(training)
