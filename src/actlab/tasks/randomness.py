"""Find the random parts of a network; a module counts as random unless it is known to be deterministic."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import nn

from actlab.activations import Function, declared
from actlab.random.streams import Uniform

# Layers of torch that draw from torch's global generator in training.
_RANDOM_LAYERS = (
    *(nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d),
    *(nn.RNNBase, nn.MultiheadAttention),
)
_TORCH_FORWARDS = {
    kind.forward
    for kind in vars(nn).values()
    if isinstance(kind, type) and issubclass(kind, nn.Module)
}
_MODE_DEPENDENT = (Uniform, nn.modules.batchnorm._NormBase)


def draws_from_torch(module: nn.Module) -> bool:
    """Return whether a module's own ``forward`` may draw from torch's global generator in training.

    Not so: torch's deterministic layers, modules with a `Uniform`, and classes with ``stochastic =
    False``.
    """
    if isinstance(module, Function):
        return module.stochastic
    if getattr(type(module), "forward", None) in _TORCH_FORWARDS:  # scripted classes raise for it
        probability = getattr(module, "dropout", getattr(module, "p", 1.0))
        return isinstance(module, _RANDOM_LAYERS) and probability != 0
    if isinstance(module, Uniform) or any(
        isinstance(child, Uniform) for child in module.children()
    ):
        return False
    return declared(module, "stochastic") is not False


def changeable(network: nn.Module, units: Collection[nn.Module]) -> list[nn.Module]:
    """Return the parts of a network that a call in evaluation mode may change.

    Not so: torch's layers, except those of a third-party activation, one of the ``units``.
    """
    own = [
        part
        for part in network.modules()
        if getattr(type(part), "forward", None) not in _TORCH_FORWARDS
    ]
    held = [inner for part in own if part in units for inner in part.modules() if inner is not part]
    return own + held


def drawing(module: nn.Module) -> Iterator[nn.Module]:
    """Yield once each module whose own ``forward`` may draw from torch's generator; see `draws_from_torch`.

    The children of modules that do not draw, such as containers, are searched; those of yielded
    ones are not. A scripted module accepts no hooks, so the module that holds it is yielded.
    """
    waiting, seen = [module], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        children = list(part.children())
        if draws_from_torch(part) or [
            child for child in children if isinstance(child, torch.jit.ScriptModule)
        ]:
            yield part
        else:
            waiting += reversed(children)


def is_random(network: nn.Module, without: Collection[nn.Module] = ()) -> bool:
    """Return whether a network, without some modules, may differ between training and evaluation."""
    left_out = {id(part) for module in without for part in module.modules()}
    for part in network.modules():
        if id(part) not in left_out and (
            isinstance(part, _MODE_DEPENDENT) or draws_from_torch(part)
        ):
            return True
    return False
