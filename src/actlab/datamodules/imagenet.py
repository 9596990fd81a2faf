"""The datamodule of ImageNet, or of pictures in class folders, decoded by workers in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, SequentialSampler

from actlab.datamodules.base import Samples, TensorDataModule, dataset_or, uncollated
from actlab.datamodules.cache import made_once, writing
from actlab.datamodules.hub import locate
from actlab.datamodules.photographs import Crops, Photographs, ReadingLoader
from actlab.datamodules.pictures import Pictures
from actlab.datamodules.preprocessing import mean_of
from actlab.datamodules.samplers import BatchesInOrder
from actlab.datamodules.sources import (
    content,
    digest_of,
    has_class_folders,
    open_tables,
    state,
)
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.storage.paths import cache_folder
from actlab.validation import Count, Whole, validated

FORMAT = 4  # version of the mean's cache; increased when decoding changes
BLOCK = 64  # pictures per batch while computing the mean
SAMPLE_VAL = 8  # largest validation set of the sample
SPLITS = ("train", "validation")


class _Dataset(NamedTuple):
    """The encoded pictures of each split, a digest of their files, and a hub dataset's commit."""

    pictures: dict[str, Pictures]
    digest: str
    commit: str | None


class ImageNetDataModule(TensorDataModule):
    """ImageNet as in ELU §4.4: 256×256 squares minus their mean, random 224×224 crops and flips.

    A batch has images ``(B, 3, 224, 224)`` float32 and labels ``(B,)`` int64. The paper does not
    say how it makes a picture square; we cut the central square, as Krizhevsky et al. (2012) do.
    Flips are horizontal. The per-pixel mean is computed over the squares of all training images and
    subtracted before a window is cut. Values are divided by 255, which the paper does not state
    either, because He initialization propagates the scale of the input up to the logits.

    The 50,000 validation images have labels, the test images do not. As in Fig 6 of the paper,
    ``val_images`` of the validation images, selected at random, are the validation set. The rest is
    the test set, so results are not reported on the images used for selection.

    Batches do not depend on the number of devices or workers.

    Args:
        dataset: a hub id, by default ``ILSVRC/imagenet-1k``; or a folder with ``train/CLASS/*`` and
            ``val/CLASS/*`` (or ``validation/``), with labels in order of the class names; or a
            folder of parquet files in the hub's layout. The hub's reader copies parquet files to
            ``rows/`` in the cache, again after each change; old copies stay.
        sample: use generated pictures instead: ten classes, 40 training and 20 validation images.
        size: side of the squares in pixels.
        crop: side of the windows in pixels.
        val_images: size of the validation set, at most 8 with ``sample``.
        batch_size: size of the global training batch; an incomplete last batch of an epoch is
            dropped.
        eval_batch_size: batch size for validation, test and prediction.
        workers: number of processes per device that read and decode; 0 decodes in the main process.
        cache_dir: folder for the mean; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the
            commit.
        seed: determines the order of batches, the windows and the flips.

    Raises:
        ActlabError: if the dataset is missing or has another layout, a picture cannot be decoded,
            or a setting is invalid.
    """

    sample_replaces_dataset = True
    published: Mapping[str, int] = {"train": 1_281_167, "validation": 50_000}
    stackable = False  # each run of a stack would decode its own batches

    @validated
    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        size: int = 256,
        crop: int = 224,
        val_images: Count = 5000,
        batch_size: int = 256,
        eval_batch_size: int = 250,
        workers: Whole = 4,
        cache_dir: str | None = None,
        revision: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        if not 1 <= crop <= size:
            raise ActlabError(
                f"data.crop: expected 1 to {size} pixels (data.size), got {crop}"
            )
        self.dataset = dataset_or("ILSVRC/imagenet-1k", dataset, sample, "imagenet")
        self.revision = None if sample else revision
        # A sample is smaller than the usual split.
        self.val_images = min(val_images, SAMPLE_VAL) if sample else val_images
        self.size = size
        self.crop = crop
        self.workers = workers
        self.cache_dir = cache_dir

    @property
    def pictures(self) -> dict[str, Pictures]:
        """The encoded pictures of ``train`` and ``validation``; listed on first use."""
        return self._dataset.pictures

    @cached_property
    def _dataset(self) -> _Dataset:
        """The dataset, without its decoded pictures."""
        folder, commit = locate(self.dataset, self.revision)

        # Digest the files. Pictures are too many to be read, tables are large.
        if has_class_folders(folder):
            digest = digest_of(folder, state)
            reader_folder = cache_folder(self.cache_dir) / "rows" / digest
        else:
            digest = commit or digest_of(folder, content)[:24]
            reader_folder = cache_folder(self.cache_dir) / "rows" / digest
            with writing(reader_folder.parent):
                reader_folder.mkdir(parents=True, exist_ok=True)

        # Open the splits.
        tables = open_tables(folder, SPLITS, reader_folder)
        for split in SPLITS:
            if split not in tables:
                raise ActlabError(
                    f"{self.dataset!r}: expected the splits train and validation, got no {split} "
                    "split. Add it, or use ImageDataModule, which takes validation from training."
                )
        train, validation = (
            Pictures(tables, split, None, None, self.dataset) for split in SPLITS
        )

        # Compare their classes.
        numbers = sorted({train.num_classes, validation.num_classes})
        if len(numbers) > 1:
            raise ActlabError(
                f"{self.dataset!r}: expected the same classes in each split, got {numbers[0]} and "
                f"{numbers[1]} classes. Add the missing classes, or use another dataset."
            )
        return _Dataset({"train": train, "validation": validation}, digest, commit)

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder."""
        commit = self._dataset.commit
        return {self.dataset: commit} if commit else {}

    @property
    def counts(self) -> Mapping[str, int]:  # type: ignore[override]
        """The number of pictures in each split of the dataset."""
        return {split: len(pictures) for split, pictures in self.pictures.items()}

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.pictures["train"].num_classes

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the classes, None if the dataset has none."""
        return self.pictures["train"].class_names

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, crop, crop), by default (3, 224, 224)."""
        return 3, self.crop, self.crop

    def prepare_data(self) -> None:
        """Compute the mean image into the cache, once per machine."""
        self._mean()

    def _mean(self) -> Tensor:
        """Return the mean of all training squares, float32 ``(3, S, S)``.

        It is cached, because it reads all pictures.
        """
        # Decode all squares in batches.
        pictures = self.pictures["train"]
        squares = Photographs(pictures, self.size, torch.arange(len(pictures)))
        batches = BatchesInOrder(SequentialSampler(squares), BLOCK, drop_last=False)
        loader = self._loader(squares, batches)

        def make() -> dict[str, Tensor]:
            mean, _ = mean_of(lambda: (images for images, _ in loader))
            return {"mean": mean.float()}

        # The crop does not change the mean.
        key = FORMAT, self._dataset.digest, self.size
        tensors = made_once("mean", key, self.cache_dir, make)
        return tensors["mean"]

    def load(self, device: torch.device) -> None:
        """Create the three datasets, which decode their images on access."""
        # The validation split must leave images for the test
        mean = self._mean()
        train = self.pictures["train"]
        validation = self.pictures["validation"]
        number = self.val_images
        if not 0 < number < len(validation):
            raise ActlabError(
                f"data.val_images: expected at least 1 and fewer than the {len(validation)} "
                f"validation images of {self.dataset}, got {number}"
            )

        # Training: random windows
        rows = torch.arange(len(train))
        random_windows = Crops(mean, self.crop, random=True)
        self.train = Photographs(train, self.size, rows, random_windows, device)

        # Validation and test: central windows of images selected at random, equally for
        # every run
        order = torch.randperm(len(validation), generator=generator(0, "val_images"))
        val_rows = order[:number].sort().values
        test_rows = order[number:].sort().values
        windows = Crops(mean, self.crop)
        self.val = Photographs(validation, self.size, val_rows, windows, device)
        self.test = Photographs(validation, self.size, test_rows, windows, device)

    def _loader(self, samples: Samples, batches: Sampler[Any]) -> DataLoader[Any]:
        return ReadingLoader(
            samples,
            batch_sampler=batches,
            collate_fn=uncollated,
            num_workers=self.workers,
            pin_memory=samples.device.type == "cuda",
        )
