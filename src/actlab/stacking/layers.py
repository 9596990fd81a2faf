"""Stacked forms: R layers of one type as one layer whose tensors have a leading run axis.

A layer type in the table has a batched form: a linear layer becomes one ``baddbmm``. An elementwise
activation without parameters is applied once to all members. Any other activation or small module
is called member by member. A network with any other module has no form (`reason_against`):
`actlab.stacking.mapping` maps it.

What a form computes for a member is equal in every bit, however many members there are. Kernels
compute whole vectors in another way than the rest of a tensor, and matrices in another way by their
size and their address. So each member's numbers begin and end on whole vectors.

Shapes: ``R`` runs, ``B`` batch, ``*`` further axes, ``D`` features.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actlab import activations
from actlab.config.values import mapped
from actlab.networks import GPT, Dropout
from actlab.networks.gpt import Attention, DecoderBlock, FeedForward
from actlab.networks.residual_mlp import MLPBlock
from actlab.random import seeding_hooks, streams
from actlab.random.streams import Stream
from actlab.runtime.modules import plain_attributes

Form = Callable[[Sequence[Any], Stream], nn.Module]
_Form = TypeVar("_Form", bound=Form)
_FORMS: dict[type[nn.Module], tuple[Form, Callable[[Any], bool]]] = {}
WHOLE = 64  # numbers: whole vectors, two at a time, of any data type and processor
ALIGNED = 16  # numbers of float32 in 64 bytes, the longest vector
# Multiplications: torch computes a batch of no more by another backend.
SMALL_PRODUCT = 16**3
# A subclass that overrides one needs a form of its own.
_METHODS = ("forward", "__call__", "train", "_apply")


def stacked_form(
    layer: type[nn.Module], applies: Callable[[Any], bool] = lambda layer: True
) -> Callable[[_Form], _Form]:
    """Register the decorated class or function as the builder of the stacked form of a layer type.

    The builder is called with the R members and the stack's stream; parameters and buffers of the
    form have the same names as in a member. It also applies to subclasses that do not override
    ``forward``, ``__call__``, ``train`` or ``_apply``, but only to layers for which ``applies``
    returns True::

        @stacked_form(Scale)
        class StackedScale(nn.Module):
            def __init__(self, members, stream):
                super().__init__()
                self.gain = nn.Parameter(torch.stack([m.gain.detach() for m in members]))  # (R, D)

            def forward(self, x):
                return x * self.gain.unsqueeze(1)  # (R, B, D)
    """

    def enter(form: _Form) -> _Form:
        _FORMS[layer] = form, applies
        return form

    return enter


def form_of(layer: nn.Module) -> Form | None:
    """Return the builder of a layer's stacked form; None without a form for it."""
    layer_type = type(layer)
    for kind in layer_type.__mro__:
        if kind not in _FORMS:
            continue
        # A form computes what these methods of its class compute.
        if any(
            getattr(layer_type, name) is not getattr(kind, name) for name in _METHODS
        ):
            continue

        # The first form decides; no base class is looked at any more. `walked`, for
        # composite modules, stacks only children, not tensors of the module itself.
        form, applies = _FORMS[kind]
        tensors = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
        if (form is walked and tensors) or not applies(layer):
            return None
        return form
    return None


def stack(members: Sequence[nn.Module], stream: Stream) -> nn.Module:
    """Return the stacked form of R modules with the same structure; they become part of it."""
    member = members[0]
    form = form_of(member)
    if form is not None:
        return form(members, stream)

    # Call any other module once if this is the same, else member by member.
    if acts_on_all_at_once(members):
        seeding_hooks.attach_like(member, stream)
        return Elementwise(member, stream)
    return PerMember(members, stream)


def acts_on_all_at_once(members: Sequence[nn.Module]) -> bool:
    """Return whether one member serves all runs.

    Such members are elementwise, have equal settings, and are random only through `Uniform`.
    """
    if not activations.is_elementwise(members[0]) or seeding_hooks.seeded(members[0]):
        return False
    settings = _settings(members[0])
    return all(_settings(member) == settings for member in members)


