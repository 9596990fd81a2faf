"""Random crops, flips and noise of batches of training images: ``(B, C, H, W)``, or ``(R, B, …)`` of a stack.

Their random numbers depend only on the run seed, the epoch and the index of the sample.
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
    """Pad each image with ``padding`` zeros on each side and cut a random window of its original size."""
    *lead, c, h, w = images.shape
    padded = pad(images.reshape(-1, c, h, w), (padding,) * 4)
    # A view: (n, C, row, column, H, W) of every window
    windows = padded.unfold(2, h, 1).unfold(3, w, 1)
    row, column = integers_at(position, "crop", 2 * padding + 1, (2,)).view(-1, 2).unbind(1)
    sample = torch.arange(len(padded), device=images.device)
    return windows[sample, :, row, column].view(*lead, c, h, w)


def mirrored(images: Tensor, which: Tensor) -> Tensor:
    """Flip the images that a bool mask ``(B,)`` selects, ``(R, B)`` in a stack, left to right."""
    return torch.where(which[..., None, None, None], images.flip(-1), images)


class Augmentation:
    """A transform of batches: random crop, then random horizontal flip, then Gaussian noise.

    Images of bytes become float32 in [0, 1] first, not centred (GELU §3.1); this is all without
    settings. Of ``flip: both``, the dataset shows each image in `BothWays`. See `ImageDataModule`
    for the settings.
    """

    @validated
    def __init__(
        self, crop: Whole = 0, flip: Flip = "none", noise: Annotated[float, Ge(0)] = 0.0
    ) -> None:
        self.crop, self.flip, self.noise = crop, flip, noise

    def __call__(self, batch: Batch, position: Position) -> Batch:
        """Augment the images; return the labels unchanged."""
        images, labels = batch
        if images.dtype == torch.uint8:
            images = images.to(torch.float32).div_(255)
        if self.crop:
            images = cropped(images, position, self.crop)
        if self.flip == "random":
            images = mirrored(images, uniform_at(position, "flip") < 0.5)
        if self.noise:
            images = images + self.noise * normal_at(position, "noise", images.shape[-3:])
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
        position = position._replace(index=position.index.to(self.device))
        n = super().__len__()
        images, labels = super().batch(position._replace(index=position.index % n))
        return self.augmentation((mirrored(images, position.index >= n), labels), position)
