"""The datamodule of labelled images of one size: decoded once, preprocessed once, augmented in training.

Shapes: ``B`` batch, ``N`` samples, ``C H W`` of an image.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from actlab.datamodules.augmentation import Augmentation, BothWays
from actlab.datamodules.base import Batch, TensorDataModule, TensorDataset
from actlab.datamodules.cache import Cached, made_once
from actlab.datamodules.pictures import Pictures, check_class_names, stacked
from actlab.datamodules.preprocessing import Preprocessing, fitted, steps_of
from actlab.datamodules.sources import (
    digest_of,
    has_class_folders,
    located,
    open_class_folders,
    open_parquet,
    parquet_files,
)
from actlab.datamodules.steps import Unit
from actlab.errors import ActlabError, unknown
from actlab.random.positions import Position
from actlab.storage.files import cache_folder, temporary

FORMAT = 5  # version of the cache; increased when decoding changes
SORTED = 50  # this many images of one class in a row are not due to chance
Flip = Literal["none", "random", "both"]


class Images(NamedTuple):
    """Decoded images.

    Args:
        tensors: ``{part}_images`` uint8 ``(N, C, H, W)`` and ``{part}_labels`` int64 ``(N,)``.
        num_classes: K.
        revision: commit of a hub dataset; None for a local folder.
    """

    tensors: dict[str, Tensor]
    num_classes: int
    revision: str | None = None


def load_images(
    dataset: str,
    splits: Mapping[str, str],
    channels: int,
    *,
    name: str | None = None,
    revision: str | None = None,
    image: str | None = None,
    label: str | None = None,
    cache_dir: str | None = None,
) -> Images:
    """Decode a dataset of images, or memory-map the cache of an earlier call.

    Args:
        dataset: as in `ImageDataModule`, like all that follow ``channels``.
        splits: the split of each part, such as ``{"train": "train", "val": "validation"}``.
        channels: 1 for greyscale, 3 for colour.
        name: of the dataset.
        revision: of a hub dataset.
        image: column of the images.
        label: column of the labels.
        cache_dir: folder of the cache.

    Raises:
        ActlabError: if the dataset is missing, damaged or does not contain the expected images and labels.
    """
    folder, commit = located(dataset, revision)
    as_pictures = has_class_folders(folder)
    if not as_pictures:
        check_class_names(parquet_files(folder), label)
    content = commit or digest_of(folder)
    known = (FORMAT, dataset if commit else "", content, dict(splits), channels, name, image, label)
    key = hashlib.sha256(repr(known).encode()).hexdigest()[:24]
    cache = cache_folder(cache_dir) / f"images-{key}.safetensors"

    def _make() -> Cached:
        # Removed at the end, because the reader's copy would double the disk space.
        with temporary(cache.parent, "reading", folder=True) as place:
            tables = (
                mixed(open_class_folders(folder, splits.values()))
                if as_pictures
                else open_parquet(folder, place, name)
            )
            made = decode(tables, splits, channels, image, label, dataset)
        if not commit and digest_of(folder) != content:
            raise ActlabError(f"{folder} changed while it was read; run again when its files are complete")
        return Cached(made.tensors, {"num_classes": str(made.num_classes)})

    names = [f"{part}_{kind}" for part in splits for kind in ("images", "labels")]
    tensors, metadata = made_once(cache, names, _make)
    return Images(tensors, int(metadata["num_classes"]), commit)


def mixed(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables of class folders in the order of a digest of their files' names.

    In the order of the names, the first pictures, which are the validation set, would all be of one class.
    """
    found = {}
    for split, table in tables.items():
        paths = table.with_format("arrow")[:].column("image").combine_chunks().field("path").to_pylist()
        names = ["/".join(Path(path).parts[-2:]) for path in paths]
        digests = [hashlib.sha256(os.fsencode(name)).digest() for name in names]
        found[split] = table.select(sorted(range(len(table)), key=digests.__getitem__))
    return found


