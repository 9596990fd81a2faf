"""Layers of R networks as one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from actlab import activations
from actlab.networks import Dropout
from actlab.streams import Stream, Uniform
from actlab.tasks import has_uniform


class StackedLinear(nn.Module):
    """R linear layers as one batched product.

    The weight is kept as ``(R, D, out)``: its gradient comes out of the product in that order, and keeping a
    member's own order would copy all gradients once an update.

    Shape: ``(R, B, D)`` → ``(R, B, out)``.
    """

    def __init__(self, members: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([m.weight.detach().T for m in members]))
        has_bias = members[0].bias is not None
        self.bias = nn.Parameter(torch.stack([m.bias.detach() for m in members])) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """y_r = x_r W_rᵀ + b_r."""
        if self.bias is None:
            return torch.bmm(x, self.weight)
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight)


class StackedFlatten(nn.Module):
    """Flattens everything behind run and batch axes."""

    def forward(self, x: Tensor) -> Tensor:
        """``(R, B, *)`` → ``(R, B, D)``."""
        return x.flatten(2)


class PerMember(nn.Module):
    """Any module, called member by member with its member's slice of the stacked parameters and buffers.

    The general way, for units with parameters or from elsewhere. Each member keeps a module of its own, so
    what a unit holds outside its parameters stays apart too.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members: Sequence[nn.Module]
        self.__dict__["members"] = list(members)  # not submodules: their parameters are the stacked ones
        stacked = copy.deepcopy(members[0])
        for name, _ in list(stacked.named_parameters()):
            set_tensor(stacked, name, nn.Parameter(torch.stack([m.get_parameter(name).data for m in members])))
        for name, _ in list(stacked.named_buffers()):
            set_tensor(stacked, name, torch.stack([m.get_buffer(name) for m in members]))
        self.stacked = stacked

    def forward(self, x: Tensor) -> Tensor:
        """``(R, B, *)`` → ``(R, B, *)``."""
        own = {n: t.unbind() for n, t in (*self.stacked.named_parameters(), *self.stacked.named_buffers())}
        outputs = []
        for r, (member, inputs) in enumerate(zip(self.members, x.unbind(), strict=True)):
            member.train(self.training)
            outputs.append(functional_call(member, {name: slices[r] for name, slices in own.items()}, inputs))
        return torch.stack(outputs)


def set_tensor(module: nn.Module, name: str, value: Tensor) -> None:
    """Replace a parameter or buffer, named with dots."""
    path, _, last = name.rpartition(".")
    setattr(module.get_submodule(path), last, value)


def stack_layer(members: Sequence[nn.Module], stream: Stream) -> nn.Module:
    """The stacked form of one layer of R networks."""
    first = members[0]
    if isinstance(first, nn.Linear):
        return StackedLinear([m for m in members if isinstance(m, nn.Linear)])
    if isinstance(first, nn.Flatten):
        return StackedFlatten()
    if isinstance(first, Dropout):
        dropout = Dropout(_common([float(m.p) for m in members if isinstance(m, Dropout)]))
        dropout.uniform.stream, dropout.uniform.site = stream, first.uniform.site
        return dropout
    if activations.is_elementwise(first):
        layer = copy.deepcopy(first)
        for uniform in (m for m in layer.modules() if isinstance(m, Uniform)):
            uniform.stream = stream
        return layer
    return PerMember(members)


def _common(values: Sequence[float]) -> float | Tensor:
    """One number where all are equal, else one a run, ``(R, 1)``."""
    return values[0] if len(set(values)) == 1 else torch.tensor(values).view(-1, 1)


def can_stack(network: nn.Module) -> bool:
    """Whether a network is a sequence of linear layers, units and dropout, which stacking is made for."""
    if not isinstance(network, nn.Sequential):
        return False
    unit_like = [m for m in network if not isinstance(m, nn.Linear | nn.Flatten | Dropout)]
    known = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
    return not any(isinstance(m, known) for unit in unit_like for m in unit.modules())


class StackedNetwork(nn.Sequential):
    """R networks of the same layers as one.

    Its parameters and buffers have the names they have in a member, each with a leading run axis.

    Shape: ``(R, B, *)``, or ``(B, *)`` for inputs that all members share → ``(R, B, K)``.
    """

    def __init__(self, members: Sequence[nn.Sequential], stream: Stream) -> None:
        layers = [stack_layer(layer, stream) for layer in zip(*members, strict=True)]
        super().__init__(*layers)
        self.size = len(members)

    def forward(self, x: Tensor, shared: bool = False) -> Tensor:
        """Outputs of all members; ``shared`` inputs lack the run axis."""
        x = x.expand(self.size, *x.shape) if shared else x
        for layer in self:
            x = layer(x)
        return x

    def member_state(self, r: int) -> dict[str, Tensor]:
        """State dict of member ``r`` as its own network would have it (copies)."""
        transposed = {f"{n}.weight" for n, m in self.named_modules() if isinstance(m, StackedLinear)}
        own = {name: (v[r].T if name in transposed else v[r]) for name, v in self.state_dict().items()}
        return {name.replace(".stacked.", "."): v.clone().contiguous() for name, v in own.items()}


def draws_only_uniform(network: nn.Module) -> bool:
    """Whether all units that may be random draw from a `Uniform` source."""
    units: Callable[[nn.Module], bool] = activations.is_stochastic
    layers = (m for m in network.children() if not isinstance(m, nn.Linear | nn.Flatten | Dropout))
    return all(has_uniform(m) for m in layers if units(m))
