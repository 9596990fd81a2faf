"""Helpers for any module: plain attributes, evaluation mode for a while, a pass that leaves it unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

_BARE = vars(nn.Module()).keys()  # attributes of every module


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes without parameters, buffers, children and the attributes of every module."""
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
            part.use_nested_tensor = (
                False  # nested tensors, made of padding masks, need the fused kernel
            )


@contextmanager
def unchanged(parts: Iterable[nn.Module]) -> Iterator[None]:
    """Run a block; then give each part its parameters, buffers and attributes back, and tensors their values.

    What other objects hold, such as lists, is not restored, and neither are the parts of a part. A
    part whose first call gives it shapes keeps them.
    """
    held: list[tuple[dict[str, Any], dict[str, Any]]] = []
    values: list[Any] = []
    for part in parts:
        if isinstance(part, torch.jit.ScriptModule):  # its attributes are no dictionaries
            values += [*part.parameters(recurse=False), *part.buffers(recurse=False)]
            continue
        if any(
            is_lazy(own) for own in (*part.parameters(recurse=False), *part.buffers(recurse=False))
        ):
            continue
        for of in (vars(part), part._parameters, part._buffers):
            held.append((of, dict(of)))
            values += of.values()

    tensors = [*{id(value): value for value in values if _takes_values(value)}.values()]
    copies = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        for of, before in held:
            of.clear()
            of.update(before)
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)


def _takes_values(value: Any) -> bool:
    """Whether an object is a tensor that can be changed in place: not expanded, nor of a validation alone."""
    if (
        not isinstance(value, torch.Tensor)
        or value.is_inference()
        or value.layout is not torch.strided
    ):
        return False
    return 0 not in value.stride()


@contextmanager
def evaluating(
    module: nn.Module, setters: Sequence[Callable[..., Any]] = (nn.Module.train,)
) -> Iterator[None]:
    """Run a block in evaluation mode without gradients; restore the mode of each submodule afterwards.

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
