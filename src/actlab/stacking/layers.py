"""The table of stacked forms: R layers of one kind as one layer whose tensors lead with the run axis.

A layer in the table has a batched form: a linear layer is one ``baddbmm``. A unit that acts elementwise and has
no parameters is applied once to all members. Anything else is called member by member, each member being the
very module that it is alone. ``vmap`` over ``functional_call`` takes 1.2 times as long on two cores
(``benchmarks/stacks.py``, figure ``func_vs_explicit``), and cannot map a unit that changes its buffers.

A user's layer enters the table with `stacked_form`::

    @stacked_form(Scale)
    class StackedScale(nn.Module):
        def __init__(self, members, stream):
            super().__init__()
            self.gain = nn.Parameter(torch.stack([m.gain.detach() for m in members]))  # (R, D)

        def forward(self, x):
            return x * self.gain.unsqueeze(1)  # (R, B, D)

Parameters and buffers of a stacked form have the names that they have in a member.

Shapes: ``R`` runs, ``B`` batch, ``*`` further axes, ``D`` features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from actlab import activations
from actlab.errors import ActlabError
from actlab.networks import Dropout
from actlab.random import streams
from actlab.random.streams import Stream
from actlab.runtime.modules import own_attributes

Form = Callable[[Sequence[Any], Stream], nn.Module]
_Form = TypeVar("_Form", bound=Form)
_FORMS: dict[type[nn.Module], Form] = {}
_ACTING = ("forward", "__call__", "train", "_apply")  # what a stacked form has of its type


def stacked_form(layer: type[nn.Module]) -> Callable[[_Form], _Form]:
    """Decorate what builds the stacked form of a layer type: called with the R members and the stack's stream.

    It serves subclasses too, as long as they do not define a method of `_ACTING` of their own.
    """

    def enter(form: _Form) -> _Form:
        _FORMS[layer] = form
        return form

    return enter


def form_of(layer: nn.Module) -> Form | None:
    """What builds the stacked form of a layer, or None when its type is not in the table."""
    own = type(layer)
    for kind in own.__mro__:
        if kind in _FORMS and all(getattr(own, name) is getattr(kind, name) for name in _ACTING):
            return _FORMS[kind]
    return None


def stack(members: Sequence[nn.Module], stream: Stream) -> nn.Module:
    """The stacked form of R modules that are alike.

    Args:
        members: one a run; they become part of the result.
        stream: of the stack.
    """
    first = members[0]
    if form := form_of(first):
        return form(members, stream)
    if acts_on_all_at_once(members):
        streams.attach_like(first, stream)
        return first
    return PerMember(members, stream)


def acts_on_all_at_once(members: Sequence[nn.Module]) -> bool:
    """Whether one member serves all runs: elementwise, with equal settings, random by `Uniform` alone."""
    first = members[0]
    if not activations.is_elementwise(first) or streams.seeds_torch(first):
        return False
    return all(_settings(m) == _settings(first) for m in members)


def _settings(module: nn.Module) -> list[Any]:
    """What a unit without parameters holds besides its modules; objects of unknown kinds equal nothing."""
    if isinstance(module, streams.Uniform):
        return []
    own = [(name, _plain(value)) for name, value in own_attributes(module).items()]
    return [type(module), own, *(_settings(child) for child in module.children())]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if callable(value) or isinstance(value, bool | int | float | str | None) else object()


@stacked_form(nn.Linear)
class StackedLinear(nn.Module):
    """R linear layers as one batched product.

    The weight is kept as ``(R, D, out)``: its gradient comes out of the product in that order, and keeping a
    member's own order would copy all gradients once an update.

    Shape: ``(R, B, *, D)`` → ``(R, B, *, out)``.
    """

    def __init__(self, members: Sequence[nn.Linear], stream: Stream) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([m.weight.detach().T for m in members]))
        has_bias = members[0].bias is not None
        self.bias = nn.Parameter(torch.stack([m.bias.detach() for m in members])) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """y_r = x_r W_rᵀ + b_r."""
        rows = x.flatten(1, -2) if x.dim() > 3 else x
        if self.bias is None:
            y = torch.bmm(rows, self.weight)
        else:
            y = torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight)
        return y.view(*x.shape[:-1], -1) if x.dim() > 3 else y

    def member_state(self, r: int) -> dict[str, Tensor]:
        """The layer's state as member ``r`` has it."""
        state = {"weight": self.weight.detach()[r].T}
        return state if self.bias is None else {**state, "bias": self.bias.detach()[r]}


