"""R networks without stacked forms as one: `torch.func.vmap` over a call of the whole network.

For any structure: attention, convolutions, tied weights, parameters of a container. What vmap
cannot map raises a `MappingError`: random numbers of torch, branches on values, recurrent layers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from actlab.errors.messages import one_line
from actlab.random import streams
from actlab.random.seeding_hooks import seeded
from actlab.runtime.accidents import is_accident
from actlab.stacking.layers import stacked_tensor


class MappingError(Exception):
    """A network cannot be mapped; the message says why.

    The same network raises the same error again.
    """


def reason_against(network: nn.Module) -> str | None:
    """Return why a network cannot be mapped, before it is tried; None if it must be tried."""
    parts = list(network.modules())
    if any(isinstance(part, streams.Uniform) for part in parts):
        return "vmap would draw other random masks"
    if any(
        isinstance(part, nn.Embedding) and part.padding_idx is not None
        for part in parts
    ):
        # In all members but the first (torch 2.13)
        return "vmap would train the padding row of an embedding"
    return None


def joined(members: Sequence[nn.Module]) -> nn.Module:
    """Return a copy of the first network with the tensors of all members, ``(R, *)``.

    Names are the names in a member; a tied weight stays one parameter. Call the copy by `call`.
    """
    network = copy.deepcopy(members[0])
    for _, hook in seeded(network):  # needless seeding: vmap rejects layers that draw
        hook.detach()

    # Replace each tensor by the tensors of all members; a tied one, found by its id,
    # only once.
    stacked_tensors: dict[int, Tensor] = {}  # by the id of the first member's tensor
    for path, module in network.named_modules():
        parts = [member.get_submodule(path) for member in members]
        tensors = module._parameters | module._buffers
        for name, tensor in tensors.items():
            if tensor is None:
                continue
            member_tensor = getattr(parts[0], name)
            key = id(member_tensor)
            if key not in stacked_tensors:
                stacked = stacked_tensor(parts, name)
                if isinstance(member_tensor, nn.Parameter):
                    stacked = nn.Parameter(stacked, member_tensor.requires_grad)
                stacked_tensors[key] = stacked
            setattr(module, name, stacked_tensors[key])
    return network


def call(network: nn.Module, *inputs: Tensor, shared: bool = False) -> Tensor:
    """Return the outputs ``(R, B, *)`` of a network made by `joined`.

    ``shared`` inputs have no run axis.
    """
    state = dict(network.named_parameters()) | dict(network.named_buffers())
    # Map over the runs of the tensors, and of inputs that differ.
    input_axis = None if shared else 0
    axes = 0, *[input_axis] * len(inputs)

    def call_member(tensors: dict[str, Tensor], *member_inputs: Tensor) -> Any:
        return functional_call(network, tensors, member_inputs)

    # The error of torch is shortened to its first sentence.
    try:
        with _plain_attention():
            output: Tensor = vmap(call_member, axes, randomness="error")(state, *inputs)
    except (RuntimeError, TypeError, ValueError) as error:
        if is_accident(error):
            raise
        reason = one_line(error).partition(". ")[0]
        raise MappingError(
            f"vmap cannot map {type(network).__name__}: {reason}"
        ) from error
    return output


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Compute attention within a block by products that vmap can map, instead of fused kernels."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
