"""The datamodule of ImageNet, or of any pictures in class folders, decoded by workers during training."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from actlab.datamodules.base import BatchSource, TensorDataModule, as_it_is, check_sample_alone
from actlab.datamodules.cache import unwritable
from actlab.datamodules.photographs import Photographs, ReadingLoader, Windows, mean_image
from actlab.datamodules.pictures import Pictures, check_class_names
from actlab.datamodules.sources import (
    digest_of,
    ends,
    has_class_folders,
    located,
    open_class_folders,
    open_parquet,
    parquet_files,
    state,
)
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.storage.files import cache_folder
from actlab.storage.resources import resource

SAMPLE_VAL = 8
SPLITS = ("train", "validation")


def _open_copy(folder: Path, copy: Path) -> Any:
    """Return the splits of a folder of parquet files through the reader's copy; rebuild a damaged copy.

    Raises:
        ActlabError: if a file is damaged or missing, the files are inconsistent, or the cache is not writable.
    """
    try:
        copy.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(copy.parent, error) from error
    with suppress(ActlabError):
        return open_parquet(folder, copy)
    return open_parquet(folder, copy, again=True)


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
        if not 1 <= crop <= size:
            raise ActlabError(f"data.crop {crop}: give a number of pixels from 1 to data.size, {size}")
        if workers < 0:
            raise ActlabError(f"data.workers {workers}: give a number of processes, or 0 for none")
        check_sample_alone(dataset, sample)
        self.dataset = str(resource("data/samples/imagenet")) if sample else dataset or "ILSVRC/imagenet-1k"
        self.revision = None if sample else revision
        self.val_images = min(val_images, SAMPLE_VAL) if sample else val_images
        self.size, self.crop, self.workers, self.cache_dir = size, crop, workers, cache_dir
        self._found: tuple[dict[str, Pictures], str, str | None] | None = None

    @property
    def pictures(self) -> dict[str, Pictures]:
        """The encoded pictures of ``train`` and ``validation``; listed on first use."""
        return self._listed()[0]

    def _listed(self) -> tuple[dict[str, Pictures], str, str | None]:
        """Return the pictures of each split, a digest of their files, and the commit of a hub dataset."""
        if self._found is None:
            folder, commit = located(self.dataset, self.revision)
            copy = None
            if has_class_folders(folder):
                content, tables = digest_of(folder, state), open_class_folders(folder, SPLITS)
            else:
                check_class_names(parquet_files(folder))
                content = commit or digest_of(folder, ends)[:24]
                copy = cache_folder(self.cache_dir) / "rows" / content
                tables = _open_copy(folder, copy)
            found = {split: Pictures(tables, split, None, None, self.dataset) for split in SPLITS}
            for pictures in found.values() if copy else ():
                pictures.where += f" (read from its copy in {copy}: delete that if the dataset is whole)"
            if len(numbers := {pictures.num_classes for pictures in found.values()}) > 1:
                raise ActlabError(
                    f"the splits of dataset {self.dataset!r} have {' and '.join(map(str, sorted(numbers)))} "
                    "classes; both need the same"
                )
            self._found = found, content, commit
        return self._found

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder."""
        commit = self._listed()[2]
        return {self.dataset: commit} if commit else {}

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.pictures["train"].num_classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, crop, crop), by default (3, 224, 224)."""
        return 3, self.crop, self.crop

    def prepare_data(self) -> None:
        """Compute the mean image into the cache, once per machine."""
        self._mean()

    def _mean(self) -> Tensor:
        train = Photographs(self.pictures["train"], self.size)
        return mean_image(train, self.workers, cache_folder(self.cache_dir), self._listed()[1])

    def load(self, device: torch.device) -> None:
        """Create the three datasets, which decode their images on access.

        The mean image is read from the cache, or computed from the training images.
        """
        mean, train, val = self._mean(), self.pictures["train"], self.pictures["validation"]
        chosen, left = self._split_validation(len(val))
        fixed = Windows(mean, self.crop)
        self.train = Photographs(train, self.size, None, Windows(mean, self.crop, random=True), device)
        self.val, self.test = (Photographs(val, self.size, rows, fixed, device) for rows in (chosen, left))

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
