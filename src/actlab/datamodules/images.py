"""The datamodule of labelled images: decoded once, preprocessed once, augmented in training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Gt, Lt
from torch import Tensor

from actlab.datamodules.augmentation import Augmentation, BothWays
from actlab.datamodules.base import TensorDataModule, TensorDataset
from actlab.datamodules.cache import made_once
from actlab.datamodules.hub import locate
from actlab.datamodules.pictures import LABEL_COLUMNS, Fit, Pictures, decode
from actlab.datamodules.preprocessing import Preprocessing, fitted, steps_of
from actlab.datamodules.sources import (
    Listing,
    class_names,
    digest_of,
    has_class_folders,
    list_pictures,
    open_tables,
    parquet_files,
)
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.storage.files import temporary
from actlab.storage.paths import cache_folder
from actlab.validation import Count, Whole, validated

FORMAT = 7  # version of the cache; increased when decoding changes
AUTO = "auto"  # a split that is used if the dataset has it
# The name of a part's `AUTO` split.
DEFAULTS = {
    "train": "train",
    "val": "validation",
    "test": "test",
}
VALIDATION = 5000  # validation images of MNIST and CIFAR
SORTED = 50  # this many images of one class in a row are not due to chance
Share = Annotated[float, Gt(0), Lt(1)]
# The images that this process preprocessed last: its next run mostly needs them again.
_LATEST: dict[str, dict[str, Tensor]] = {}


class Images(NamedTuple):
    """Decoded images."""

    # {part}_images uint8 (N, C, H, W) and {part}_labels int64 (N,).
    tensors: dict[str, Tensor]
    num_classes: int
    revision: str | None = None  # commit of a hub dataset
    cache_key: tuple[Any, ...] = ()  # determines the tensors


def draw_from_each_class(
    labels: Tensor, rows: Tensor, share: float, seed: int, part: str
) -> Tensor:
    """Draw some of the ``rows``: a share of all images of each class, at least one, never all.

    Args:
        labels: of all images, ``(N,)``.
        rows: the rows that may be drawn.
        share: of the images of each class.
        seed: determines the draw, together with the name of the part.
        part: its name.

    Returns:
        The drawn rows, sorted.
    """
    order = torch.randperm(len(rows), generator=generator(seed, "split", part))
    shuffled = rows[order]

    drawn: list[Tensor] = []
    for label in sorted(set(labels.tolist())):
        candidates = shuffled[labels[shuffled] == label]
        class_size = int((labels == label).sum())
        number = max(round(share * class_size), 1)
        number = max(min(number, len(candidates) - 1), 0)
        drawn.append(candidates[:number])
    return torch.cat(drawn).sort().values


def _split_name(part: str, split: str) -> str:
    return DEFAULTS[part] if split == AUTO else split


def _as_slice(rows: Tensor) -> Tensor | slice:
    """Return sorted rows without gaps as a slice, so that tensors need no copy."""
    if not len(rows):
        return rows

    start = int(rows[0])
    end = int(rows[-1]) + 1
    return slice(start, end) if end - start == len(rows) else rows


class ImageDataModule(TensorDataModule):
    """Labelled images, from the hub, from parquet files in its layout or from class folders.

    This class divides a dataset into training, validation and test. The modules `sources` and
    `pictures` read the files, `preprocessing` and `augmentation` change the images.

    A batch has images ``(B, C, H, W)`` float32 and labels ``(B,)`` int64. Images stay in memory, as
    bytes if the only preprocessing step is ``unit``, otherwise as float32. Preprocessing
    statistics, such as the whitening matrix, are computed from the images used for training only.

    Pictures may have any mode (grey, palette, transparent, CMYK) and 1 to 16 bits a channel;
    transparency is dropped, as torchvision's ``ImageFolder`` does. Floats and 32 bits are rejected.

    Args:
        dataset: a hub id; a local folder in the hub's layout; or a folder of class folders,
            ``SPLIT/CLASS/*.png`` or, without splits, ``CLASS/*.png``.
        name: of one of several datasets in a folder or repository.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the
            commit.
        train_split: name of the training split. Class folders without splits are all of this split.
        val_split: name of the validation split. ``auto``: ``validation`` (or a folder ``val`` or
            ``valid``), if there is one and neither ``validation`` nor ``train_on_all`` is set; else
            as null. null: validation images are taken from the training split.
        test_split: name of the test split. ``auto``: ``test``, if there is one and ``test`` is not
            set; else test images are taken from the training split. null: no test metrics.
        image: column of the images; by default ``image`` or ``img``.
        label: column of the labels; by default ``label``, ``fine_label`` or ``labels``.
        channels: 1 for greyscale, 3 for colour; pictures are converted.
        size: height and width of all images in pixels, as one number or two; null: as in the files,
            where all images must have one size.
        fit: how a picture gets this size, bilinearly: ``crop`` cuts its largest central part of
            this shape first; ``resize`` changes height and width separately.
        leave_out: pictures of class folders to leave out: a list of paths from the dataset's
            folder. A folder's path leaves out all its pictures.
        preprocessing: steps in order, from ``unit``, ``scale``, ``mean``, ``gcn`` and ``zca``; a
            step with settings is a mapping such as ``{name: zca, eps: 0.1}``.
        augmentation: of training images, such as ``{crop: 4, flip: random, noise: 0.15}``.
            ``crop``: number of zeros added on each side before a random window of the image's size
            is cut. ``flip``: ``random`` flips with probability ½; ``both`` shows each image twice
            per epoch, original and flipped. ``noise``: standard deviation of Gaussian noise on
            preprocessed images.
        batch_size: size of the global training batch; an incomplete last batch of an epoch is
            dropped.
        eval_batch_size: batch size for validation, test and prediction.
        validation: validation images taken from the training split. A share, by default 0.1, is
            drawn from each class by ``split_seed``. A number takes the first images in file order;
            of class folders, in a fixed mixed order.
        test: test images taken from the training split, as ``validation``; by default the share
            0.2. A number takes those before the validation images.
        split_seed: determines the shares; the same for all seeds of a study.
        train_on_all: train on all training images, including the validation images; validation then
            only measures the fit.
        train_images: number of images to train on, the first in file order; null: all. Validation
            and test images are the same as without it.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        seed: determines the order of batches and the augmentation.

    Raises:
        ActlabError: if the dataset is missing, damaged, of another layout or sorted by class, or a
            setting is invalid. All pictures that cannot be read are listed at once.
    """

    absence = (
        "Use actlab validate, "
        "or train again with another data.test_split, which is null here."
    )
    # Whether the dataset is a sample, whose order of classes is not checked.
    sample = False

    @validated
    def __init__(
        self,
        dataset: str,
        name: str | None = None,
        revision: str | None = None,
        train_split: str = "train",
        val_split: str | None = AUTO,
        test_split: str | None = AUTO,
        image: str | None = None,
        label: str | None = None,
        channels: Literal[1, 3] = 3,
        size: Count | Sequence[Count] | None = None,
        fit: Fit = "crop",
        leave_out: Sequence[str] = (),
        preprocessing: Sequence[str | dict[str, Any]] = ("unit",),
        augmentation: dict[str, Any] | None = None,
        batch_size: int = 128,
        eval_batch_size: int = 1000,
        validation: Whole | Share | None = None,
        test: Whole | Share | None = None,
        split_seed: Whole = 0,
        train_on_all: bool = False,
        cache_dir: str | None = None,
        seed: int | None = None,
        train_images: Count | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)

        # Reject settings that contradict each other.
        takes_validation = validation is not None or train_on_all
        if val_split not in (None, AUTO) and takes_validation:
            raise ActlabError(
                "data.val_split: expected auto or null with data.validation or data.train_on_all, "
                f"got {val_split!r}. Remove one of them."
            )
        if test_split != AUTO and test is not None:
            raise ActlabError(
                f"data.test_split: expected auto with data.test, got {test_split!r}. Remove one of "
                "them."
            )
        if isinstance(size, Sequence) and len(size) != 2:
            raise ActlabError(
                f"data.size: expected a number or [height, width], got {list(size)}"
            )
        if fit == "resize" and size is None:
            raise ActlabError(
                "data.size: expected [height, width] with data.fit resize, got null"
            )

        # Where the images are, and how they are decoded and changed.
        self.dataset = dataset
        self.name = name
        self.revision = revision
        self.image = image
        self.label = label
        self.channels = channels
        self.size = (size, size) if isinstance(size, int) else size
        self.fit = fit
        self.leave_out = tuple(leave_out)
        self.steps = steps_of(preprocessing)
        self.augmentation = Augmentation(**(augmentation or {}))
        self.cache_dir = cache_dir

        # The split of each part, null for a part that is taken from the training split.
        self.splits = {"train": train_split, "val": val_split, "test": test_split}
        if takes_validation:
            self.splits["val"] = None
        if test is not None:
            self.splits["test"] = None

        # What such a part takes from the training split, first for the test.
        self.amounts: dict[str, int | float] = {}
        if test_split is not None:
            self.amounts["test"] = 0.2 if test is None else test
        self.amounts["val"] = 0.1 if validation is None else validation
        self.split_seed = split_seed
        self.train_on_all = train_on_all
        self.train_images = train_images

    @cached_property
    def _location(self) -> tuple[Path, str | None]:
        """The dataset's folder and, for a hub dataset, its commit."""
        return locate(self.dataset, self.revision)

    @cached_property
    def images(self) -> Images:
        """The decoded dataset; read on first use, or memory-mapped from an earlier use's cache."""
        # Parts without a split are taken from the training split
        splits = {
            part: split for part, split in self.splits.items() if split is not None
        }

        # A local folder has no commit, so compute a digest
        folder, commit = self._location
        content = commit or digest_of(folder, train=splits["train"])

        # The key determines the pixels. Default sizes stay out of it, as in earlier
        # caches.
        hub_id = self.dataset if commit else ""
        key: tuple[Any, ...] = (
            FORMAT,
            hub_id,
            content,
            splits,
            self.channels,
            self.name,
            self.image,
            self.label,
        )
        if self.size or self.leave_out:
            size = None if self.size is None else tuple(self.size)
            key = (*key, size, self.fit, self.leave_out)

        # Decode, or read the cache.
        read = partial(self._read, splits, content)
        tensors = made_once("images", key, self.cache_dir, read)
        images = Images(tensors, int(tensors.pop("num_classes")), commit, key)
        self.check(images)
        return images

    def _read(self, splits: Mapping[str, str], content: str) -> dict[str, Tensor]:
        """Return images, labels and ``num_classes``; an `AUTO` split is read only if it exists."""
        # Find the split that each part reads
        folder, commit = self._location
        split_names = {part: _split_name(part, split) for part, split in splits.items()}
        names = list(split_names.values())

        # `datasets` reads parquet files through a copy of its own, in this temporary
        # folder; class folders need none. The copy is as large as the images, so it is
        # deleted once decoded.
        with temporary(
            cache_folder(self.cache_dir), "reading", folder=True
        ) as reader_folder:
            tables = open_tables(
                folder,
                names,
                reader_folder,
                self.name,
                mixed=True,
                leave_out=self.leave_out,
            )
            pictures = {}
            for part, name in split_names.items():
                if splits[part] != AUTO or name in tables:
                    pictures[part] = Pictures(
                        tables, name, self.image, self.label, self.dataset
                    )
            tensors = decode(pictures, self.channels, self.dataset, self.size, self.fit)

        # A local folder may have changed while it was read; a commit cannot.
        if not commit and digest_of(folder, train=splits["train"]) != content:
            raise ActlabError(
                f"{folder} changed while it was read. Run again when its files are complete."
            )
        return tensors

    def check(self, images: Images) -> None:
        """Raise an ActlabError if the dataset does not match the config."""
        side = min(images.tensors["train_images"].shape[2:])
        if self.augmentation.crop >= side:
            raise ActlabError(
                f"data.augmentation.crop: expected fewer than the {side} pixels of an image, got "
                f"{self.augmentation.crop}"
            )

    def setup(self, stage: str) -> None:
        """Load the datasets; reject a checkpoint callback that selects by images trained on."""
        if self.trainer and stage == "fit" and self.train_on_all:
            for callback in self.trainer.checkpoint_callbacks:
                monitor = str(getattr(callback, "monitor", None))
                if monitor.startswith("val/"):
                    raise ActlabError(
                        f"a checkpoint callback monitors {monitor}, but data.train_on_all trains "
                        "on the validation images. Remove the callback's monitor, or set "
                        "data.train_on_all to false."
                    )
        super().setup(stage)

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder."""
        commit = self.images.revision
        return {self.dataset: commit} if commit else {}

    @property
    def counts(self) -> Mapping[str, int]:  # type: ignore[override]
        """The number of images in each split of the dataset."""
        counts = {}
        for part in DEFAULTS:
            labels = self.images.tensors.get(f"{part}_labels")
            if labels is not None:
                counts[part] = len(labels)
        return counts

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.images.num_classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(self.images.tensors["train_images"].shape[1:])

    @cached_property
    def rows(self) -> dict[str, Tensor]:
        """The sorted rows of the training split that each part takes.

        Raises:
            ActlabError: if there are too few images, or the files are sorted by class.
        """
        # Select the test rows first, then the validation rows
        tensors = self.images.tensors
        available = torch.arange(len(tensors["train_labels"]))
        rows: dict[str, Tensor] = {}
        for part, amount in self.amounts.items():
            if f"{part}_images" in tensors:
                continue
            rows[part] = self._rows_from_training(part, amount, available)

            # Training does without these rows, except for validation under
            # `train_on_all`.
            if part == "test" or not self.train_on_all:
                available = available[~torch.isin(available, rows[part])]

        # Train on the first of the other rows.
        number = self.train_images or len(available)
        if number > len(available):
            raise ActlabError(
                f"data.train_images: expected at most the {len(available)} training images of "
                f"{self.dataset}, got {number}."
            )
        return {**rows, "train": available[:number]}

    def _rows_from_training(
        self, part: str, amount: int | float, available: Tensor
    ) -> Tensor:
        """Return the rows, of the ``available`` ones, for a part without a split of its own."""
        labels = self.images.tensors["train_labels"]
        key = "validation" if part == "val" else part

        # A share is drawn from each class.
        if isinstance(amount, float):
            rows = draw_from_each_class(labels, available, amount, self.split_seed, key)
            if not len(rows):
                raise ActlabError(
                    f"data.{key}: expected a share of at least one image per class, got {amount} "
                    f"of the training images of {self.dataset}. Set a larger share."
                )
            return rows

        # A number takes the first images.
        if not 0 < amount < len(available):
            raise ActlabError(
                f"data.{key}: expected at least 1 and fewer than the {len(available)} training "
                f"images of {self.dataset}, got {amount}. Set a share, such as 0.1."
            )
        rows = available[:amount]

        # Reject files that are sorted by class. Images that are also trained on may be
        # so.
        classes = set(labels[rows].tolist())
        remaining_classes = set(labels[available[amount:]].tolist())
        missing = classes - remaining_classes
        is_one_class = amount >= SORTED and len(classes) == 1 < len(remaining_classes)
        is_trained_on = self.train_on_all and part == "val"
        if (is_one_class or missing) and not (self.sample or is_trained_on):
            raise ActlabError(
                f"data.{key} {amount}: the first {amount} training images of {self.dataset} have "
                f"{len(classes)} classes, {len(missing)} of which no other image has. Shuffle the "
                f"dataset, which seems sorted by class, or set data.{key} to a share, such as 0.1."
            )
        return rows

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the classes, None if the dataset has none."""
        listing = self._listing("train")
        if listing is not None:
            return listing.classes

        folder, _ = self._location
        columns = (self.label,) if self.label else LABEL_COLUMNS
        return class_names(parquet_files(folder), columns)

    def _listing(self, part: str) -> Listing | None:
        """Return the pictures of a part in class folders, in the order of its images."""
        folder, _ = self._location
        train = str(self.splits["train"])
        if not has_class_folders(folder, train):
            return None
        split = _split_name(part, str(self.splits[part]))
        return list_pictures(folder, split, train, mixed=True, leave_out=self.leave_out)

    def _file_names(self, part: str) -> list[str] | None:
        """Return the paths of a part's pictures from the dataset's folder, None without files."""
        rows = self.rows.get(part)
        listing = self._listing(part if rows is None else "train")
        if listing is None:
            return None

        folder, _ = self._location
        paths = [os.path.relpath(file, folder) for file in listing.files]
        if rows is None:
            return paths
        return [paths[row] for row in rows.tolist()]

    def prepare_data(self) -> None:
        """Decode the images and fit the preprocessing into the cache, once per machine."""
        self._preprocessing()

    def _preprocessing(self) -> Preprocessing:
        rows = _as_slice(self.rows["train"])
        images = self.images.tensors["train_images"][rows]
        return fitted(images, self.steps, self.cache_dir)

    def _latest(self, device: torch.device) -> dict[str, Tensor]:
        """Return the images, by part, that an earlier run preprocessed in this way."""
        settings = (
            self.images.cache_key,
            self.steps,
            (self.amounts, self.split_seed, self.train_on_all),
            device,
            torch.get_num_threads(),  # bits may depend on it
        )
        key = repr(settings)
        if key not in _LATEST:
            _LATEST.clear()  # at once: two datasets may not fit in memory
        return _LATEST.setdefault(key, {})

    def load(self, device: torch.device) -> None:
        """Preprocess all images; divide the training split into parts without their own split."""
        rows = self.rows
        tensors = self.images.tensors
        stays_bytes = self.steps == steps_of(["unit"])
        latest = self._latest(device)
        # Computed only if needed: it digests all training images.
        preprocessing = cache(self._preprocessing)

        def part(name: str) -> tuple[Tensor, Tensor]:
            # Select the images.
            split: str = name
            selection: Tensor | slice = slice(None)
            if name in rows:
                split = "train"
                selection = _as_slice(rows[name])
            images = tensors[f"{split}_images"][selection]
            labels = tensors[f"{split}_labels"][selection].to(device)

            # Preprocess them.
            if stays_bytes:
                return images.to(device), labels
            if name not in latest:
                latest[name] = preprocessing()(images, device)
            return latest[name], labels

        # Training
        train_images, train_labels = part("train")
        dataset_class = BothWays if self.augmentation.flip == "both" else TensorDataset
        self.train = dataset_class(
            train_images, train_labels, transform=self.augmentation
        )

        # Validation, which shares the memory of the training images if they include it
        if self.train_on_all:
            selection = _as_slice(torch.searchsorted(rows["train"], rows["val"]))
            val_images, val_labels = train_images[selection], train_labels[selection]
        else:
            val_images, val_labels = part("val")
        unaugmented = Augmentation()
        self.val = TensorDataset(val_images, val_labels, transform=unaugmented)

        # Test
        self.test = None
        if "test" in rows or "test_images" in tensors:
            self.test = TensorDataset(*part("test"), transform=unaugmented)
            self.test.file_names = self._file_names("test")
