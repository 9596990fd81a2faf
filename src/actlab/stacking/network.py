"""R networks with the same layers as one network. Shapes: ``R`` runs, ``B`` batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from actlab.random.streams import Stream
from actlab.stacking import mapping
from actlab.stacking.layers import PerMember, stack


class StackedNetwork(nn.Module):
    """Compute R untrained networks with the same layers, which become part of the stack, as one module.

    ``mapped`` networks are computed by `actlab.stacking.mapping`, others by stacked forms of their
    layers.

    Shape: ``(R, B, *)``, or ``(B, *)`` for inputs that all members share → ``(R, B, *)``.
    """

    def __init__(self, members: Sequence[nn.Module], stream: Stream, mapped: bool = False) -> None:
        super().__init__()
        self.size, self.mapped = len(members), mapped
        self.layers = mapping.joined(members) if mapped else stack(members, stream)
        for r, member in enumerate(members):  # which frees their memory
            self.share(r, member)

    def forward(self, *inputs: Tensor, shared: bool = False) -> Tensor:
        """Return the outputs of all members; ``shared`` inputs have no run axis."""
        if self.mapped:
            return mapping.call(self.layers, *inputs, shared=shared)
        if shared:
            inputs = tuple(x.expand(self.size, *x.shape) for x in inputs)
        output: Tensor = self.layers(*inputs)
        return output

    def share(self, r: int, member: nn.Module) -> None:
        """Make the parameters of member ``r``'s own network views of the stack, on its present device."""
        state = _state(self.layers, r)
        for name, parameter in member.named_parameters():
            if name in state and state[name].shape == parameter.shape:
                parameter.data = state[name]

    def member_state(self, r: int) -> dict[str, Any]:
        """Return a copy of the state dict of member ``r``'s network."""
        state = _state(self.layers, r).items()
        return {
            n: v.clone().contiguous() if isinstance(v, Tensor) else copy.deepcopy(v)
            for n, v in state
        }


def _state(module: nn.Module, r: int) -> dict[str, Any]:
    """Return member ``r``'s part of a stacked module's state, with the names of a member."""
    if callable(form := getattr(module, "member_state", None)):
        of_form: dict[str, Any] = form(r)
        return of_form
    tensors = {
        **dict(module.named_parameters(recurse=False)),
        **dict(module.named_buffers(recurse=False)),
    }
    state: dict[str, Any] = {
        n: t.detach()[r] for n, t in tensors.items() if n not in module._non_persistent_buffers_set
    }
    for name, child in module._modules.items():  # a child with two names is in the state under both
        if child is not None:
            state |= {f"{name}.{inner}": value for inner, value in _state(child, r).items()}
    return state


def task_state(network: StackedNetwork, r: int) -> dict[str, Tensor]:
    """Return the state of member ``r``'s task, under the names in the task itself."""
    return {f"network.{name}": value for name, value in network.member_state(r).items()}


def member_names(network: StackedNetwork) -> dict[str, tuple[str, int | None]]:
    """Map each stacked parameter to its name in a member and to its run, or None if it belongs to all runs."""
    names: dict[str, tuple[str, int | None]] = {}
    per_member = {path for path, module in network.named_modules() if isinstance(module, PerMember)}
    for name, _ in network.named_parameters():
        in_member, owner = name.removeprefix("layers."), None
        if inside := next(
            (path for path in per_member if name.startswith(f"{path}.members.")), None
        ):
            number, _, inner = name.removeprefix(f"{inside}.members.").partition(".")
            place = inside.removeprefix("layers").strip(".")
            in_member, owner = ".".join(filter(None, [place, inner])), int(number)
        names[name] = in_member, owner
    return names
