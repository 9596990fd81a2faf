"""For any module: plain attributes, evaluation mode for a while, a pass that changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_BARE = vars(nn.Module()).keys()  # attributes of every module


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes, except parameters, buffers, children and torch's own."""
    return {name: value for name, value in vars(module).items() if name not in _BARE}


def unfuse(module: nn.Module) -> None:
    """Let torch's encoder layers call their activation in evaluation too.

    Their fused kernel computes ReLU or GELU instead of a subclass, and GELU instead of its tanh
    form.
    """
    for part in module.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            part.activation_relu_or_gelu = 0
        elif isinstance(part, nn.TransformerEncoder):
            # Nested tensors, made of padding masks, need the fused kernel.
            part.use_nested_tensor = False


@contextmanager
def unchanged(parts: Iterable[nn.Module]) -> Iterator[None]:
    """Run a block; then restore each part's parameters, buffers, attributes and values of tensors.

    Children are restored only if they are listed as parts themselves. Not restored are what other
    objects hold, such as lists, and anything of a lazy part, whose first call gives it shapes.
    """
    # Copy the dictionaries of each part.
    dictionaries: list[tuple[dict[str, Any], dict[str, Any]]] = []
    values: list[Any] = []
    for part in parts:
        part_tensors = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if isinstance(part, torch.jit.ScriptModule):
            # Its attributes are not dictionaries.
            values += part_tensors
            continue
        if any(is_lazy(tensor) for tensor in part_tensors):
            continue
        for attributes in (vars(part), part._parameters, part._buffers):
            dictionaries.append((attributes, dict(attributes)))
            values += attributes.values()

    # Copy the values of tensors, each once.
    copies: dict[int, tuple[Tensor, Tensor]] = {}
    for value in values:
        if id(value) not in copies and _takes_values(value):
            copies[id(value)] = value, value.detach().clone()
    try:
        yield
    finally:
        for attributes, attributes_before in dictionaries:
            attributes.clear()
            attributes.update(attributes_before)
        with torch.no_grad():
            for tensor, copy in copies.values():
                tensor.copy_(copy)


def _takes_values(value: Any) -> bool:
    """Return whether an object is a tensor that can be changed in place, such as none expanded."""
    if not isinstance(value, Tensor) or value.is_inference():
        return False
    return value.layout is torch.strided and 0 not in value.stride()


@contextmanager
def evaluating(
    module: nn.Module, setters: Sequence[Callable[..., Any]] = (nn.Module.train,)
) -> Iterator[None]:
    """Run a block in evaluation mode without gradients; then restore the mode of each submodule.

    ``setters`` are the methods ``train`` that only set modes: `eval`, which takes longer, is called
    for others.
    """
    # Listed before `eval`, which changes all of them.
    training = [part for part in module.modules() if part.training]
    if all(getattr(part.train, "__func__", None) in setters for part in training):
        for part in training:
            part.training = False
    else:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        # `train` would also change submodules that a network keeps in evaluation mode
        for part in training:
            part.training = True
