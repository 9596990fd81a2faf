"""The datamodule of ImageNet, or of any pictures in class folders, decoded by workers during training."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from actlab.datamodules.base import BatchSource, TensorDataModule, as_it_is, check_sample
from actlab.datamodules.cache import unwritable
from actlab.datamodules.encoded import Encoded, has_class_folders, rows_of, tree
from actlab.datamodules.hub import open_hub, revision_of
from actlab.datamodules.images import check_class_names
from actlab.datamodules.photographs import Photographs, ReadingLoader, Windows, check_sizes, mean_image
from actlab.datamodules.sources import ends_digest, local_folder, open_folder, parquet_files
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.storage.files import cache_folder
from actlab.storage.resources import resource

SAMPLE_VAL = 8


def _open_copy(folder: Path, copy: Path) -> Any:
    """Return the splits of a folder of parquet files through the reader's copy; rebuild a damaged copy.

    Args:
        folder: holds parquet files.
        copy: folder of the reader's copy.

    Raises:
        ActlabError: if a file is damaged or missing, the files are inconsistent, or the cache is not writable.
    """
    if copy.exists():
        with suppress(ActlabError):
            return open_folder(folder, str(copy))
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{copy}.lock"):
            if copy.exists():  # another process may have written it in the meantime
                with suppress(ActlabError):
                    return open_folder(folder, str(copy))
                shutil.rmtree(copy)
            return open_folder(folder, str(copy))
    except OSError as error:
        raise unwritable(copy.parent, error) from error


class ImageNetDataModule(TensorDataModule):
    """ImageNet as in ELU §4.4: 256×256 squares minus their mean, random 224×224 crops and horizontal flips.

    Batches: images ``(B, 3, 224, 224)`` float32, labels ``(B,)`` int64. The paper does not say how it makes a
    picture square; we cut the central square, as Krizhevsky et al. (2012) do. The per-pixel mean is computed
    over the squares of all training images and subtracted before a window is cut. Values are divided by 255,
    which the paper does not state either, because He initialization propagates the scale of the input up to the
    logits.

    The 50,000 validation images have labels, the test images do not. As in Fig 6 of the paper, ``val_images``
    of the validation images, selected at random, are the validation set. The rest is the test set, so results
    are not reported on the images used for selection.

    Batches do not depend on the number of devices or workers.

    Args:
        dataset: a hub id, by default ``ILSVRC/imagenet-1k``; or a folder with ``train/CLASS/*`` and
            ``val/CLASS/*`` (or ``validation/``), with labels in order of the class names; or a folder of
            parquet files in the hub's layout. The hub's reader copies parquet files to ``rows/`` in the cache,
            again after each change; old copies stay.
        sample: use generated pictures instead: ten classes, 40 training and 20 validation images.
        size: side of the squares in pixels.
        crop: side of the windows in pixels.
        val_images: size of the validation set, at most 8 with ``sample``.
        batch_size: size of the global training batch.
        eval_batch_size: batch size for validation, test and prediction.
        workers: number of processes per device that read and decode; 0 decodes in the main process.
        cache_dir: folder for the mean; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the commit.
        seed: determines the order of batches, the windows and the flips.

    Raises:
        ActlabError: if the dataset is missing or has another layout, a picture cannot be decoded, or a setting
            is invalid.
    """

    sample_replaces_dataset = True
    stackable = False  # each run of a stack would decode its own batches

    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        size: int = 256,
        crop: int = 224,
        val_images: int = 5000,
        batch_size: int = 256,
        eval_batch_size: int = 250,
        workers: int = 4,
        cache_dir: str | None = None,
        revision: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        check_sizes(size, crop)
        if workers < 0:
            raise ActlabError(f"data.workers {workers}: give a number of processes, or 0 for none")
        check_sample(dataset, sample)
        self.dataset = str(resource("data/samples/imagenet")) if sample else dataset or "ILSVRC/imagenet-1k"
        self.revision = None if sample else revision
        self.val_images = min(val_images, SAMPLE_VAL) if sample else val_images
        self.size, self.crop, self.workers, self.cache_dir = size, crop, workers, cache_dir
        self._parts: dict[str, Encoded] | None = None
        self._commit: str | None = None

    @property
    def encoded(self) -> dict[str, Encoded]:
        """The encoded pictures of ``train`` and ``val``; listed on first use."""
        if self._parts is None:
            folder = local_folder(self.dataset, self.revision)
            if folder is None:
                tables = open_hub(self.dataset, self.revision)
                self._commit = revision_of(tables)
                self._parts = rows_of(tables, self.dataset)
            else:
                self._parts = self._read_folder(folder)
        return self._parts

    def _read_folder(self, folder: Path) -> dict[str, Encoded]:
        if has_class_folders(folder) or next(folder.rglob("*.parquet"), None) is None:
            return {**tree(folder)}
        check_class_names(parquet_files(folder))
        content = ends_digest(folder)[:24]  # the reader identifies files only by their paths and times
        copy = cache_folder(self.cache_dir) / "rows" / content
        return rows_of(_open_copy(folder, copy), self.dataset, content)

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder or an unknown commit."""
        return {self.dataset: self._commit} if self.encoded and self._commit else {}

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.encoded["train"].num_classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, crop, crop), by default (3, 224, 224)."""
        return 3, self.crop, self.crop

    def prepare_data(self) -> None:
        """Compute the mean image into the cache, once per machine."""
        self._mean()

    def _mean(self) -> Tensor:
        train = Photographs(self.encoded["train"], self.size)
        return mean_image(train, self.workers, cache_folder(self.cache_dir))

    def load(self, device: torch.device) -> None:
        """Create the three datasets, which decode their images on access.

        The mean image is read from the cache, or computed from the training images.
        """
        mean, val = self._mean(), self.encoded["val"]
        chosen, left = self._split_validation(len(val))

        def part(encoded: Encoded, numbers: Tensor | None = None, random: bool = False) -> Photographs:
            return Photographs(encoded, self.size, numbers, Windows(mean, self.crop, random), device)

        self.train = part(self.encoded["train"], random=True)
        self.val, self.test = part(val, chosen), part(val, left)

    def _split_validation(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the indices of the validation set and of the test set, which share no image."""
        n = self.val_images
        if not 0 < n < number:
            raise ActlabError(
                f"data.val_images {n}: {self.dataset} has {number} validation images; give fewer, at least 1"
            )
        order = torch.randperm(number, generator=generator(0, "val_images"))  # the same for every run
        return order[:n].sort().values, order[n:].sort().values

    def _loader(self, samples: BatchSource, batches: Sampler[Any]) -> DataLoader[Any]:
        return ReadingLoader(
            samples,  # type: ignore[arg-type]  # as in the base class
            batch_sampler=batches,
            collate_fn=as_it_is,
            num_workers=self.workers,
            pin_memory=samples.device.type == "cuda",
        )
