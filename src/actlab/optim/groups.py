"""Parameter groups and their weight decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab.errors.messages import unknown
from actlab.validation import validated

Kind = Literal["weights", "biases", "embeddings", "gains", "shifts", "units"]
KINDS: tuple[Kind, ...] = (
    "weights",
    "biases",
    "embeddings",
    "gains",
    "shifts",
    "units",
)
# Their weights are gains, their biases shifts
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class L2:
    """The penalty λ·½Σw² or λ·Σw² of some kinds of parameters, as weight decay of the optimiser.

    An optimiser such as ``torch.optim.AdamW`` decouples decay from the gradient. Then λ is its
    decay: there is no penalty, and no ``train/penalised_loss``.

    Args:
        strength: λ, at least 0.
        half: whether the penalty includes the ½; without the ½ the optimiser's ``weight_decay`` is
            2λ.
        of: the kinds of decayed parameters; all others have no decay. See `kinds`.
    """

    @validated
    def __init__(
        self,
        strength: Annotated[float, Ge(0)],
        half: bool = True,
        of: Sequence[str] = ("weights",),
    ) -> None:
        for kind in of:
            if kind not in KINDS:
                raise unknown("kind of parameters", str(kind), KINDS)
        self.strength = strength
        self.half = half
        self.of = tuple(of)

    @property
    def weight_decay(self) -> float:
        """The optimiser's ``weight_decay``: the gradient of the penalty is ``weight_decay · w``."""
        # The derivative of ½λw² is λw, of λw² it is 2λw
        return self.strength if self.half else 2 * self.strength


def kinds(network: nn.Module, activations: Sequence[nn.Module] = ()) -> dict[str, Kind]:
    """Return the kind of each parameter of a network, by parameter name.

    - ``units``: parameters of activations
    - ``gains``, ``shifts``: parameters of normalisation layers
    - ``embeddings``: parameters of ``nn.Embedding`` and ``nn.EmbeddingBag``
    - ``biases``: other biases
    - ``weights``: all other parameters

    A tied parameter counts once, under the kind of its first name.

    Args:
        network: any module.
        activations: its activation modules.
    """
    # By identity, because an activation may be part of any module
    of_activations: set[int] = set()
    for module in activations:
        for parameter in module.parameters():
            of_activations.add(id(parameter))

    # A shared parameter is listed only under its first name.
    names = {name for name, _ in network.named_parameters()}

    kind_by_name: dict[str, Kind] = {}
    for path, module in network.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            full_name = f"{path}.{name}" if path else name
            if full_name not in names:
                continue
            # The parameters of an activation count as such in any layer.
            if id(parameter) in of_activations:
                kind_by_name[full_name] = "units"
            else:
                kind_by_name[full_name] = _kind_in(module, name)
    return kind_by_name


def _kind_in(module: nn.Module, name: str) -> Kind:
    """Return the kind of a parameter of a layer that is not an activation."""
    # ``bias``, ``in_proj_bias``, ``bias_hh_l0``
    is_bias = "bias" in name.split("_") or name.startswith("bias")
    # The layer decides before the name: the bias of a norm is a shift
    if isinstance(module, NORMS):
        return "shifts" if is_bias else "gains"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embeddings"
    return "biases" if is_bias else "weights"


def groups(
    names: Mapping[str, Kind], l2: L2 | None
) -> list[tuple[list[str], dict[str, Any]]]:
    """Return groups of parameter names with the optimiser settings of each group.

    Without a penalty there is one group. A penalty makes a decayed group and a group without decay,
    each if it is not empty.

    Args:
        names: the kind of each parameter, by name.
        l2: the penalty, if any.
    """
    # Groups differ only in their decay.
    if l2 is None:
        return [(list(names), {})]

    # Sort the names.
    decayed = []
    free = []
    for name, kind in names.items():
        if kind in l2.of:
            decayed.append(name)
        else:
            free.append(name)

    # Leave out an empty group.
    parts = []
    if decayed:
        parts.append((decayed, {"weight_decay": l2.weight_decay}))
    if free:
        parts.append((free, {"weight_decay": 0.0}))
    return parts


@torch.no_grad()
def penalty(optimizer: Optimizer) -> Tensor | float:
    """Return ½·weight_decay·Σw² of an optimiser's groups, whose gradient is the decay term."""
    total: Tensor | float = 0.0
    for group in optimizer.param_groups:
        if group["weight_decay"]:
            # One call for all parameters, as in clipping
            norms = torch._foreach_norm(group["params"])
            squares = torch.stack(norms).square().sum()
            total = total + group["weight_decay"] / 2 * squares
    return total
