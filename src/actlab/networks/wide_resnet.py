"""The GELU paper's network for CIFAR-100.

Shapes: ``B`` batch, ``C`` channels, ``H W`` map, ``K`` classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.networks.dropout import dropout_layers
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated

STEM = 16  # channels of the stem
WIDTHS = (16, 32, 64)  # channels of the stages before widening


class WideBlock(nn.Module):
    """A residual block: ``branch(y) + shortcut(y)`` with ``y = before(x)``.

    No activation follows the sum. ``branch`` starts at the first convolution. ``shortcut`` is a 1×1
    convolution, or None if the shape does not change; the block then returns ``branch(y) + x``.

    Shape: ``(B, C, H, W)`` → ``(B, C', H / stride, W / stride)``.
    """

    stochastic = False  # only its activations and dropout layers may be random

    def __init__(
        self, before: nn.Sequential, branch: nn.Sequential, shortcut: nn.Conv2d | None
    ) -> None:
        super().__init__()
        self.before = before
        self.branch = branch
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of branch and shortcut."""
        y: Tensor = self.before(x)
        branch: Tensor = self.branch(y)
        shortcut = x
        if self.shortcut is not None:
            shortcut = self.shortcut(y)
        return branch + shortcut


class WideResNet(nn.Sequential):
    """Stem, three stages of residual blocks with decreasing map size, and head.

    Source: Zagoruyko & Komodakis 2016.

    The default is the 40-4 network of GELU §3.5 for CIFAR-100: six blocks per stage, widths 64, 128
    and 256, 8,972,884 parameters.

    - ``stem``: convolution → batch norm → activation → batch norm; with original blocks only the
        convolution.
    - ``blocks``: all residual blocks in order.
    - ``head``: batch norm → activation → mean over the map → dense.

    Glorot's rule initialises the shortcuts, He's rule with gain 1 the dense layer, and He's rule
    all other layers.

    Args:
        act: factory of activations, called once per site.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        depth: 4 + 6 × the number of blocks per stage.
        widen: factor of the stages' widths 16, 32 and 64.
        dropout: drop probability between the convolutions of a block; 0 builds no dropout module.
        block: a key of `BLOCKS`.
        channels_last: store maps in the memory order B, H, W, C; changes the speed, not the
            network.

    Raises:
        ActlabError: for another ``depth``, or an unknown ``block``.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.
    """

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (3, 32, 32),
        depth: int = 40,
        widen: Count = 4,
        dropout: float = 0.3,
        block: str = "paper",
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        if block not in BLOCKS:
            raise unknown("block", block, BLOCKS)
        # Three stages of n blocks with two convolutions, and four more layers
        if depth < 10 or (depth - 4) % 6:
            raise ActlabError(
                f"depth: expected 4 + 6n, such as 10, 16 or 40, got {depth}"
            )

        # Stem
        self.stem = nn.Sequential(_convolution(input_shape[0], STEM, bias=False))
        if block != "original":
            self.stem.append(nn.BatchNorm2d(STEM))
            self.stem.append(activation(act, STEM))
            self.stem.append(nn.BatchNorm2d(STEM))

        # Blocks: all stages after the first halve the map.
        self.blocks = nn.Sequential()
        fan_in = STEM
        build_block = BLOCKS[block]
        for stage, base_width in enumerate(WIDTHS):
            width = base_width * widen
            for number in range((depth - 4) // 6):
                stride = 2 if stage > 0 and number == 0 else 1
                self.blocks.append(build_block(act, fan_in, width, stride, dropout))
                fan_in = width

        # Head
        dense = nn.Linear(fan_in, num_classes)
        self.head = nn.Sequential(
            nn.BatchNorm2d(fan_in),
            activation(act, fan_in),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            dense,
        )

        # Weights
        layer_rules: dict[nn.Module, str] = {dense: "he_gain_1"}
        for layer in self.blocks:
            if isinstance(layer, WideBlock) and layer.shortcut is not None:
                layer_rules[layer.shortcut] = "glorot"
        initialise(self, "he", layer_rules, channels_last=channels_last)


def _convolution(
    fan_in: int, fan_out: int, stride: int = 1, bias: bool = True
) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=bias)


def _shortcut(fan_in: int, fan_out: int, stride: int) -> nn.Conv2d | None:
    # The shape does not change
    if fan_in == fan_out and stride == 1:
        return None
    return nn.Conv2d(fan_in, fan_out, 1, stride, bias=False)


def paper_block(
    act: ActivationFactory, fan_in: int, fan_out: int, stride: int, dropout: float
) -> WideBlock:
    """Return the block of GELU §3.5.

    Its branch is convolution → activation → dropout → convolution → activation → batch norm.
    """
    block = paper_block_without_norm(act, fan_in, fan_out, stride, dropout)
    # Last, so that the sum gets normalised values
    block.branch.append(nn.BatchNorm2d(fan_out))
    return block


def paper_block_without_norm(
    act: ActivationFactory, fan_in: int, fan_out: int, stride: int, dropout: float
) -> WideBlock:
    """Return a `paper_block` without batch norm.

    In such blocks the gradients of ELU explode (GELU §3.5).
    """
    branch = nn.Sequential(
        _convolution(fan_in, fan_out, stride),
        activation(act, fan_out),
        *dropout_layers(dropout),
        _convolution(fan_out, fan_out),
        activation(act, fan_out),
    )
    return WideBlock(nn.Sequential(), branch, _shortcut(fan_in, fan_out, stride))


def original_block(
    act: ActivationFactory, fan_in: int, fan_out: int, stride: int, dropout: float
) -> WideBlock:
    """Return 2 × (batch norm → activation → convolution).

    Dropout comes before the second convolution. If the shape changes, the shortcut starts after the
    first activation (He et al. 2016). Convolutions have no bias, because batch norm follows.

    Source: Zagoruyko & Komodakis 2016, §2.
    """
    before = nn.Sequential(nn.BatchNorm2d(fan_in), activation(act, fan_in))
    shortcut = _shortcut(fan_in, fan_out, stride)
    branch = nn.Sequential(
        _convolution(fan_in, fan_out, stride, bias=False),
        nn.BatchNorm2d(fan_out),
        activation(act, fan_out),
        *dropout_layers(dropout),
        _convolution(fan_out, fan_out, bias=False),
    )
    return WideBlock(before, branch, shortcut)


# By the names that configs use
BLOCKS = {
    "paper": paper_block,
    "paper_without_norm": paper_block_without_norm,
    "original": original_block,
}