@stacked_form(nn.Flatten)
class StackedFlatten(nn.Module):
    """Flattens what the members flatten, behind the run axis."""

    def __init__(self, members: Sequence[nn.Flatten], stream: Stream) -> None:
        super().__init__()
        start, end = members[0].start_dim, members[0].end_dim
        self.start, self.end = (axis + 1 if axis >= 0 else axis for axis in (start, end))

    def forward(self, x: Tensor) -> Tensor:
        """``(R, B, *)`` → ``(R, B, D)`` by default."""
        return x.flatten(self.start, self.end)


@stacked_form(Dropout)
def stacked_dropout(members: Sequence[Dropout], stream: Stream) -> Dropout:
    """One dropout layer for all runs, with a probability a run where they differ."""
    dropout = Dropout(_common([float(m.p) for m in members]), members[0].setting)
    dropout.uniform.stream, dropout.uniform.site = stream, members[0].uniform.site
    return dropout


def _common(values: Sequence[float]) -> float | Tensor:
    """One number where all are equal, else one a run, ``(R, 1)``."""
    return values[0] if len(set(values)) == 1 else torch.tensor(values, dtype=torch.float64).view(-1, 1)


@stacked_form(nn.Sequential)
def stacked_sequential(members: Sequence[nn.Sequential], stream: Stream) -> nn.Sequential:
    """The stacked forms of the layers, one after the other, under the names they have."""
    stacked = nn.Sequential()
    for name, layer in _children(members, stream).items():
        stacked.add_module(name, layer)
    return stacked


def walked(members: Sequence[nn.Module], stream: Stream) -> nn.Module:
    """The form of a composite module: itself, with its children replaced by their stacked forms.

    Right for a module whose ``forward`` only hands tensors from child to child and combines them elementwise,
    such as a residual block: ``stacked_form(Block)(walked)``.

    Raises:
        ActlabError: when the module has parameters or buffers of its own.
    """
    first = members[0]
    if next(first.parameters(recurse=False), None) is not None or dict(first.named_buffers(recurse=False)):
        raise ActlabError(
            f"{type(first).__name__} has parameters of its own: give it a stacked form of its own"
        )
    stacked = copy.copy(first)
    # What a module lacks it holds as None, such as the shortcut of a block.
    stacked._modules = {**first._modules, **_children(members, stream)}
    return stacked


def _children(members: Sequence[nn.Module], stream: Stream) -> dict[str, nn.Module]:
    """The stacked form of each child, by name; a child with two names, such as a shared layer, stays one."""
    forms: dict[int, nn.Module] = {}
    found = {}
    for name, child in members[0]._modules.items():
        if child is not None:
            if id(child) not in forms:
                forms[id(child)] = stack([m.get_submodule(name) for m in members], stream)
            found[name] = forms[id(child)]
    return found


class PerMember(nn.Module):
    """Any modules, called member by member; each is the module that it is alone, with its own random numbers.

    So parameters, buffers that are replaced, and whatever else a module holds stay apart.
    """

    def __init__(self, members: Sequence[nn.Module], stream: Stream) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        for r, member in enumerate(members):
            streams.attach_like(member, stream.member(r))

    def forward(self, *inputs: Tensor) -> Tensor:
        """``(R, B, *)`` → ``(R, B, *)``; each member may overwrite what it is given."""
        parts = zip(*([part.clone() for part in x.unbind()] for x in inputs), strict=True)
        return torch.stack([member(*part) for member, part in zip(self.members, parts, strict=True)])

    def member_state(self, r: int) -> dict[str, Any]:
        """The module's state as member ``r`` has it."""
        return self.members[r].state_dict()


def reason_against(network: nn.Module, units: Sequence[nn.Module] = ()) -> str | None:
    """Why a network cannot be stacked, or None.

    What has no stacked form is called member by member; that is right for anything but saves nothing, so only
    units and small layers may be called so.

    Args:
        network: of one member.
        units: its activation modules.
    """
    if any(network is unit for unit in units) or activations.is_elementwise(network):
        return None
    form = form_of(network)
    if form is stacked_sequential or form is walked:
        if streams.seeds_torch(network, recurse=False):
            name = type(network).__name__
            return f"{name} may be random in a way of its own; declare 'stochastic = False' on the class if not"
        reasons = (reason_against(child, units) for child in network.children())
        return next((reason for reason in reasons if reason), None)
    large = any(p.dim() > 1 for p in network.parameters()) or any(network.children())
    if form is None and large:
        return f"{type(network).__name__} has no stacked form (actlab.stacking.stacked_form gives it one)"
    return None
