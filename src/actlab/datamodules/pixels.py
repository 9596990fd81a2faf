"""The pixels of one picture: coordinates and colours, for networks that represent an image."""

from __future__ import annotations

from functools import cached_property, partial

import torch
from torch import Tensor

from actlab.datamodules.base import Batch, Draws, TensorDataModule, TensorDataset
from actlab.datamodules.cifar import CIFARDataModule
from actlab.datamodules.pictures import pixels, read_picture, reason_of, unreadable
from actlab.datamodules.sources import SUFFIXES
from actlab.errors import ActlabError
from actlab.random.positions import Position, integers_at
from actlab.storage.files import regular
from actlab.storage.paths import at_home
from actlab.validation import Count, validated


def draw_pixels(pixels: TensorDataset, position: Position) -> Batch:
    """Draw coordinates and colours, ``(B, …)`` or ``(R, B, …)`` in a stack, with replacement."""
    index = integers_at(position, "pixels", len(pixels))
    return pixels.batch(position._replace(index=index))


class PixelDataModule(TensorDataModule):
    """The pixels of one picture, as a function from coordinates to colours.

    A batch has coordinates (x, y) ``(B, 2)`` float32, each in ``torch.linspace(-1, 1, width or
    height)``, and colours ``(B, 3)`` float32 in [0, 1]. Training batches are drawn, with
    replacement, from the pixels whose row and column have an even sum. The other pixels are for
    validation in even rows, for test in odd rows.

    Args:
        dataset: a picture file of at most 16 bits a channel, such as a PNG; or CIFAR-10 as a hub id
            or local folder, by default ``uoft-cs/cifar10``: the picture is a mosaic of its first
            test images.
        sample: use the sample of `CIFARDataModule` instead, a mosaic of generated patterns.
        tiles: number of images along each side of the mosaic.
        batch_size: number of pixels in an update.
        updates_per_epoch: number of updates in an epoch.
        eval_batch_size: batch size for validation, test and prediction.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        seed: determines the drawn pixels.

    Raises:
        ActlabError: if the picture or dataset is missing or damaged, or has too few images.
    """

    sample_replaces_dataset = True
    num_outputs = 3
    input_shape = (2,)

    @validated
    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        tiles: Count = 4,
        batch_size: int = 1024,
        updates_per_epoch: Count = 250,
        eval_batch_size: int = 16_384,
        cache_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        self.cifar = CIFARDataModule(
            "cifar10", dataset, sample=sample, cache_dir=cache_dir
        )
        self.dataset = self.cifar.dataset
        self.sample = sample
        self.tiles = tiles
        self.updates_per_epoch = updates_per_epoch

    @cached_property
    def image(self) -> Tensor:
        """The picture, uint8 ``(3, H, W)``; read on first use."""
        return _read(self.dataset) if self._is_picture else self._mosaic()

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for local files."""
        return {} if self._is_picture else self.cifar.revisions

    @property
    def _is_picture(self) -> bool:
        path = at_home(self.dataset)
        return path.suffix.lower() in SUFFIXES or path.is_file()

    def _mosaic(self) -> Tensor:
        """Return the first test images side by side."""
        images = self.cifar.images.tensors["test_images"]
        # Row by row, in the order of the dataset
        needed = self.tiles**2
        if len(images) < needed:
            raise ActlabError(
                f"data.tiles: expected at most {len(images)} tiles, one per test image, got "
                f"{self.tiles}×{self.tiles}"
            )

        # (row, column, C, H, W) → (C, row, H, column, W) → (C, row · H, column · W)
        grid = images[:needed].view(self.tiles, self.tiles, *images.shape[1:])
        return grid.permute(2, 0, 3, 1, 4).flatten(3, 4).flatten(1, 2)

    def load(self, device: torch.device) -> None:
        """Divide the pixels by row and column."""
        # Coordinates and colours of all pixels, (H, W, …)
        _, height, width = self.image.shape
        vertical = torch.linspace(-1, 1, height)
        horizontal = torch.linspace(-1, 1, width)
        y, x = torch.meshgrid(vertical, horizontal, indexing="ij")
        coordinates = torch.stack([x, y], -1)
        colours = self.image.permute(1, 2, 0).float() / 255

        # Parts, as masks (H, W)
        rows = torch.arange(height).view(-1, 1)
        columns = torch.arange(width)
        is_train = (rows + columns) % 2 == 0
        is_val = ~is_train & (rows % 2 == 0)
        is_test = ~is_train & (rows % 2 == 1)

        def part(mask: Tensor) -> TensorDataset:
            return TensorDataset(coordinates[mask].to(device), colours[mask].to(device))

        # Training pixels are drawn when they are needed.
        draw = partial(draw_pixels, part(is_train))
        self.train = Draws(draw, self.updates_per_epoch, self.batch_size, device)
        self.val = part(is_val)
        self.test = part(is_test)


def _read(file: str) -> Tensor:
    """Return a picture, uint8 ``(3, H, W)``; raise an ActlabError if it is missing or damaged."""
    try:
        content = regular(at_home(file)).read_bytes()
        picture = pixels(read_picture(content), channels=3)
    except unreadable() as error:
        raise ActlabError(
            f"data.dataset: expected a picture or CIFAR-10, got {file!r} ({reason_of(error)}). "
            "Use another file, or set data.sample to true."
        ) from error
    return torch.from_numpy(picture.copy()).permute(2, 0, 1)
