"""A dataset that decodes photographs to squares of side S on access, and windows of squares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from actlab.datamodules.base import Batch, Samples, Transform
from actlab.datamodules.pictures import Pictures
from actlab.datamodules.preprocessing import CPU
from actlab.errors import ActlabError
from actlab.errors.imports import needing
from actlab.random.positions import Position, integers_at, uniform_at


@cache
def functional() -> Any:
    """Return torchvision's functions of images; an ActlabError if torchvision is not installed."""
    with needing("torchvision", "imagenet", "a dataset of photographs"):
        from torchvision.transforms.v2 import functional as module
    return module


@dataclass(eq=False)
class Photographs(Samples):
    """A dataset of square photographs and labels, decoded by the workers of a data loader."""

    pictures: Pictures
    size: int  # side S of the squares
    rows: Tensor  # numbers of the selected pictures, (N,)
    # The transform of each batch, whose images are uint8 (B, C, S, S).
    transform: Transform | None = None
    # The datamodule's device; the batches themselves are CPU tensors.
    device: torch.device = CPU

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def file_names(self) -> Sequence[str] | None:  # type: ignore[override]
        """The paths of the pictures, None if they are not files."""
        return self.pictures.names(self.rows.tolist())

    def batch(self, position: Position) -> Batch:
        """Return the batch of samples ``position.index``, an index ``(B,)``."""
        rows = self.rows[position.index.cpu()]
        squares = [square(self.pictures.read(row), self.size) for row in rows.tolist()]
        batch = torch.stack(squares), self.pictures.labels[rows]
        if self.transform is None:
            return batch
        return self.transform(batch, position)


def square(image: Any, size: int) -> Tensor:
    """Cut the largest central square of a Pillow image and resize it: uint8 ``(3, S, S)``."""
    f = functional()
    side = min(image.size)
    cut = f.center_crop(image.convert("RGB"), [side, side])
    resized = f.resize(cut, [size, size])  # bilinearly
    tensor: Tensor = f.pil_to_tensor(resized)
    return tensor


@dataclass(frozen=True)
class Crops:
    """A transform of batches: subtract the mean, cut a window of each image, and divide by 255.

    For training, windows are random and flipped with probability ½, otherwise the centre.
    """

    mean: Tensor  # (C, S, S) float32, from 0 to 255
    size: int  # side of the window
    random: bool = False

    def __call__(self, batch: Batch, position: Position) -> Batch:
        """Convert images uint8 ``(B, C, S, S)`` to float32 ``(B, C, H, W)``; the labels stay."""
        # Subtract the mean while values are from 0 to 255
        f = functional()
        images, labels = batch
        centred = images - self.mean
        window = [self.size, self.size]
        if not self.random:
            return f.center_crop(centred, window).div(255), labels

        # Cut random windows.
        choices = images.shape[-1] - self.size + 1
        corners = integers_at(position, "crop", choices, (2,))
        windows = []
        for image, corner in zip(centred, corners.tolist(), strict=True):
            windows.append(f.crop(image, *corner, *window))
        cut = torch.stack(windows)

        # Flip some of them.
        flips = uniform_at(position, "flip") < 0.5
        cut[flips] = f.horizontal_flip(cut[flips])
        return cut.div_(255), labels


class ReadingLoader(DataLoader[Any]):
    """A data loader whose workers start at the first batch; their errors have no traceback.

    Lightning creates iterators that it never uses, and others before it sets the epoch. The workers
    of the stock data loader would start at once, with the batches of the wrong epoch.
    """

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator is one
        try:
            yield from super().__iter__()
        except ActlabError as error:
            # Its frames refer to the error and to the iterator, whose workers a
            # collection of such a cycle ends after a timeout of five seconds each.
            error.__traceback__ = None

            # torch puts the worker's traceback before the message.
            _, _, message = str(error).rpartition(f"{ActlabError.__name__}: ")
            raise ActlabError(message.strip()) from error