def _settings(module: nn.Module) -> list[Any]:
    if isinstance(module, streams.Uniform):
        return []
    attributes = mapped(plain_attributes(module), _comparable)
    settings = [type(module), attributes]
    for child in module.children():
        settings.append(_settings(child))
    return settings


def _comparable(value: Any) -> Any:
    if callable(value) or isinstance(value, bool | int | float | str | None):
        return value
    # Values of other types may not be comparable; the object equals nothing else.
    return object()


@cache
def _added(samples: int, features: int, width: int) -> tuple[int, int]:
    """Return how many rows and columns to add, so that each matrix begins at an aligned address."""
    columns = -width % (ALIGNED // math.gcd(ALIGNED, features))
    padded_width = width + columns

    # The rows of a matrix must be a multiple of a number, and enough for the usual
    # backend.
    multiple = ALIGNED // math.gcd(ALIGNED, features, padded_width)
    least = SMALL_PRODUCT // (features * padded_width) + 1
    aligned_least = least + -least % multiple
    return max(-samples % multiple, aligned_least - samples), columns


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W + b of each run, of which no bit depends on the number of runs, with any backend.

    Shapes: ``(R, B, D)`` × ``(R, D, out)`` + ``(R, 1, out)`` → ``(R, B, out)``.
    """
    # Some shapes already give the same bits for any R
    runs, samples, features = x.shape
    width = weight.shape[2]
    rows, columns = _added(samples, features, width)
    is_thin = 1 in (features, width + columns)
    if not (rows or columns or is_thin):
        return _multiplied(x, weight, bias)

    # Add rows and columns of zeros.
    if columns:
        weight = F.pad(weight, (0, columns))
        if bias is not None:
            bias = F.pad(bias, (0, columns))
    if rows:
        x = F.pad(x, (0, 0, 0, rows))

    # Double a lone product of a matrix and a vector, which has a kernel of its own.
    # Several are expanded, too, because gradients are added up where tensors are: in an
    # equal order then.
    if is_thin:
        several = max(runs, 2)
        x = x.expand(several, -1, -1)
        weight = weight.expand(several, -1, -1)
        if bias is not None:
            bias = bias.expand(several, -1, -1)
    return _multiplied(x, weight, bias)[:runs, :samples, :width].contiguous()


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return torch.bmm(x, weight)
    return torch.baddbmm(bias, x, weight)


def stacked_tensor(members: Sequence[nn.Module], name: str) -> Tensor:
    """Return the parameter or buffer of a name of all members, ``(R, *)``, without graph."""
    return torch.stack([getattr(member, name).detach() for member in members])


@stacked_form(nn.Linear)
class StackedLinear(nn.Module):
    """R linear layers as one batched matrix product: ``(R, B, *, D)`` → ``(R, B, *, out)``.

    The weight has the shape ``(R, D, out)`` and the bias ``(R, 1, out)``, in which the product
    computes their gradients: no copy and no view in every update.
    """

    def __init__(self, members: Sequence[nn.Linear], stream: Stream) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([m.weight.detach().T for m in members]))
        self.bias: nn.Parameter | None = None
        if members[0].bias is not None:
            self.bias = nn.Parameter(stacked_tensor(members, "bias").unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        """y_r = x_r W_rᵀ + b_r."""
        if x.dim() == 3:
            return product(x, self.weight, self.bias)
        return product(x.flatten(1, -2), self.weight, self.bias).view(*x.shape[:-1], -1)

    def member_state(self, r: int) -> dict[str, Tensor]:
        """Return the state dict of member ``r``."""
        state = {"weight": self.weight.detach()[r].T}
        if self.bias is not None:
            state["bias"] = self.bias.detach()[r, 0]
        return state


def _is_plain(layer: nn.Embedding) -> bool:
    """Return whether an embedding has only dense rows, which no option treats differently."""
    is_bounded = layer.padding_idx is not None or layer.max_norm is not None
    return not (is_bounded or layer.sparse or layer.scale_grad_by_freq)


@stacked_form(nn.Embedding, _is_plain)
class StackedEmbedding(nn.Module):
    """R embeddings as one look-up in their joint table: ``(R, B, *)`` → ``(R, B, *, D)``."""

    def __init__(self, members: Sequence[nn.Embedding], stream: Stream) -> None:
        super().__init__()
        self.weight = nn.Parameter(stacked_tensor(members, "weight"))

    def forward(self, index: Tensor) -> Tensor:
        """y_r = row r·V + index of the table ``(R·V, D)``."""
        runs, rows, _ = self.weight.shape
        axes = [1] * (index.dim() - 1)
        starts = torch.arange(0, runs * rows, rows, device=index.device).view(-1, *axes)
        # Any other index would be a row of another run.
        is_valid = (index >= 0) & (index < rows)
        index_in_table = torch.where(is_valid, index + starts, -1)
        return F.embedding(index_in_table, self.weight.flatten(0, 1))


@stacked_form(nn.LayerNorm)
class StackedLayerNorm(nn.Module):
    """R layers normalise the last axes at once, each with its gain and bias: ``(R, B, *, D)``."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self, members: Sequence[nn.LayerNorm | nn.RMSNorm], stream: Stream
    ) -> None:
        super().__init__()
        self.shape = list(members[0].normalized_shape)
        self.eps = members[0].eps
        for name in ("weight", "bias"):
            parameter = None
            if getattr(members[0], name, None) is not None:
                parameter = nn.Parameter(stacked_tensor(members, name))
            self.register_parameter(name, parameter)

    def normalised(self, x: Tensor) -> Tensor:
        """Return (x − mean) / √(variance + eps)."""
        assert self.eps is not None
        return F.layer_norm(x, self.shape, eps=self.eps)

    def forward(self, x: Tensor) -> Tensor:
        """y_r = normalised x_r ⊙ gain_r + bias_r."""
        # Gain and bias of a run broadcast over its samples.
        axes = [1] * (x.dim() - 1 - len(self.shape))
        y = self.normalised(x)
        if self.weight is not None:
            y = y * self.weight.view(-1, *axes, *self.shape)
        if self.bias is not None:
            y = y + self.bias.view(-1, *axes, *self.shape)
        return y


