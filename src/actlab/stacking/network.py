"""R networks with the same layers as one network. Shapes: ``R`` runs, ``B`` batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from actlab.random.streams import Stream
from actlab.stacking import mapping
from actlab.stacking.layers import PerMember, stack


class StackedNetwork(nn.Module):
    """Compute R untrained networks with the same layers as one module.

    The networks become part of the stack. ``mapped`` networks are computed by
    `actlab.stacking.mapping`, others by stacked forms of their layers.

    Shape: ``(R, B, *)``, or ``(B, *)`` for inputs that all members share → ``(R, B, *)``.
    """

    def __init__(
        self, members: Sequence[nn.Module], stream: Stream, mapped: bool = False
    ) -> None:
        super().__init__()
        self.size = len(members)
        self.mapped = mapped
        if mapped:
            self.layers = mapping.joined(members)
        else:
            self.layers = stack(members, stream)

        # Free the memory of the members.
        for r, member in enumerate(members):
            self.share(r, member)

    def forward(self, *inputs: Tensor, shared: bool = False) -> Tensor:
        """Return the outputs of all members; ``shared`` inputs have no run axis."""
        if self.mapped:
            return mapping.call(self.layers, *inputs, shared=shared)

        # Stacked forms expect the run axis.
        if shared:
            inputs = tuple(x.expand(self.size, *x.shape) for x in inputs)
        output: Tensor = self.layers(*inputs)
        return output

    def share(self, r: int, member: nn.Module) -> None:
        """Make the parameters of member ``r``'s network views of the stack, on its device."""
        state = _state(self.layers, r)
        for name, parameter in member.named_parameters():
            if name in state and state[name].shape == parameter.shape:
                parameter.data = state[name]

    def member_state(self, r: int) -> dict[str, Any]:
        """Return a copy of the state dict of member ``r``'s network."""
        state = _state(self.layers, r)
        for name, value in state.items():
            if isinstance(value, Tensor):
                state[name] = value.clone().contiguous()
            else:
                state[name] = copy.deepcopy(value)
        return state


def _state(module: nn.Module, r: int) -> dict[str, Any]:
    """Return member ``r``'s part of a stacked module's state, with the names of a member."""
    # A module's own `member_state` replaces the default below
    member_state = getattr(module, "member_state", None)
    if callable(member_state):
        return dict(member_state(r))

    # Tensors of the module itself
    state: dict[str, Any] = {}
    tensors = [
        *module.named_parameters(recurse=False),
        *module.named_buffers(recurse=False),
    ]
    for name, tensor in tensors:
        if name not in module._non_persistent_buffers_set:
            state[name] = tensor.detach()[r]

    # A child with two names is in the state under both.
    for name, child in module._modules.items():
        if child is not None:
            for inner, value in _state(child, r).items():
                state[f"{name}.{inner}"] = value
    return state


def task_state(network: StackedNetwork, r: int) -> dict[str, Tensor]:
    """Return the state of member ``r``'s task, under the names in the task itself."""
    return {f"network.{name}": value for name, value in network.member_state(r).items()}


class MemberParameter(NamedTuple):
    """What a parameter of a stacked network is in its members."""

    name: str  # in a member's network
    run: int | None  # whose parameter it is; None if it holds the numbers of all runs


def member_parameters(network: StackedNetwork) -> dict[str, MemberParameter]:
    """Return what each parameter of a stacked network is in its members, by its name."""
    # Most parameters hold all members, under a member's name
    parameters: dict[str, MemberParameter] = {}
    for name, _ in network.named_parameters():
        parameters[name] = MemberParameter(name.removeprefix("layers."), None)

    # A module that is called member by member has parameters of one run.
    for path, part in network.named_modules():
        if not isinstance(part, PerMember):
            continue
        prefix = f"{path}.members."
        outer = path.removeprefix("layers")
        for name in parameters:
            if name.startswith(prefix):
                number, _, inner = name.removeprefix(prefix).partition(".")
                member_name = f"{outer}.{inner}".strip(".")
                parameters[name] = MemberParameter(member_name, int(number))
    return parameters
