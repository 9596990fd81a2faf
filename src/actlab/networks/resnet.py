"""He et al.'s residual network for CIFAR.

Shapes: ``B`` batch, ``C`` channels, ``H W`` map, ``K`` classes.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated


class ResidualBlock(nn.Module):
    """``act(branch(x) + shortcut(x))`` (He et al. 2015, §3.2 and Fig 2).

    The branch is convolution → batch norm → activation → convolution → batch norm. If the shape
    changes, the shortcut is their option A, without parameters: every second row and column, with
    channels of zeros.

    Shape: ``(B, C, H, W)`` → ``(B, C', H / stride, W / stride)``.
    """

    stochastic = False

    def __init__(
        self, act: ActivationFactory, fan_in: int, fan_out: int, stride: int
    ) -> None:
        super().__init__()
        self.stride = stride
        # The shortcut fills these with zeros.
        self.added_channels = fan_out - fan_in
        self.branch = nn.Sequential(
            nn.Conv2d(fan_in, fan_out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(fan_out),
            activation(act, fan_out),
            nn.Conv2d(fan_out, fan_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(fan_out),
        )
        self.act = activation(act, fan_out)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of the sum."""
        shortcut = x
        if self.added_channels:
            # The added channels of zeros come behind the present ones
            reduced = x[..., :: self.stride, :: self.stride]
            shortcut = F.pad(reduced, (0, 0, 0, 0, 0, self.added_channels))
        y: Tensor = self.act(self.branch(x) + shortcut)
        return y


class ResNet(nn.Sequential):
    """Stem, three stages of residual blocks, and head; each stage doubles the channels.

    He et al. 2015, "Deep Residual Learning for Image Recognition", §4.2. The default is ResNet-20:
    three blocks per stage of 16, 32 and 64 channels, 269,722 parameters with 10 classes (0.27
    million in Table 6). He's rule initialises the convolutions, and with gain 1 the dense layer.

    - ``stem``: convolution → batch norm → activation.
    - ``blocks``: all residual blocks in order.
    - ``head``: mean over the map → dense.

    Args:
        act: factory of activations, called once per site.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        depth: 2 + 6 × the number of blocks per stage: 20, 32, 44, 56, 110.
        width: channels of the first stage.
        channels_last: store maps in the memory order B, H, W, C; changes the speed, not the
            network.

    Raises:
        ActlabError: for another ``depth``.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.
    """

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (3, 32, 32),
        depth: int = 20,
        channels_last: bool = True,
        width: Count = 16,
    ) -> None:
        super().__init__()
        # Three stages of n blocks with two convolutions, a stem and a head
        if depth < 8 or (depth - 2) % 6:
            raise ActlabError(
                f"depth: expected 2 + 6n, such as 20, 32 or 56, got {depth}"
            )

        # No pool follows the stem: the first stage keeps the size of the map
        fan_in = width
        stem = nn.Conv2d(input_shape[0], fan_in, 3, padding=1, bias=False)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(fan_in), activation(act, fan_in))

        # The first block of a wider stage halves the map.
        self.blocks = nn.Sequential()
        for fan_out in (width, 2 * width, 4 * width):
            for _ in range((depth - 2) // 6):
                stride = 1 if fan_out == fan_in else 2
                self.blocks.append(ResidualBlock(act, fan_in, fan_out, stride))
                fan_in = fan_out

        # No activation follows, so He's gain of √2 would be too large
        dense = nn.Linear(fan_in, num_classes)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense)
        initialise(self, "he", {dense: "he_gain_1"}, channels_last=channels_last)
