"""Find the random parts of a network.

A module counts as random unless it is known to be deterministic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import nn

from actlab.activations import Function, declared
from actlab.random.streams import Uniform

# Layers of torch that draw from torch's global generator in training.
_RANDOM_LAYERS = (
    nn.modules.dropout._DropoutNd,
    nn.RReLU,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
    nn.RNNBase,
    nn.MultiheadAttention,
)
_TORCH_LAYERS = [kind for kind in vars(nn).values() if isinstance(kind, type)]
_TORCH_FORWARDS = {
    kind.forward for kind in _TORCH_LAYERS if issubclass(kind, nn.Module)
}
# What has another form in evaluation, without torch's generator
MODE_DEPENDENT = (Uniform, nn.modules.batchnorm._NormBase)


def draws_from_torch(module: nn.Module) -> bool:
    """Return whether a module's own ``forward`` may draw from torch's global generator in training.

    torch's deterministic layers, modules with a `Uniform`, and classes with ``stochastic = False``
    do not.
    """
    if isinstance(module, Function):
        return module.stochastic

    # A layer of torch draws nothing if it drops nothing.
    if _is_of_torch(module):
        probability = getattr(module, "dropout", getattr(module, "p", 1.0))
        return isinstance(module, _RANDOM_LAYERS) and probability != 0

    # What has a `Uniform` draws from it, not from torch's generator.
    if any(isinstance(part, Uniform) for part in (module, *module.children())):
        return False
    return declared(module, "stochastic") is not False


def _is_of_torch(module: nn.Module) -> bool:
    """Whether a module has the ``forward`` of a layer of torch."""
    # Scripted classes raise for `forward`.
    return getattr(type(module), "forward", None) in _TORCH_FORWARDS


def changeable(
    network: nn.Module, activations: Collection[nn.Module]
) -> list[nn.Module]:
    """Return the parts of a network that a call in evaluation mode may change.

    torch's layers are left out, except the layers within a third-party activation.
    """
    parts = [part for part in network.modules() if not _is_of_torch(part)]

    # A third-party activation may change the layers that it holds.
    inner_parts = []
    for part in parts:
        if part in activations:
            inner_parts += [inner for inner in part.modules() if inner is not part]
    return parts + inner_parts


def drawing(module: nn.Module) -> Iterator[nn.Module]:
    """Yield once each module whose own ``forward`` may draw from torch's generator.

    The children of modules that do not draw, such as containers, are searched; the children of
    yielded modules are not. A scripted module accepts no hooks, so the module that holds it is
    yielded. See `draws_from_torch`.
    """
    # A shared module is visited once
    waiting = [module]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))

        # Search the children of what does not draw itself, in order.
        children = list(part.children())
        scripts = [
            child for child in children if isinstance(child, torch.jit.ScriptModule)
        ]
        if scripts or draws_from_torch(part):
            yield part
        else:
            waiting += reversed(children)


def is_random(network: nn.Module, without: Collection[nn.Module] = ()) -> bool:
    """Return whether a network may differ between training and evaluation.

    The modules ``without`` are left out, with all that they hold.
    """
    left_out: set[int] = set()
    for module in without:
        left_out.update(map(id, module.modules()))

    for part in network.modules():
        if id(part) in left_out:
            continue
        if isinstance(part, MODE_DEPENDENT) or draws_from_torch(part):
            return True
    return False
