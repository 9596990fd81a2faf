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
KINDS: tuple[Kind, ...] = ("weights", "biases", "embeddings", "gains", "shifts", "units")
NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class L2:
    """The penalty λ·½Σw² or λ·Σw² of some kinds of parameters, applied as weight decay by the optimiser.

    With an optimiser that decouples decay from the gradient, such as ``torch.optim.AdamW``, λ is
    that decay: no penalty, and no ``train/penalised_loss``.

    Args:
        strength: λ, at least 0.
        half: whether the penalty includes the ½; without the ½ the optimiser's ``weight_decay`` is
            2λ.
        of: the kinds of decayed parameters; all others have no decay. See `kinds`.
    """

    @validated
    def __init__(
        self, strength: Annotated[float, Ge(0)], half: bool = True, of: Sequence[str] = ("weights",)
    ) -> None:
        for kind in of:
            if kind not in KINDS:
                raise unknown("kind of parameters", str(kind), KINDS)
        self.strength, self.half, self.of = strength, half, tuple(of)

    @property
    def weight_decay(self) -> float:
        """The optimiser's ``weight_decay``: the gradient of the penalty is ``weight_decay · w``."""
        return self.strength if self.half else 2 * self.strength


def kinds(network: nn.Module, units: Sequence[nn.Module] = ()) -> dict[str, Kind]:
    """Return the kind of each parameter of a network with the given activation modules, by parameter name.

    ``units`` for parameters of activations, ``gains`` and ``shifts`` for those of normalisation
    layers, ``embeddings`` for those of ``nn.Embedding`` and ``nn.EmbeddingBag``, ``biases`` for
    other biases, ``weights`` for all other parameters. A tied parameter counts once, under the kind
    of its first name.
    """
    of_units = {id(p) for unit in units for p in unit.parameters()}
    # Shared parameters: the first name only
    names = {name for name, _ in network.named_parameters()}
    by_name: dict[str, Kind] = {}
    for path, module in network.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            kind: Kind = (
                "biases" if "bias" in name.split("_") or name.startswith("bias") else "weights"
            )
            if id(parameter) in of_units:
                kind = "units"
            elif isinstance(module, NORMS):
                kind = "shifts" if kind == "biases" else "gains"
            elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
                kind = "embeddings"
            by_name[f"{path}.{name}" if path else name] = kind
    return {name: kind for name, kind in by_name.items() if name in names}


def groups(names: Mapping[str, Kind], l2: L2 | None) -> list[tuple[list[str], dict[str, Any]]]:
    """Return groups of parameter names, given with their kinds, and the optimiser settings of each group.

    Without a penalty there is one group, else a penalised and an unpenalised one, if not empty.
    """
    if l2 is None:
        return [(list(names), {})]
    decayed = [name for name, kind in names.items() if kind in l2.of]
    free = [name for name in names if name not in set(decayed)]
    parts = ((decayed, l2.weight_decay), (free, 0.0))
    return [(part, {"weight_decay": decay}) for part, decay in parts if part]


@torch.no_grad()
def penalty(optimizer: Optimizer) -> Tensor | float:
    """Return ½·weight_decay·Σw², whose gradient is the decay term, summed over an optimiser's groups."""
    decayed = [group for group in optimizer.param_groups if group["weight_decay"]]
    squares = (
        torch.stack(torch._foreach_norm(group["params"])).square().sum() for group in decayed
    )
    return sum(
        (group["weight_decay"] / 2 * s for group, s in zip(decayed, squares, strict=True)),
        start=0.0,
    )
