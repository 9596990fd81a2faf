"""A decoder of bytes or other tokens, plain or gated.

Shapes: ``R`` runs of a stack, an axis that a single network lacks; ``B`` batch, ``T`` tokens, ``D``
width, ``H`` heads, ``K`` vocabulary.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.networks.init import generator_of_layer, outside_activations
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated

# As in GPT-2
EMBEDDING_STD = 0.02


class Attention(nn.Module):
    """Causal self-attention of H heads, without biases.

    One projection computes queries, keys and values.

    Shape: ``(R, B, T, D)`` → ``(R, B, T, D)``.
    """

    stochastic = False
    multiplies_activations = True  # in many small products, which oneDNN starts slowly

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """softmax(q kᵀ / √(D/H)) v of each head, over the present and earlier tokens."""
        # Four axes are fast on the CPU too.
        heads = self.qkv(x).unflatten(-1, (3, self.heads, -1)).flatten(0, -5)
        q, k, v = (part.transpose(1, 2) for part in heads.unbind(2))  # (R·B, H, T, D/H)

        # Mix the values, and join the heads.
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y: Tensor = self.out(mixed.transpose(1, 2).reshape(x.shape))
        return y


class FeedForward(nn.Module):
    """``down(act(up x))``, or gated, ``down(act(gate x) ⊙ up x)``, without biases.

    The activation gets rows ``(R, B·T, hidden)``, so channels are in dim 1 of the rows of one run.
    Source of the gated form: Shazeer, arXiv 2002.05202.

    Shape: ``(R, B, T, D)`` → ``(R, B, T, D)``.
    """

    stochastic = False

    def __init__(
        self, act: ActivationFactory, width: int, hidden: int, gated: bool
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False) if gated else None
        self.up = nn.Linear(width, hidden, bias=False)
        self.act = activation(act, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mapped tokens."""
        # One matrix product for all tokens of a run
        rows = x.flatten(-3, -2)
        up: Tensor = self.up(rows)
        hidden = self.act(up) if self.gate is None else self.act(self.gate(rows)) * up
        y: Tensor = self.down(hidden)
        return y.view(x.shape)


class DecoderBlock(nn.Module):
    """``x + attention(norm x)``, then ``x + feed_forward(norm x)``.

    Shape: ``(R, B, T, D)`` → ``(R, B, T, D)``.
    """

    stochastic = False

    def __init__(
        self, act: ActivationFactory, width: int, heads: int, hidden: int, gated: bool
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(act, width, hidden, gated)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both branches and their inputs."""
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return y


class GPT(nn.Module):
    """A pre-norm decoder with learnt positions and an untied head, without dropout.

    No linear layer has a bias, LayerNorms have gains and biases. Hidden layers have 4D units. Gated
    hidden layers have ⌊8D/3⌋ units, rounded down to a multiple of 8, so that both forms have nearly
    as many parameters: by default, for a context of 64 bytes, 135,808 and 134,784.

    Args:
        act: factory of activations, called once per block.
        num_classes: K, size of the vocabulary and number of logits.
        input_shape: (T,), the longest context.
        width: D.
        blocks: number of blocks.
        heads: H, a divisor of D.
        gated: whether the hidden layers are gated.
        init: standard deviation of the initial weights of all linear layers, or ``fan_in`` for
            1/√fan_in. It is divided by √(2·blocks) in layers whose outputs are added to the
            residual stream. Embeddings have 0.02. Equal layers of both forms get equal weights in
            runs of one seed.

    Raises:
        ActlabError: if heads do not divide the width, or inputs are not tokens.

    Shape: tokens int64 ``(R, B, T)`` → ``(R, B, T, K)``.
    """

    stochastic = False

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (64,),
        width: int = 64,
        blocks: int = 2,
        heads: int = 2,
        gated: bool = False,
        init: Annotated[float, Ge(0)] | Literal["fan_in"] = "fan_in",
    ) -> None:
        super().__init__()
        # Positions are numbered along one axis.
        if len(input_shape) != 1:
            raise ActlabError(
                f"input_shape: expected tokens (T,), got {tuple(input_shape)}. Use text as data."
            )
        if width < 8 or heads < 1 or width % heads:
            raise ActlabError(
                f"width: expected a multiple of heads ({heads}), at least 8, got {width}"
            )

        # Gated layers have ⌊8D/3⌋ units, rounded down to a multiple of 8.
        hidden = 4 * width
        if gated:
            hidden = 8 * width // 3 // 8 * 8

        # Tokens and positions are added.
        self.tokens = nn.Embedding(num_classes, width)
        self.positions = nn.Embedding(input_shape[0], width)
        self.blocks = nn.Sequential()
        for _ in range(blocks):
            self.blocks.append(DecoderBlock(act, width, heads, hidden, gated))
        # Logits of the next token
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes, bias=False)
        self._initialise(init)

    @torch.no_grad()
    def _initialise(self, init: float | str) -> None:
        """Draw the weights of embeddings and linear layers, each by its name."""
        for name, layer in outside_activations(self):
            if isinstance(layer, nn.Embedding):
                std = EMBEDDING_STD
            elif isinstance(layer, nn.Linear):
                std = layer.in_features**-0.5 if isinstance(init, str) else init
                if name.endswith(("out", "down")):  # a branch's last layer
                    # The sum of all branches then keeps its scale.
                    std /= math.sqrt(2 * len(self.blocks))
            else:
                continue
            layer.weight.normal_(std=std, generator=generator_of_layer("weights", name))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each next token."""
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        positions = positions.expand(*tokens.shape[:-2], 1, -1)
        # (R, B, T, D) + (R, 1, T, D)
        x = self.tokens(tokens) + self.positions(positions)
        x = self.blocks(x)
        logits: Tensor = self.head(self.norm(x))
        return logits
