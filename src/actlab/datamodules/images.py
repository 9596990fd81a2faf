"""The datamodule of labelled images of one size: decoded once, preprocessed once, augmented in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.augmentation import Augmentation, BothWays
from actlab.datamodules.base import TensorDataModule, TensorDataset
from actlab.datamodules.cache import made_once
from actlab.datamodules.hub import located
from actlab.datamodules.pictures import Pictures
from actlab.datamodules.preprocessing import Preprocessing, fitted, steps_of
from actlab.datamodules.sources import digest_of, open_tables
from actlab.errors import ActlabError
from actlab.storage.files import cache_folder, temporary
from actlab.validation import Whole, validated

FORMAT = 7  # version of the cache; increased when decoding changes
# The images that this process preprocessed last: its next run mostly needs the same.
_LATEST: dict[str, dict[tuple[Any, ...], Tensor]] = {}
SORTED = 50  # this many images of one class in a row are not due to chance


class Images(NamedTuple):
    """Decoded images."""

    tensors: dict[str, Tensor]  # {part}_images uint8 (N, C, H, W) and {part}_labels int64 (N,)
    num_classes: int
    revision: str | None = None  # commit of a hub dataset
    known: tuple[Any, ...] = ()  # what determines the tensors


def decode(pictures: Mapping[str, Pictures], channels: int, given: str) -> dict[str, Tensor]:
    """Return all images and labels of the parts of the dataset ``given``, and ``num_classes``."""
    tensors = {f"{part}_images": of_part.stacked(channels) for part, of_part in pictures.items()}
    if len(shapes := {tuple(images.shape[1:]) for images in tensors.values()}) > 1:
        raise ActlabError(f"the splits of dataset {given!r} have images of different sizes: {sorted(shapes)}")
    tensors |= {f"{part}_labels": of_part.labels for part, of_part in pictures.items()}
    return tensors | {"num_classes": torch.tensor(max(of_part.num_classes for of_part in pictures.values()))}


class ImageDataModule(TensorDataModule):
    """Labelled images of one size, from the hub, from parquet files in its layout or from class folders.

    Batches: images ``(B, C, H, W)`` float32, labels ``(B,)`` int64. Images stay in memory, as bytes if the only
    preprocessing step is ``unit``, otherwise as float32. Preprocessing statistics, such as those of whitening,
    are computed from the images used for training only.

    Args:
        dataset: a hub id; a local folder in the hub's layout; or a folder with ``SPLIT/CLASS/*.png``.
        name: of one of several datasets in a folder or repository.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the commit.
        train_split: name of the training split.
        val_split: name of the validation split; by default the first training images in file order are the
            validation set.
        test_split: name of the test split; null: no test metrics.
        image: column of the images; by default ``image`` or ``img``.
        label: column of the labels; by default ``label``, ``fine_label`` or ``labels``.
        channels: 1 for greyscale, 3 for colour.
        preprocessing: steps in order, from ``unit``, ``scale``, ``mean``, ``gcn`` and ``zca``; a step with
            settings is a mapping such as ``{name: zca, eps: 0.1}``.
        augmentation: of training images, such as ``{crop: 4, flip: random, noise: 0.15}``. ``crop``: number of
            zeros added on each side before a random window of the image's size is cut. ``flip``: ``random``
            flips with probability ½; ``both`` shows each image twice per epoch, original and flipped.
            ``noise``: standard deviation of Gaussian noise on preprocessed images.
        batch_size: size of the global training batch; an incomplete last batch of an epoch is dropped.
        eval_batch_size: batch size for validation, test and prediction.
        validation: number of validation images, without ``val_split``; by default 5,000.
        train_on_all: train on all training images, including the validation images; validation then only
            measures the fit.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        seed: determines the order of batches and the augmentation.

    Raises:
        ActlabError: if the dataset is missing, damaged, of another layout or sorted by class, or a setting is
            invalid.
    """

    sample = False  # whether the dataset is a sample, whose order of classes is not checked

    @validated
    def __init__(
        self,
        dataset: str,
        name: str | None = None,
        revision: str | None = None,
        train_split: str = "train",
        val_split: str | None = None,
        test_split: str | None = "test",
        image: str | None = None,
        label: str | None = None,
        channels: Literal[1, 3] = 3,
        preprocessing: Sequence[str | dict[str, Any]] = ("unit",),
        augmentation: dict[str, Any] | None = None,
        batch_size: int = 128,
        eval_batch_size: int = 1000,
        validation: Whole | None = None,
        train_on_all: bool = False,
        cache_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        if val_split is not None and (validation is not None or train_on_all):
            raise ActlabError(
                f"data.val_split {val_split!r}: leave out data.validation and data.train_on_all, which take "
                "the first training images for validation"
            )
        self.augmentation = Augmentation(**(augmentation or {}))
        self.steps, self.channels = steps_of(preprocessing), channels
        self.dataset, self.name, self.revision = dataset, name, revision
        self.splits = {"train": train_split, "val": val_split, "test": test_split}
        self.image, self.label = image, label
        self.validation = 5000 if validation is None else validation
        self.train_on_all, self.cache_dir = train_on_all, cache_dir

    @cached_property
    def images(self) -> Images:
        """The decoded dataset; read on first use, or memory-mapped from the cache of an earlier use."""
        splits = {part: split for part, split in self.splits.items() if split is not None}
        folder, commit = located(self.dataset, self.revision)
        content = commit or digest_of(folder)
        columns = self.image, self.label
        known = (FORMAT, self.dataset if commit else "", content, splits, self.channels, self.name, *columns)

        def _make() -> dict[str, Tensor]:
            # The reader's copy goes at once: it would double the disk space.
            with temporary(cache_folder(self.cache_dir), "reading", folder=True) as place:
                tables = open_tables(folder, splits.values(), place, self.name, mixed=True)
                pictures = {
                    part: Pictures(tables, split, *columns, self.dataset) for part, split in splits.items()
                }
                made = decode(pictures, self.channels, self.dataset)
            if not commit and digest_of(folder) != content:
                raise ActlabError(f"{folder} changed while it was read; run again when its files are complete")
            return made

        tensors = made_once("images", known, self.cache_dir, _make)
        images = Images(tensors, int(tensors.pop("num_classes")), commit, known)
        self.check(images)
        return images

    def check(self, images: Images) -> None:
        """Raise an ActlabError if the dataset does not match the config."""
        side = min(images.tensors["train_images"].shape[2:])
        if self.augmentation.crop >= side:
            raise ActlabError(f"crop {self.augmentation.crop}: give fewer than the {side} pixels of an image")

    def setup(self, stage: str) -> None:
        """Load the datasets; reject a checkpoint callback that selects by images which the run trains on."""
        callbacks = self.trainer.checkpoint_callbacks if self.trainer and stage == "fit" else []
        for monitored in (str(getattr(callback, "monitor", None)) for callback in callbacks):
            if self.train_on_all and monitored.startswith("val/"):
                raise ActlabError(
                    f"a checkpoint callback monitors {monitored}, but data.train_on_all is true: the run "
                    "trains on the validation images; leave out the callback's monitor, or set "
                    "data.train_on_all to false"
                )
        super().setup(stage)

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder."""
        return {self.dataset: self.images.revision} if self.images.revision else {}

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.images.num_classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(self.images.tensors["train_images"].shape[1:])

    @property
    def first(self) -> int:
        """The index of the first image used for training; files sorted by class are rejected."""
        n, labels = self.validation, self.images.tensors["train_labels"]
        if self.splits["val"] is not None:
            return 0
        if not 0 < n < len(labels):
            raise ActlabError(
                f"validation {n}: {self.dataset} has {len(labels)} training images; give fewer, at least 1"
            )
        if self.train_on_all:
            return 0
        first, rest = set(labels[:n].tolist()), set(labels[n:].tolist())
        by_class = (n >= SORTED and len(first) == 1 < len(rest)) or first - rest
        if by_class and not self.sample:
            raise ActlabError(
                f"data.validation {n}: the first {n} training images of {self.dataset} are the validation set "
                f"and have {len(first)} classes, {len(first - rest)} of which no other image has; the files "
                "seem sorted by class: shuffle the dataset, or give another data.validation"
            )
        return n

    def prepare_data(self) -> None:
        """Decode the images and fit the preprocessing into the cache, once per machine."""
        self._preprocessing()

    def _preprocessing(self) -> Preprocessing:
        return fitted(self.images.tensors["train_images"][self.first :], self.steps, self.cache_dir)

    def load(self, device: torch.device) -> None:
        """Preprocess all images; without a validation split, divide the training images in file order."""
        first, n = self.first, self.validation
        tensors, as_bytes = self.images.tensors, self.steps == steps_of(["unit"])
        # Bits may depend on the number of threads.
        key = repr((self.images.known, self.steps, first, device, torch.get_num_threads()))
        if key not in _LATEST:
            _LATEST.clear()  # at once: two datasets may not fit in memory
        kept = _LATEST.setdefault(key, {})
        preprocess = cache(self._preprocessing)  # which digests all training images

        def part(name: str, begin: int = 0, end: int | None = None) -> tuple[Tensor, Tensor]:
            images, labels = (tensors[f"{name}_{kind}"][begin:end] for kind in ("images", "labels"))
            if as_bytes:
                return images.to(device), labels.to(device)
            if (name, begin, end) not in kept:
                kept[name, begin, end] = preprocess()(images, device)
            return kept[name, begin, end], labels.to(device)

        train, as_they_are = part("train", first), Augmentation()
        kind = BothWays if self.augmentation.flip == "both" else TensorDataset
        self.train = kind(*train, transform=self.augmentation)
        if self.splits["val"] is not None:
            val = part("val")
        elif self.train_on_all:  # shares the memory of the training images
            val = train[0][:n], train[1][:n]
        else:
            val = part("train", 0, n)
        self.val = TensorDataset(*val, transform=as_they_are)
        test = self.splits["test"] and part("test")
        self.test = TensorDataset(*test, transform=as_they_are) if test else None
