"""The datamodule of ImageNet, or of any pictures in class folders, decoded by workers during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, SequentialSampler

from actlab.datamodules.base import BatchesInOrder, Samples, TensorDataModule, as_it_is, dataset_or
from actlab.datamodules.cache import made_once, writing
from actlab.datamodules.hub import located
from actlab.datamodules.photographs import Crops, Photographs, ReadingLoader
from actlab.datamodules.pictures import Pictures
from actlab.datamodules.preprocessing import mean_of
from actlab.datamodules.sources import content, digest_of, has_class_folders, open_tables, state
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.storage.paths import cache_folder
from actlab.validation import Count, Whole, validated

FORMAT = 4  # version of the mean's cache; increased when decoding changes
BLOCK = 64  # pictures per batch while computing the mean
SAMPLE_VAL = 8
SPLITS = ("train", "validation")


class ImageNetDataModule(TensorDataModule):
    """ImageNet as in ELU §4.4: 256×256 squares minus their mean, random 224×224 crops and horizontal flips.

    Batches: images ``(B, 3, 224, 224)`` float32, labels ``(B,)`` int64. The paper does not say how
    it makes a picture square; we cut the central square, as Krizhevsky et al. (2012) do. The
    per-pixel mean is computed over the squares of all training images and subtracted before a
    window is cut. Values are divided by 255, which the paper does not state either, because He
    initialization propagates the scale of the input up to the logits.

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
                f"data.crop {crop}: give a number of pixels from 1 to data.size, {size}"
            )
        self.dataset = dataset_or("ILSVRC/imagenet-1k", dataset, sample, "imagenet")
        self.revision = None if sample else revision
        self.val_images = min(val_images, SAMPLE_VAL) if sample else val_images
        self.size, self.crop, self.workers, self.cache_dir = size, crop, workers, cache_dir

    @property
    def pictures(self) -> dict[str, Pictures]:
        """The encoded pictures of ``train`` and ``validation``; listed on first use."""
        return self._listed[0]

    @cached_property
    def _listed(self) -> tuple[dict[str, Pictures], str, str | None]:
        """Return the pictures of each split, a digest of their files, and the commit of a hub dataset."""
        folder, commit = located(self.dataset, self.revision)
        as_pictures = has_class_folders(folder)
        version = (
            digest_of(folder, state) if as_pictures else commit or digest_of(folder, content)[:24]
        )
        copy = cache_folder(self.cache_dir) / "rows" / version
        if not as_pictures:
            with writing(copy.parent):
                copy.mkdir(parents=True, exist_ok=True)
        tables = open_tables(folder, SPLITS, copy)
        if missing := [split for split in SPLITS if split not in tables]:
            raise ActlabError(
                f"{self.dataset!r}: expected the splits train and validation, got no {missing[0]} split. Add "
                "it, or use ImageDataModule, which takes validation from training."
            )
        pictures = {split: Pictures(tables, split, None, None, self.dataset) for split in SPLITS}
        if len(numbers := {of_split.num_classes for of_split in pictures.values()}) > 1:
            raise ActlabError(
                f"the splits of dataset {self.dataset!r} have {' and '.join(map(str, sorted(numbers)))} "
                "classes; both need the same"
            )
        return pictures, version, commit

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder."""
        commit = self._listed[2]
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
        """The names of the classes, None where the dataset has none."""
        return self.pictures["train"].class_names

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, crop, crop), by default (3, 224, 224)."""
        return 3, self.crop, self.crop

    def prepare_data(self) -> None:
        """Compute the mean image into the cache, once per machine."""
        self._mean()

    def _mean(self) -> Tensor:
        """Return the mean of all training squares, float32 ``(3, S, S)``, cached: it reads all pictures."""
        train = Photographs(
            self.pictures["train"], self.size, torch.arange(len(self.pictures["train"]))
        )
        loader = self._loader(
            train, BatchesInOrder(SequentialSampler(train), BLOCK, drop_last=False)
        )

        def _make() -> dict[str, Tensor]:
            return {"mean": mean_of(lambda: (images for images, _ in loader))[0].float()}

        content = FORMAT, self._listed[1], self.size
        return made_once("mean", content, self.cache_dir, _make)["mean"]

    def load(self, device: torch.device) -> None:
        """Create the three datasets, which decode their images on access."""
        mean, train, val = self._mean(), self.pictures["train"], self.pictures["validation"]
        if not 0 < (n := self.val_images) < len(val):
            raise ActlabError(
                f"data.val_images {n}: {self.dataset} has {len(val)} validation images; give fewer, at least 1"
            )
        # The same for every run
        order = torch.randperm(len(val), generator=generator(0, "val_images"))
        random, fixed = Crops(mean, self.crop, random=True), Crops(mean, self.crop)
        self.train = Photographs(train, self.size, torch.arange(len(train)), random, device)
        self.val, self.test = (
            Photographs(val, self.size, part.sort().values, fixed, device)
            for part in (order[:n], order[n:])
        )

    def _loader(self, samples: Samples, batches: Sampler[Any]) -> DataLoader[Any]:
        pinned = samples.device.type == "cuda"
        return ReadingLoader(
            samples,
            batch_sampler=batches,
            collate_fn=as_it_is,
            num_workers=self.workers,
            pin_memory=pinned,
        )
