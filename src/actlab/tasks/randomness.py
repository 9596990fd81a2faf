"""Which parts of a network are random in training; what is not known to be deterministic is random."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from actlab.activations import Function, declared
from actlab.random.streams import Uniform

# Layers of torch that draw from its global generator in training.
_DRAWING = (
    *(nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d),
    *(nn.RNNBase, nn.MultiheadAttention),
)
_FORWARDS = {
    kind.forward for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Module)
}
_DIFFERENT = (Uniform, nn.modules.batchnorm._NormBase)


def draws_from_torch(module: nn.Module) -> bool:
    """Whether a module's own ``forward`` may draw from torch's global generator in training.

    False for torch's deterministic layers, for modules that hold a `Uniform`, from which they draw instead, and
    for classes that declare ``stochastic = False``.
    """
    if isinstance(module, Function):
        return module.stochastic
    if type(module).forward in _FORWARDS:
        probability = getattr(module, "dropout", getattr(module, "p", 1.0))
        return isinstance(module, _DRAWING) and probability != 0
    if isinstance(module, Uniform) or any(isinstance(child, Uniform) for child in module.children()):
        return False
    return declared(module, "stochastic") is not False


def drawing(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost parts of a network that may draw from torch's global generator, each once."""
    seen: set[int] = set()

    def outermost(part: nn.Module) -> Iterator[nn.Module]:
        """The part itself where it draws, else those in it that do."""
        if id(part) in seen:
            return
        seen.add(id(part))
        if draws_from_torch(part):
            yield part
        else:
            for child in part.children():
                yield from outermost(child)

    return outermost(module)


def is_random(network: nn.Module) -> bool:
    """Whether a network may give another output in training than in evaluation."""
    return any(isinstance(m, _DIFFERENT) or draws_from_torch(m) for m in network.modules())
