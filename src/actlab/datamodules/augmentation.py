"""Random crops, flips and noise of batches of training images.

Images are ``(B, C, H, W)``, or ``(R, B, C, H, W)`` in a stack. Their random numbers depend only on
the run seed, the epoch and the index of the sample.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn.functional import pad

from actlab.datamodules.base import Batch, TensorDataset, Transform
from actlab.random.positions import Position, integers_at, normal_at, uniform_at
from actlab.validation import Whole, validated

Flip = Literal["none", "random", "both"]


def cropped(images: Tensor, position: Position, padding: int) -> Tensor:
    """Cut a random window of each image's size, after ``padding`` zeros were added on each side."""
    *lead, c, h, w = images.shape
    padded = pad(images.reshape(-1, c, h, w), (padding,) * 4)

    # A view of every window: (n, C, row, column, H, W)
    windows = padded.unfold(2, h, 1).unfold(3, w, 1)

    # Select a window of each image.
    corners = integers_at(position, "crop", 2 * padding + 1, (2,))
    row, column = corners.view(-1, 2).unbind(1)
    sample = torch.arange(len(padded), device=images.device)
    return windows[sample, :, row, column].view(*lead, c, h, w)


def mirrored(images: Tensor, mask: Tensor) -> Tensor:
    """Flip the images that a bool mask ``(B,)`` selects, ``(R, B)`` in a stack, left to right."""
    return torch.where(mask[..., None, None, None], images.flip(-1), images)


class Augmentation:
    """A transform of batches: random crop, then random horizontal flip, then Gaussian noise.

    Images of bytes become float32 in [0, 1] first, not centred (GELU §3.1). Without settings, this
    is the only change. For ``flip: both``, the dataset shows each image twice, see `BothWays`. See
    `ImageDataModule` for the settings.
    """

    @validated
    def __init__(
        self, crop: Whole = 0, flip: Flip = "none", noise: Annotated[float, Ge(0)] = 0.0
    ) -> None:
        self.crop = crop
        self.flip = flip
        self.noise = noise

    def __call__(self, batch: Batch, position: Position) -> Batch:
        """Augment the images; return the labels unchanged."""
        # Scale bytes.
        images, labels = batch
        if images.dtype == torch.uint8:
            images = images.to(torch.float32).div_(255)

        # Change the images.
        if self.crop:
            images = cropped(images, position, self.crop)
        if self.flip == "random":
            flips = uniform_at(position, "flip") < 0.5
            images = mirrored(images, flips)
        if self.noise:
            noise = normal_at(position, "noise", images.shape[-3:])
            images = images + self.noise * noise
        return images, labels


class BothWays(TensorDataset):
    """A dataset with every image twice: sample n + N is sample n flipped, before the transform."""

    def __init__(self, images: Tensor, labels: Tensor, transform: Transform) -> None:
        super().__init__(images, labels)
        self.augmentation = transform

    def __len__(self) -> int:
        return 2 * super().__len__()

    def batch(self, position: Position) -> Batch:
        """Return the batch of samples ``position.index``, each below 2N."""
        number = super().__len__()
        index = position.index.to(self.device)

        # Gather each sample, flip it if it is in the second half, and augment it.
        images, labels = super().batch(position._replace(index=index % number))
        images = mirrored(images, index >= number)
        return self.augmentation((images, labels), position._replace(index=index))
