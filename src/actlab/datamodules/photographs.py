"""A dataset that decodes photographs of any size to equal squares on access, and crops of these squares.

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

FORMAT = 2  # version of the mean's cache; increased when decoding changes
BLOCK = 64  # pictures per batch while computing the mean
# Pillow modes with at most 8 bits per channel; converting 16 bits would clip all values above 255.
MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "RGBA", "PA")


class Photographs(Dataset[Batch]):
    """A dataset of square photographs and labels, decoded batch by batch in the data loader's workers.

    Args:
        encoded: the pictures.
        size: side S of the squares.
        chosen: indices of the pictures to use, ``(N,)``; by default all.
        transform: applied to each batch, whose images are uint8 ``(B, C, S, S)``.
        device: device of the datamodule; the batches themselves are CPU tensors.
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
        """The device of the datamodule; the batches themselves are CPU tensors."""
        return self._device

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitems__(self, position: Position) -> Batch:
        """Return the batch of samples ``position.index``, an index ``(B,)``.

        Raises:
            ActlabError: if a picture cannot be decoded.
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
    """Cut the largest central square of a picture and resize it to uint8 ``(3, S, S)``.

    Resizing is bilinear, with a filter as wide as the scale factor requires. Greyscale and CMYK pictures are
    converted to RGB. Transparent pictures are composited over white, so hidden pixels stay hidden.

    Args:
        file: bytes of a picture in any format that Pillow reads.
        size: side S of the result.

    Raises:
        ValueError: if the picture has more than 8 bits per channel, or its mode is not in `MODES`.
    """
    from PIL import Image

    image: Image.Image = Image.open(io.BytesIO(file))
    if image.mode not in MODES or is_deep(image):
        mode = f"Pillow mode {image.mode!r}{' of 16 bits' * is_deep(image)}"
        raise ValueError(f"{mode}, not {', '.join(MODES)}; convert it to 8 bits per channel")
    if _transparent(image):
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    image = image.convert("RGB")
    side = min(image.size)
    left, top = ((n - side) / 2 for n in image.size)
    resized = image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return torch.from_numpy(np.array(resized).transpose(2, 0, 1))


def _transparent(image: Any) -> bool:
    """Return whether a Pillow image may have transparent pixels."""
    palette = image.palette is not None and image.palette.mode.endswith("A")
    return palette or image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info


@dataclass(frozen=True)
class Windows:
    """A transform of batches: crop a window of each image and compute ``(x − mean) / 255`` per pixel.

    Args:
        mean: image ``(C, S, S)`` float32, from 0 to 255.
        size: side of the window.
        random: for training: cut random windows and flip each with probability ½. Otherwise cut the centre.
    """

    mean: Tensor
    size: int
    random: bool = False

    def __call__(self, batch: Batch, position: Position) -> Batch:
        """Convert images uint8 ``(B, C, S, S)`` to float32 ``(B, C, H, W)``; return the labels unchanged."""
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
    """Cut one window from each image.

    Args:
        images: ``(B, C, S, S)``.
        row: first row of each window, ``(B,)``.
        column: first column of each window, ``(B,)``.
        size: side of the windows.

    Returns:
        The windows ``(B, C, size, size)``.
    """
    every = images.unfold(2, size, 1).unfold(3, size, 1)  # a view: (B, C, row, column, H, W)
    return every[torch.arange(len(images)), :, row, column]


def mean_image(samples: Photographs, workers: int, folder: Path) -> Tensor:
    """Return the per-pixel mean of photographs, float32 ``(C, S, S)``, accumulated in float64.

    The first call reads all photographs and caches the mean.

    Args:
        samples: photographs without a transform.
        workers: number of processes that read and decode.
        folder: of the cache; its key contains the digest of the pictures and S.

    Raises:
        ActlabError: if a picture cannot be decoded, or the folder cannot be written.
    """
    key = repr((FORMAT, samples.encoded.digest, samples.size))
    path = folder / f"mean-{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"
    batches = BatchesInOrder(SequentialSampler(samples), BLOCK, drop_last=False)
    loader = ReadingLoader(samples, batch_sampler=batches, collate_fn=as_it_is, num_workers=workers)

    def _make() -> Cached:
        return Cached({"mean": mean_of(lambda: (images for images, _ in loader))[0].float()}, {})

    return made_once(path, ["mean"], _make).tensors["mean"]


def check_sizes(size: int, window: int) -> None:
    """Check that the side of the window is between 1 and ``size``, the side of the square.

    Raises:
        ActlabError: if it is not.
    """
    if not 1 <= window <= size:
        raise ActlabError(f"data.crop {window}: give a number of pixels from 1 to data.size, {size}")


class ReadingLoader(DataLoader[Any]):
    """A data loader whose workers start at the first batch and whose worker errors have no traceback.

    Lightning creates iterators that it never uses, and others before it sets the epoch. The workers of the
    stock data loader would start at once, with the batches of the wrong epoch.
    """

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator is one
        """Yield the batches.

        Raises:
            ActlabError: if the dataset raises it, also in a worker.
        """
        try:
            yield from super().__iter__()
        except ActlabError as error:  # torch prepends the worker's traceback to the message
            # Its frames refer to the error and to the iterator, whose workers a collection of such a cycle ends
            # after a timeout of five seconds each.
            error.__traceback__ = None
            raise ActlabError(str(error).rpartition(f"{ActlabError.__name__}: ")[2].strip()) from error
