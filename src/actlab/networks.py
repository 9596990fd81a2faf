"""Networks of the papers' experiments and their initialisation rules.

A network is built by ``network(act, num_classes, input_shape, …)``: it calls ``act``, a factory of units, at
every site and never sees a name. Every hidden layer is followed by its unit and then by dropout; ``dropout``
is always the drop probability (the papers speak of the keep probability).

Shapes: ``B`` batch, ``D`` features, ``K`` classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from actlab.errors import ActlabError, unknown
from actlab.streams import Uniform

ActivationFactory = Callable[[], nn.Module]


class Dropout(nn.Module):
    """Inverted dropout: ``x · m / (1 − p)``, ``m ~ Bernoulli(1 − p)``; in evaluation ``x``, its expectation.

    The masks come from a `Uniform` source, so a run draws the same masks alone or in a stack.

    Args:
        p: drop probability in [0, 1), or a tensor of one a run, ``(R, 1)``.

    Raises:
        ActlabError: when ``p`` is outside [0, 1).
    """

    def __init__(self, p: float | Tensor) -> None:
        super().__init__()
        if not 0 <= float(torch.as_tensor(p).min()) <= float(torch.as_tensor(p).max()) < 1:
            raise ActlabError(f"dropout {p!r} is not a drop probability: give a number in [0, 1)")
        self.p: float | Tensor
        if isinstance(p, Tensor):
            self.register_buffer("p", p, persistent=False)  # goes to the device with its network
        else:
            self.p = p
        self.uniform = Uniform()

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        if not self.training:
            return x
        return x * self.uniform.keep(x, self.p)

    def extra_repr(self) -> str:
        """The drop probability, for printing."""
        return f"p={self.p}"


class MLP(nn.Sequential):
    """Fully connected classifier: (linear → unit → dropout) per hidden layer, then a linear layer of logits.

    The default is the MNIST classifier 784–8×128–10 of GELU §3.1 with 217,354 parameters.

    Args:
        act: factory of units, called once per hidden layer.
        num_classes: K, number of logits.
        input_shape: shape of one sample without the batch; its product is D.
        hidden: widths of the hidden layers; empty gives a linear classifier.
        dropout: drop probability after every hidden unit; at 0 no dropout module is built.
        init: a name of `INIT_RULES`.

    Shape: ``(B, *)`` with D values a sample → ``(B, K)``.
    """

    def __init__(
        self,
        act: ActivationFactory,
        num_classes: int,
        input_shape: Sequence[int] = (1, 28, 28),
        hidden: Sequence[int] = (128,) * 8,
        dropout: float = 0.0,
        init: str = "unit_norm_rows",
    ) -> None:
        super().__init__(nn.Flatten())
        in_features = math.prod(input_shape)
        for fan_in, fan_out in pairwise([in_features, *hidden]):
            self.extend([nn.Linear(fan_in, fan_out), act()])
            if dropout:
                self.append(Dropout(dropout))
        self.append(nn.Linear([in_features, *hidden][-1], num_classes))
        initialise(self, init)


def unit_norm_rows_(weight: Tensor) -> Tensor:
    """W ~ N(0, 1), then each output unit's incoming weight vector scaled to norm 1 (GELU §3.1)."""
    rows = nn.init.normal_(weight).flatten(1)
    return weight.div_(rows.norm(dim=1).view(-1, *[1] * (weight.ndim - 1)))


def he_(weight: Tensor) -> Tensor:
    """W ~ N(0, 2 / fan_in) (He et al. 2015), for every layer and unit alike."""
    return nn.init.normal_(weight, std=math.sqrt(2 / weight[0].numel()))


def glorot_(weight: Tensor) -> Tensor:
    """W ~ U(−a, a), a = √(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    return nn.init.xavier_uniform_(weight)


INIT_RULES: dict[str, Callable[[Tensor], Tensor]] = {
    "unit_norm_rows": unit_norm_rows_,
    "he": he_,
    "glorot": glorot_,
}


@torch.no_grad()
def initialise(network: nn.Module, rule: str) -> None:
    """Draw every linear and convolutional weight by a rule and set the biases to 0, in place.

    Draws from torch's global generator; the task seeds it from the run's seed.

    Raises:
        ActlabError: when ``rule`` is not in `INIT_RULES`.
    """
    if rule not in INIT_RULES:
        raise unknown("init rule", rule, INIT_RULES)
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            INIT_RULES[rule](layer.weight)
            if layer.bias is not None:
                layer.bias.zero_()