@stacked_form(nn.RMSNorm)
class StackedRMSNorm(StackedLayerNorm):
    """The same without means and biases."""

    def normalised(self, x: Tensor) -> Tensor:
        """Return x / √(mean square + eps)."""
        return F.rms_norm(x, self.shape, eps=self.eps)


@stacked_form(nn.Flatten)
class StackedFlatten(nn.Module):
    """Flatten the same axes as the members, counted behind the run axis."""

    def __init__(self, members: Sequence[nn.Flatten], stream: Stream) -> None:
        super().__init__()
        self.start = _behind_run_axis(members[0].start_dim)
        self.end = _behind_run_axis(members[0].end_dim)

    def forward(self, x: Tensor) -> Tensor:
        """``(R, B, *)`` → ``(R, B, D)`` by default."""
        return x.flatten(self.start, self.end)


def _behind_run_axis(axis: int) -> int:
    return axis + 1 if axis >= 0 else axis


@stacked_form(Dropout)
def stacked_dropout(members: Sequence[Dropout], stream: Stream) -> Dropout:
    """Return one dropout layer for all runs, with one probability per run if they differ."""
    # Equal probabilities are a single number, as in a member.
    rates = [float(m.p) for m in members]
    p: float | Tensor = rates[0]
    if len(set(rates)) > 1:
        p = torch.tensor(rates, dtype=torch.float64).view(-1, 1)

    # It draws at the site of the members, for all runs.
    dropout = Dropout(p, members[0].setting)
    dropout.uniform.stream = stream
    dropout.uniform.site = members[0].uniform.site
    return dropout


