"""The convolutional networks of the ELU paper for CIFAR: stacks of convolutions, each followed by a pool.

Shapes: ``B`` batch, ``C`` channels, ``K`` classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from actlab.errors import ActlabError
from actlab.networks.dropout import Dropout
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory

Stack = Sequence[Sequence[int]]  # of (layers, units, size of the kernel)
# §4.2, Figs 4 and 5: 1,669,028 parameters with K = 100.
LAYERS_11: tuple[Stack, ...] = (
    ((1, 192, 5),),
    ((1, 192, 1), (1, 240, 3)),
    ((1, 240, 1), (1, 260, 2)),
    ((1, 260, 1), (1, 280, 2)),
    ((1, 280, 1), (1, 300, 2)),
    ((1, 300, 1),),
    ((1, 100, 1),),
)


class ConvStacks(nn.Sequential):
    """Stacks of convolutions, each (convolution → unit), with a max pool 2×2 and dropout after each stack.

    ELU §4.2 and §4.3. Maps keep their size within a stack; once they are 1×1 there is no pool. The last layer
    gives the logits: it has K units, no activation and no batch norm.

    Args:
        act: factory of units, called once per convolution but the last.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        stacks: for each stack its parts (layers, units, size of the kernel); by default those of §4.2.
        dropout: drop probability after the last layer of each stack; at 0 no dropout module is built. Whether
            it stands before or behind the pool is not stated; here behind, as in the GELU paper's network.
        inner_dropout: whether the other layers of a stack have its dropout too. Its schedule is of its own,
            ``schedules: inner_dropout``, so that it may begin late (§4.3).
        batch_norm: between convolution and unit; then no such layer has a bias.
        init: a name of `INIT_RULES`.
        channels_last: keep maps in the order B, H, W, C: the same network, another speed.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.

    Raises:
        ActlabError: when there is not one dropout a stack, or the maps that the last stack gives are not 1×1.
    """

    stackable = ("dropout",)

    def __init__(
        self,
        act: ActivationFactory,
        num_classes: int,
        input_shape: Sequence[int] = (3, 32, 32),
        stacks: Sequence[Stack] = LAYERS_11,
        dropout: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.0),
        inner_dropout: bool = False,
        batch_norm: bool = False,
        init: str = "he",
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        if len(dropout) != len(stacks):
            raise ActlabError(f"{len(dropout)} dropouts for {len(stacks)} stacks: give one a stack")
        fan_in, *place = input_shape
        for number, (stack, p) in enumerate(zip(stacks, dropout, strict=True), 1):
            layers = [(units, size) for count, units, size in stack for _ in range(count)]
            for left, (units, size) in zip(range(len(layers) - 1, -1, -1), layers, strict=True):
                is_last = number == len(stacks) and not left
                fan_out = num_classes if is_last else units
                normed = batch_norm and not is_last
                if size % 2 == 0:  # an even kernel keeps the size of the map by one more row and column behind
                    self.append(nn.ZeroPad2d((size // 2 - 1, size // 2, size // 2 - 1, size // 2)))
                padding = size // 2 if size % 2 else 0
                self.append(nn.Conv2d(fan_in, fan_out, size, padding=padding, bias=not normed))
                if normed:
                    self.append(nn.BatchNorm2d(fan_out))
                if not is_last:
                    self.append(act())
                if left and inner_dropout and p:
                    self.append(Dropout(p, setting="inner_dropout"))
                fan_in = fan_out
            if min(place) > 1:
                self.append(nn.MaxPool2d(2))
                place = [side // 2 for side in place]
            if p:
                self.append(Dropout(p))
        if max(place) > 1:
            raise ActlabError(f"maps of {'×'.join(map(str, place))} after the last stack: give more stacks")
        self.append(nn.Flatten())
        initialise(self, init)
        if channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
