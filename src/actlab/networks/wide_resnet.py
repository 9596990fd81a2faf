"""The wide residual network for CIFAR-100, with the blocks that the GELU paper compares.

Shapes: ``B`` batch, ``C`` channels, ``H W`` map, ``K`` classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from actlab.errors import ActlabError, unknown
from actlab.networks.dropout import Dropout
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory

STEM = 16  # channels
WIDTHS = (16, 32, 64)  # of the stages, before they are widened


class Block(nn.Module):
    """A residual block: ``branch(y) + shortcut(y)`` of ``y = before(x)``, and no unit after the sum.

    Where the shape stays there is no shortcut layer, and the sum is ``branch(y) + x``.

    Args:
        before: what comes before the first convolution.
        branch: the rest, from the first convolution on.
        shortcut: a 1×1 convolution, or None.

    Shape: ``(B, C, H, W)`` → ``(B, C', H / stride, W / stride)``.
    """

    stochastic = False  # what is random in it are its units and dropout

    def __init__(self, before: nn.Sequential, branch: nn.Sequential, shortcut: nn.Conv2d | None) -> None:
        super().__init__()
        self.before, self.branch, self.shortcut = before, branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        y: Tensor = self.before(x)
        branch: Tensor = self.branch(y)
        return branch + (x if self.shortcut is None else self.shortcut(y))


class WideResNet(nn.Sequential):
    """Stem, three stages of residual blocks of ever smaller maps, head (Zagoruyko & Komodakis 2016).

    By default that of GELU §3.5, CIFAR-100: 40-4, six blocks a stage, widths 64, 128, 256, 8,972,884
    parameters. Its stem is convolution → batch norm → unit → batch norm, or the convolution alone where the
    blocks are the original ones; its ``blocks`` are all residual blocks in order; its head is batch norm → unit
    → mean over the map → dense. Shortcuts are drawn by Glorot's rule, the dense layer by He's with gain 1, all
    other layers by He's.

    Args:
        act: factory of units, called once per site.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        depth: 4 + 6 × blocks a stage.
        widen: what the widths 16, 32, 64 of the stages are multiplied with.
        dropout: drop probability between the convolutions of a block; at 0 no dropout module is built.
        block: a name of `BLOCKS`.
        channels_last: keep maps in the order B, H, W, C: the same network, another speed.

    Raises:
        ActlabError: for a depth that is not 4 + 6n, or an unknown block.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.
    """

    stackable = ("dropout",)

    def __init__(
        self,
        act: ActivationFactory,
        num_classes: int,
        input_shape: Sequence[int] = (3, 32, 32),
        depth: int = 40,
        widen: int = 4,
        dropout: float = 0.3,
        block: str = "paper",
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        if block not in BLOCKS:
            raise unknown("block", block, BLOCKS)
        if depth < 10 or (depth - 4) % 6:
            raise ActlabError(f"depth {depth} of a wide residual network: give 4 + 6n, such as 10, 16 or 40")
        self.stem = stem(act, input_shape[0], plain=block == "original")
        self.blocks = nn.Sequential()
        fan_in = STEM
        for stage, width in enumerate(WIDTHS):
            for number in range((depth - 4) // 6):
                stride = 2 if stage > 0 and number == 0 else 1
                self.blocks.append(BLOCKS[block](act, fan_in, width * widen, stride, dropout))
                fan_in = width * widen
        dense = nn.Linear(fan_in, num_classes)
        self.head = nn.Sequential(
            *(nn.BatchNorm2d(fan_in), act(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense)
        )
        shortcuts = [b.shortcut for b in self.blocks if isinstance(b, Block) and b.shortcut is not None]
        initialise(self, "he", {dense: "he_gain_1", **dict.fromkeys(shortcuts, "glorot")})
        if channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def stem(act: ActivationFactory, channels: int, plain: bool) -> nn.Sequential:
    """Convolution to 16 channels, and unless it is ``plain`` → batch norm → unit → batch norm; no bias."""
    layers = nn.Sequential(_convolution(channels, STEM, bias=False))
    return layers if plain else layers.extend([nn.BatchNorm2d(STEM), act(), nn.BatchNorm2d(STEM)])


def _convolution(fan_in: int, fan_out: int, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=bias)


def _shortcut(fan_in: int, fan_out: int, stride: int) -> nn.Conv2d | None:
    same = fan_in == fan_out and stride == 1
    return None if same else nn.Conv2d(fan_in, fan_out, 1, stride, bias=False)


def _dropout(p: float) -> list[nn.Module]:
    return [Dropout(p)] if p else []


def paper_block(act: ActivationFactory, fan_in: int, fan_out: int, stride: int, dropout: float) -> Block:
    """Convolution → unit → dropout → convolution → unit → batch norm (GELU §3.5)."""
    block = paper_block_without_norm(act, fan_in, fan_out, stride, dropout)
    block.branch.append(nn.BatchNorm2d(fan_out))
    return block


def paper_block_without_norm(
    act: ActivationFactory, fan_in: int, fan_out: int, stride: int, dropout: float
) -> Block:
    """The same without the batch norm that ends it: what GELU §3.5 says makes ELU's gradients explode."""
    branch = nn.Sequential(
        *(_convolution(fan_in, fan_out, stride), act(), *_dropout(dropout)),
        *(_convolution(fan_out, fan_out), act()),
    )
    return Block(nn.Sequential(), branch, _shortcut(fan_in, fan_out, stride))


def original_block(act: ActivationFactory, fan_in: int, fan_out: int, stride: int, dropout: float) -> Block:
    """Batch norm → unit → convolution, twice, with dropout before the second (Zagoruyko & Komodakis 2016, §2).

    Where the shape changes the shortcut begins after the first unit (He et al. 2016). No biases: batch norm
    follows.
    """
    before = [nn.BatchNorm2d(fan_in), act()]
    shortcut = _shortcut(fan_in, fan_out, stride)
    branch = nn.Sequential(
        *(_convolution(fan_in, fan_out, stride, bias=False), nn.BatchNorm2d(fan_out), act()),
        *(*_dropout(dropout), _convolution(fan_out, fan_out, bias=False)),
    )
    return Block(nn.Sequential(*before), branch, shortcut)


BLOCKS = {
    "paper": paper_block,
    "paper_without_norm": paper_block_without_norm,
    "original": original_block,
}