def decode(
    tables: Mapping[str, Any],
    splits: Mapping[str, str],
    channels: int,
    image: str | None,
    label: str | None,
    given: str,
) -> Images:
    """Return all images and labels of the splits as tensors; arguments as in `load_images`.

    Raises:
        ActlabError: if a split or column is missing, or images or labels are unusable.
    """
    tensors: dict[str, Tensor] = {}
    classes = 0
    for part, split in splits.items():
        pictures = Pictures(tables, split, image, label, given)
        tensors[f"{part}_images"], tensors[f"{part}_labels"] = stacked(pictures, channels), pictures.labels
        classes = max(classes, pictures.num_classes)
    if len(shapes := {tuple(tensors[f"{part}_images"].shape[1:]) for part in splits}) > 1:
        raise ActlabError(f"the splits of dataset {given!r} have images of different sizes: {sorted(shapes)}")
    return Images(tensors, classes)


def pixels(batch: Batch, position: Position) -> Batch:
    """Convert images uint8 ``(…, C, H, W)`` to float32 in [0, 1], not centred (GELU §3.1); keep the labels."""
    images, labels = batch
    return images.to(torch.float32).div_(255), labels


def augmented_pixels(augmentation: Augmentation, batch: Batch, position: Position) -> Batch:
    """Augment a batch of `pixels`."""
    return augmentation(pixels(batch, position), position)


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
            validation set, and the rest is trained on.
        test_split: name of the test split; null: there is none, and no test metrics.
        image: column of the images; by default ``image`` or ``img``.
        label: column of the labels; by default ``label``, ``fine_label`` or ``labels``.
        channels: 1 for greyscale, 3 for colour.
        preprocessing: steps in order, from ``unit``, ``scale``, ``mean``, ``gcn`` and ``zca``; a step with
            settings is a mapping such as ``{name: zca, eps: 0.1}``.
        augmentation: of training images, such as ``{crop: 4, flip: random, noise: 0.15}``. ``crop``: number of
            zeros added on each side before a random window of the image's size is cut. ``flip``: ``random``
            flips with probability ½; ``both`` shows each image twice per epoch, original and flipped.
            ``noise``: standard deviation of Gaussian noise on preprocessed images.
        batch_size: size of the global training batch.
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
        validation: int | None = None,
        train_on_all: bool = False,
        cache_dir: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        if val_split is not None and (validation is not None or train_on_all):
            raise ActlabError(
                f"data.val_split {val_split!r}: leave out data.validation and data.train_on_all, which take "
                "the first training images for validation"
            )
        settings = dict(augmentation or {})
        if strange := sorted(settings.keys() - {"crop", "flip", "noise"}):
            raise unknown("setting of data.augmentation", strange[0], ("crop", "flip", "noise"))
        flip, allowed = settings.pop("flip", "none"), get_args(Flip)
        if flip not in allowed:
            raise ActlabError(f"flip {flip!r}: give {', '.join(allowed[:-1])} or {allowed[-1]}")
        if channels not in (1, 3):
            raise ActlabError(f"data.channels {channels}: give 1 for greyscale or 3 for colour")
        self.augmentation = Augmentation(**settings, flip=flip == "random")
        self.both_ways, self.steps, self.channels = flip == "both", steps_of(preprocessing), channels
        self.dataset, self.name, self.revision = dataset, name, revision
        self.splits = {"train": train_split, "val": val_split, "test": test_split}
        self.image, self.label = image, label
        self.validation = 5000 if validation is None else validation
        self.train_on_all, self.cache_dir = train_on_all, cache_dir
        self._images: Images | None = None

    @property
    def images(self) -> Images:
        """The decoded dataset; read on first use."""
        if self._images is None:
            found = load_images(
                self.dataset,
                {part: split for part, split in self.splits.items() if split is not None},
                self.channels,
                **{key: getattr(self, key) for key in ("name", "revision", "image", "label", "cache_dir")},
            )
            self.check(found)
            self._images = found
        return self._images

    def check(self, found: Images) -> None:
        """Raise an ActlabError if the dataset does not match the config."""
        side = min(found.tensors["train_images"].shape[2:])
        if self.augmentation.crop >= side:
            raise ActlabError(f"crop {self.augmentation.crop}: give fewer than the {side} pixels of an image")

    def setup(self, stage: str) -> None:
        """Load the datasets, onto the accelerator if the Trainer has one.

        Raises:
            ActlabError: if a checkpoint callback selects by validation images that the run trains on, or as in
                the base class.
        """
        callbacks = self.trainer.checkpoint_callbacks if self.trainer and stage == "fit" else []
        monitored = [str(getattr(callback, "monitor", None)) for callback in callbacks]
        if self.train_on_all and (chosen := [name for name in monitored if name.startswith("val/")]):
            raise ActlabError(
                f"a checkpoint callback monitors {chosen[0]}, but data.train_on_all is true: the run trains "
                "on the validation images; leave out the callback's monitor, or set data.train_on_all to false"
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
        """The index of the first image used for training.

        Raises:
            ActlabError: if ``validation`` is below 1 or leaves no training images, or if a class is only in the
                validation set, as in files sorted by class.
        """
        if self.splits["val"] is not None:
            return 0
        n, number = self.validation, len(self.images.tensors["train_images"])
        if not 0 < n < number:
            raise ActlabError(
                f"validation {n}: {self.dataset} has {number} training images; give fewer, at least 1"
            )
        if self.train_on_all:
            return 0
        if not self.sample:
            self._check_order()
        return n

    def _check_order(self) -> None:
        n, labels = self.validation, self.images.tensors["train_labels"]
        first, rest = set(labels[:n].tolist()), set(labels[n:].tolist())
        if n >= SORTED and len(first) == 1 < len(rest):
            raise ActlabError(
                f"data.validation {n}: the first {n} training images of {self.dataset} are all of class "
                f"{min(first)}; the files seem sorted by class: shuffle the dataset"
            )
        if alone := sorted(first - rest):
            raise ActlabError(
                f"data.validation {n}: class {alone[0]} is among the first {n} training images of "
                f"{self.dataset} (the validation set) but not among the other {len(labels) - n}; classes only "
                f"in the validation set: {len(alone)}; the files seem sorted by class: shuffle the dataset, or "
                "give another data.validation"
            )

    def prepare_data(self) -> None:
        """Decode the images and fit the preprocessing into the cache, once per machine."""
        self._preprocessing()

    def _preprocessing(self) -> Preprocessing:
        return fitted(self.images.tensors["train_images"][self.first :], self.steps, self.cache_dir)

    def load(self, device: torch.device) -> None:
        """Preprocess all images; without a validation split, divide the training images in file order."""
        preprocess, first, n = self._preprocessing(), self.first, self.validation
        found, as_bytes = self.images.tensors, self.steps == (Unit(),)

        def placed(images: Tensor) -> Tensor:
            return images.to(device) if as_bytes else preprocess(images, device)

        def part(images: Tensor, labels: Tensor) -> TensorDataset:
            return TensorDataset(images, labels.to(device), transform=pixels if as_bytes else None)

        images, labels = placed(found["train_images"][first:]), found["train_labels"]
        augment = partial(augmented_pixels, self.augmentation) if as_bytes else self.augmentation
        self.train = (BothWays if self.both_ways else TensorDataset)(
            images, labels[first:].to(device), transform=augment
        )
        if self.splits["val"] is not None:
            self.val = part(placed(found["val_images"]), found["val_labels"])
        else:
            shared = images[:n] if self.train_on_all else placed(found["train_images"][:n])
            self.val = part(shared, labels[:n])
        self.test = part(placed(found["test_images"]), found["test_labels"]) if self.splits["test"] else None