@stacked_form(GPT)
@stacked_form(DecoderBlock)
@stacked_form(Attention)
@stacked_form(FeedForward)
@stacked_form(MLPBlock)
@stacked_form(nn.Sequential)
def walked(members: Sequence[nn.Module], stream: Stream) -> nn.Module:
    """Return a copy of a composite module with its children replaced by their stacked forms.

    Valid for a module whose ``forward`` only passes tensors from child to child and combines them
    elementwise, such as a residual block: ``stacked_form(Block)(walked)``. A module that itself has
    parameters or buffers has no form by it: ``x + self.position`` would add each run's row of
    ``position`` to a sample where R = B.
    """
    children = members[0]._modules
    # All but the children is as in the first member.
    stacked = copy.copy(members[0])
    stacked._modules = dict(children)
    forms: dict[nn.Module, nn.Module] = {}  # a child with two names has one form
    for name, child in children.items():
        if child is None:  # such as the shortcut of a block
            continue
        if child not in forms:
            forms[child] = stack([m.get_submodule(name) for m in members], stream)
        stacked._modules[name] = forms[child]
    return stacked


class Elementwise(nn.Module):
    """Call one elementwise activation for all runs, with each run's numbers in whole vectors."""

    def __init__(self, activation: nn.Module, stream: Stream) -> None:
        super().__init__()
        self.activation = activation
        self.stream = stream

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(R, *)`` to ``(R, *)``."""
        numbers = x.shape[1:].numel()
        padding = -numbers % WHOLE
        # On several devices, a site's numbers begin where the part of the device before
        # ends.
        if not padding or self.stream.part != (0, 1):
            y: Tensor = self.activation(x)
            return y

        # Pad, and cut off the padding.
        rows = F.pad(x.flatten(1), (0, padding))
        y = self.activation(rows)
        return y[:, :numbers].reshape(x.shape)


class PerMember(nn.Module):
    """Call R arbitrary modules member by member.

    Their parameters, buffers and random numbers stay separate.
    """

    def __init__(self, members: Sequence[nn.Module], stream: Stream) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        for r, member in enumerate(members):
            seeding_hooks.attach_like(member, streams.MemberStream(stream, r))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Map ``(R, B, *)`` to ``(R, B, *)``; a member may overwrite the copy of its inputs."""
        inputs_by_member = zip(*[x.unbind() for x in inputs], strict=True)
        outputs = []
        for member, parts in zip(self.members, inputs_by_member, strict=True):
            outputs.append(member(*[part.clone() for part in parts]))
        return torch.stack(outputs)

    def member_state(self, r: int) -> dict[str, Any]:
        """Return the state dict of member ``r``."""
        return self.members[r].state_dict()


def reason_against(
    network: nn.Module, activation_modules: Sequence[nn.Module] = ()
) -> str | None:
    """Return why the network of one member has no stacked form, or None.

    A module without a stacked form is called member by member, which saves no time: allowed for
    activations and small layers.
    """
    # Activations need no form: member by member is allowed
    is_activation = any(network is activation for activation in activation_modules)
    if is_activation or activations.is_elementwise(network):
        return None

    # A small module without a form is called member by member.
    name = type(network).__name__
    form = form_of(network)
    if form is None:
        is_large = any(p.dim() > 1 for p in network.parameters()) or any(
            network.children()
        )
        if is_large:
            return f"{name} has no stacked form (register one with actlab.stacking.stacked_form)"
    if form is not walked:
        return None

    # Look at the module itself, then at its children.
    if any(part is network for part, _ in seeding_hooks.seeded(network)):
        return (
            f"{name} may draw random numbers; declare 'stochastic = False' on the class if it does "
            "not"
        )
    # A tied weight is a parameter of two modules.
    tensors: list[nn.Parameter] = []
    for part in network.modules():
        tensors += part.parameters(recurse=False)
    if len(set(tensors)) < len(tensors):
        return f"{name} has tied weights, which stacked forms would separate"
    for child in network.children():
        reason = reason_against(child, activation_modules)
        if reason:
            return reason
    return None
