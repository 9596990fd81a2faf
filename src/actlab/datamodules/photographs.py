"""Photographs of any size as squares of one size, decoded when they are asked for; windows of them.

Shapes: ``B`` batch, ``C`` = 3 channels, ``S`` side of the squares, ``H W`` window.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, SequentialSampler

from actlab.datamodules.augmentation import mirrored
from actlab.datamodules.base import Batch, BatchesInOrder, Transform, as_it_is
from actlab.datamodules.cache import Cached, made_once
from actlab.datamodules.encoded import Encoded, unreadable
from actlab.datamodules.images import PICTURE_ERRORS, is_deep
from actlab.datamodules.steps import mean_of
from actlab.errors import ActlabError
from actlab.random.positions import Position, integers_at, uniform_at

FORMAT = 2  # of the mean's cache: raised when decoding changes
BLOCK = 64  # pictures that the mean reads at once
# Pillow's names of what has 8 bits a channel or fewer; of 16 bits it would cut off all above 255.
MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "RGBA", "PA")


class Photographs(Dataset[Batch]):
    """Squares of photographs, and their labels; a batch is decoded when it is asked for, in a loader's worker.

    Args:
        encoded: the pictures.
        size: S.
        chosen: numbers of those that are taken, ``(N,)``; all by default.
        transform: of the batches, uint8 ``(B, C, S, S)`` before it.
        device: that the datamodule is for; batches are made in main memory.
    """

    def __init__(
        self,
        encoded: Encoded,
        size: int,
        chosen: Tensor | None = None,
        transform: Transform | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.encoded, self.size, self.transform = encoded, size, transform
        self.chosen = torch.arange(len(encoded)) if chosen is None else chosen
        self._device = device or torch.device("cpu")

    @property
    def device(self) -> torch.device:
        """That the datamodule is for."""
        return self._device

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitems__(self, position: Position) -> Batch:
        """The batch of samples ``position.index``, ``(B,)``.

        Raises:
            ActlabError: for a picture that cannot be decoded.
        """
        numbers = self.chosen[position.index.cpu()]
        images = torch.empty(len(numbers), 3, self.size, self.size, dtype=torch.uint8)
        for image, number in zip(images, numbers.tolist(), strict=True):
            image.copy_(self._square(number))
        batch = images, self.encoded.labels[numbers]
        return self.transform(batch, position) if self.transform else batch

    def _square(self, number: int) -> Tensor:
        from PIL import Image

        try:
            return square(self.encoded.read(number), self.size)
        except (OSError, ValueError, *PICTURE_ERRORS, Image.DecompressionBombError) as error:
            raise unreadable(self.encoded.name(number), error) from error


def square(file: bytes, size: int) -> Tensor:
    """The central square of a picture, as large as its shorter side, resized: uint8 ``(3, S, S)``.

    Resized bilinearly, with as wide a filter as the factor asks for. Grey pictures and those of ink colours
    become RGB; transparent ones are laid over white, so that what they hide stays hidden.

    Args:
        file: in any format that Pillow reads.
        size: S.

    Raises:
        ValueError: for a picture of more than 8 bits a channel, or of another mode than `MODES`.
    """
    from PIL import Image

    image: Image.Image = Image.open(io.BytesIO(file))
    if image.mode not in MODES or is_deep(image):
        mode = f"Pillow mode {image.mode!r}{' of 16 bits' * is_deep(image)}"
        raise ValueError(f"{mode}, not {', '.join(MODES)}; convert it to 8 bits a channel")
    if _transparent(image):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    image = image.convert("RGB")
    side = min(image.size)
    left, top = ((n - side) / 2 for n in image.size)
    resized = image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return torch.from_numpy(np.array(resized).transpose(2, 0, 1))


def _transparent(image: Any) -> bool:
    """Whether a picture of Pillow may be transparent somewhere."""
    palette = image.palette is not None and image.palette.mode.endswith("A")
    return palette or image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info


@dataclass(frozen=True)
class Windows:
    """A transform of batches: ``(x − mean) / 255``, pixel by pixel, of a window of each image.

    Args:
        mean: image ``(C, S, S)`` float32, from 0 to 255.
        size: side of the window.
        random: in training, the window is anywhere and half of the images are mirrored; else it is the centre.
    """

    mean: Tensor
    size: int
    random: bool = False

    def __call__(self, batch: Batch, position: Position) -> Batch:
        """Images uint8 ``(B, C, S, S)`` to float32 ``(B, C, H, W)``; labels stay."""
        images, labels = batch
        places = images.shape[-1] - self.size + 1
        if not self.random:
            middle = torch.full((len(images),), places // 2)
            return self._centred(images, middle, middle), labels
        row, column = integers_at(position, "crop", places, (2,)).unbind(-1)
        return mirrored(self._centred(images, row, column), uniform_at(position, "flip") < 0.5), labels

    def _centred(self, images: Tensor, row: Tensor, column: Tensor) -> Tensor:
        mean = self.mean.expand(images.shape)
        centred = windows(images, row, column, self.size).float().sub_(windows(mean, row, column, self.size))
        return centred.div_(255)


def windows(images: Tensor, row: Tensor, column: Tensor, size: int) -> Tensor:
    """A window of each image ``(B, C, S, S)``, its first row and column given: ``(B, C, size, size)``."""
    every = images.unfold(2, size, 1).unfold(3, size, 1)  # a view: (B, C, row, column, H, W)
    return every[torch.arange(len(images)), :, row, column]


def mean_image(samples: Photographs, workers: int, folder: Path) -> Tensor:
    """The mean of some photographs, pixel by pixel: float32 ``(C, S, S)``, summed up in float64.

    They are read once, all of them, and the mean is kept.

    Args:
        samples: without transform.
        workers: that read them.
        folder: where the mean is kept, under the pictures' digest and S.

    Raises:
        ActlabError: for a picture that cannot be decoded, or a folder that cannot be written.
    """
    key = repr((FORMAT, samples.encoded.digest, samples.size))
    path = folder / f"mean-{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"
    batches = BatchesInOrder(SequentialSampler(samples), BLOCK, drop_last=False)
    loader = ReadingLoader(samples, batch_sampler=batches, collate_fn=as_it_is, num_workers=workers)

    def make() -> Cached:
        return Cached({"mean": mean_of(lambda: (images for images, _ in loader))[0].float()}, {})

    return made_once(path, ["mean"], make).tensors["mean"]


def check_sizes(size: int, window: int) -> None:
    """Check the sides of squares and windows.

    Raises:
        ActlabError: for a window that is larger than the square, or smaller than a pixel.
    """
    if not 1 <= window <= size:
        raise ActlabError(f"data.crop {window}: give a number of pixels from 1 to data.size, {size}")


class ReadingLoader(DataLoader[Any]):
    """The stock loader, but its workers start when the first batch is asked for, and their errors are short.

    Lightning makes iterators that it never uses, and others before it says which epoch it is: workers of the
    stock loader would begin at once, with the batches of another epoch.
    """

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator is one
        """The batches.

        Raises:
            ActlabError: as the data set raises it, in a worker too.
        """
        try:
            yield from super().__iter__()
        except ActlabError as error:  # torch puts the worker's traceback before the message
            raise ActlabError(str(error).rpartition(f"{ActlabError.__name__}: ")[2].strip()) from error
