"""Compare activations in a user-defined network: a residual MLP at two widths.

A network is a module that actlab calls with a factory of activations, the number of outputs and the
shape of a sample. The study file ``own_network.yaml`` names it by its import path, so the shell
requires this folder on ``PYTHONPATH``. From the shell and from Python, where the folder of a script
is on the path already::

    PYTHONPATH=examples actlab study run examples/own_network.yaml --smoke
    python examples/own_network.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

import actlab
from actlab.stacking import stacked_form, walked

QUICK = True  # False: the whole study, 10 epochs of 4,000 digits with 10 seeds
STUDY = Path(__file__).with_suffix(".yaml")


class Block(nn.Module):
    """A residual block: x plus a branch of a linear layer, an activation and a linear layer."""

    stochastic = False  # draws no random numbers of its own

    def __init__(self, act: Callable[[int], nn.Module], width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(width, width), act(width), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of ``x``: ``(B, width)``, in a stack ``(R, B, width)``."""
        return x + self.branch(x)


# optional: seeds train as a stack; valid because `forward` only adds tensors
stacked_form(Block)(walked)


class ResidualMLP(nn.Sequential):
    """A linear layer, residual blocks, an activation and a linear layer.

    Args:
        act: factory of activations; each call, with the number of features, returns a new module
            for one site.
        num_classes: number of outputs K.
        input_shape: shape of one sample.
        width: number of features of every block.
        blocks: number of blocks.
    """

    def __init__(
        self,
        act: Callable[[int], nn.Module],
        num_classes: int,
        input_shape: Sequence[int],
        width: int = 64,
        blocks: int = 3,
    ) -> None:
        first, last = nn.Linear(prod(input_shape), width), nn.Linear(width, num_classes)
        super().__init__(
            nn.Flatten(), first, *[Block(act, width) for _ in range(blocks)], act(width), last
        )


def main() -> None:
    """Count the parameters of the network, run the study and print its table."""
    network = ResidualMLP(actlab.factory("gelu"), num_classes=10, input_shape=(1, 28, 28))
    print(
        network(torch.zeros(2, 1, 28, 28)).shape,
        sum(p.numel() for p in network.parameters()),
        "parameters",
    )
    print(actlab.run_study(STUDY, smoke=QUICK))


if __name__ == "__main__":  # training processes import this file
    main()
