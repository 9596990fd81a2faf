"""The datamodule of labelled images: decoded once, preprocessed once, augmented in training."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Gt, Lt
from torch import Tensor

from actlab.datamodules.augmentation import Augmentation, BothWays
from actlab.datamodules.base import TensorDataModule, TensorDataset
from actlab.datamodules.cache import made_once
from actlab.datamodules.hub import located
from actlab.datamodules.pictures import LABEL_COLUMNS, Fit, Pictures, rejected
from actlab.datamodules.preprocessing import Preprocessing, fitted, steps_of
from actlab.datamodules.sources import (
    Listing,
    class_names,
    digest_of,
    has_class_folders,
    listed,
    open_tables,
    parquet_files,
)
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.storage.files import temporary
from actlab.storage.paths import at_home, cache_folder
from actlab.validation import Count, Whole, validated

FORMAT = 7  # version of the cache; increased when decoding changes
# The images that this process preprocessed last: its next run mostly needs the same.
_LATEST: dict[str, dict[str, Tensor]] = {}
AUTO = "auto"  # a split that is used if the dataset has it
# Part → name of its `AUTO` split
DEFAULTS = {
    "train": "train",
    "val": "validation",
    "test": "test",
}
VALIDATION = 5000  # validation images of MNIST and CIFAR
Share = Annotated[float, Gt(0), Lt(1)]
SORTED = 50  # this many images of one class in a row are not due to chance


class Images(NamedTuple):
    """Decoded images."""

    tensors: dict[str, Tensor]  # {part}_images uint8 (N, C, H, W) and {part}_labels int64 (N,)
    num_classes: int
    revision: str | None = None  # commit of a hub dataset
    known: tuple[Any, ...] = ()  # what determines the tensors


def decode(
    pictures: Mapping[str, Pictures],
    channels: int,
    given: str,
    size: Sequence[int] | None = None,
    fit: Fit = "crop",
) -> dict[str, Tensor]:
    """Return all images and labels of the parts of the dataset ``given``, and ``num_classes``.

    Raises:
        ActlabError: for all pictures that cannot be read at once, or images of several sizes.
    """
    tensors: dict[str, Tensor] = {}
    unreadable: dict[str, str] = {}
    sizes: dict[tuple[int, int], str] = {}
    for part, of_part in pictures.items():
        stack = of_part.stacked(channels, size, fit)
        tensors |= {f"{part}_images": stack.images, f"{part}_labels": of_part.labels}
        unreadable |= stack.unreadable
        sizes = stack.sizes | sizes

    hint = ""
    if len(sizes) > 1:
        some = [
            f"{name} has size {height}×{width}" for (height, width), name in [*sizes.items()][:2]
        ]
        hint = f"{len(sizes)} different sizes: {', '.join(some)}; set data.size, and data.fit to crop or resize"
    if unreadable:
        unreadable = dict(sorted(unreadable.items()))
        remedy = _left_out_by(unreadable, at_home(given))
        if hint:
            remedy = f"{remedy}; the others have {hint}"
        raise rejected(unreadable, remedy)
    if hint:
        raise ActlabError(f"dataset {given!r} has images of {hint}")
    return tensors | {
        "num_classes": torch.tensor(max(of_part.num_classes for of_part in pictures.values()))
    }


def _left_out_by(names: Iterable[str], folder: Path) -> str:
    """Return the argument that leaves out pictures of a folder; empty for pictures of parquet files."""
    paths = [os.path.relpath(name, folder) for name in names if Path(name).is_relative_to(folder)]
    return f", or set data.leave_out to {json.dumps(paths, ensure_ascii=False)}" if paths else ""


def drawn_from_each_class(
    labels: Tensor, rows: Tensor, share: float, seed: int, part: str
) -> Tensor:
    """Draw some of the ``rows``: of each class a share of all its images, at least one, but never all.

    ``labels (N,)`` are those of all images. The seed and the name of the ``part`` determine the
    draw.
    """
    shuffled = rows[torch.randperm(len(rows), generator=generator(seed, "split", part))]
    drawn: list[Tensor] = []
    for label in sorted(set(labels.tolist())):
        of_class = shuffled[labels[shuffled] == label]
        number = max(round(share * int((labels == label).sum())), 1)
        drawn.append(of_class[: max(min(number, len(of_class) - 1), 0)])
    return torch.cat(drawn).sort().values


def _name_of(part: str, split: str) -> str:
    return DEFAULTS[part] if split == AUTO else split


def _as_slice(rows: Tensor) -> Tensor | slice:
    """Return sorted rows as a slice where they have no gaps, so that tensors need no copy."""
    if len(rows) and int(rows[-1] - rows[0]) + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


class ImageDataModule(TensorDataModule):
    """Labelled images, from the hub, from parquet files in its layout or from class folders.

    Batches: images ``(B, C, H, W)`` float32, labels ``(B,)`` int64. Images stay in memory, as bytes
    if the only preprocessing step is ``unit``, otherwise as float32. Preprocessing statistics, such
    as those of whitening, are computed from the images used for training only.

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
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        seed: determines the order of batches and the augmentation.

    Raises:
        ActlabError: if the dataset is missing, damaged, of another layout or sorted by class, or a
            setting is invalid. All pictures that cannot be read are listed at once.
    """

    absence = (
        "data.test_split is null: use actlab validate, or train again with another data.test_split"
    )
    sample = False  # whether the dataset is a sample, whose order of classes is not checked

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
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        takes_validation = validation is not None or train_on_all
        if val_split not in (None, AUTO) and takes_validation:
            raise ActlabError(
                f"data.val_split {val_split!r}: leave out data.validation and data.train_on_all, which take "
                "training images for validation"
            )
        if test_split != AUTO and test is not None:
            raise ActlabError(
                f"data.test_split {test_split!r}: leave out data.test, which takes training images for the test"
            )
        if isinstance(size, Sequence) and len(size) != 2:
            raise ActlabError(f"data.size: expected a number or [height, width], got {list(size)}")
        if fit == "resize" and size is None:
            raise ActlabError("data.fit: resize needs the height and width. Set data.size.")

        self.augmentation = Augmentation(**(augmentation or {}))
        self.steps, self.channels = steps_of(preprocessing), channels
        self.size = (size, size) if isinstance(size, int) else size
        self.fit, self.leave_out = fit, tuple(leave_out)
        self.dataset, self.name, self.revision = dataset, name, revision
        self.splits = {"train": train_split, "val": val_split, "test": test_split}
        self.image, self.label = image, label

        # What a part takes from the training split, if it has no split of its own.
        self.amounts: dict[str, int | float] = {"val": 0.1 if validation is None else validation}
        if test_split is not None:
            self.amounts = {"test": 0.2 if test is None else test, **self.amounts}
        if takes_validation:
            self.splits["val"] = None
        if test is not None:
            self.splits["test"] = None
        self.split_seed = split_seed
        self.train_on_all, self.cache_dir = train_on_all, cache_dir

    @cached_property
    def _located(self) -> tuple[Path, str | None]:
        """Return the dataset's folder and, of a hub dataset, its commit."""
        return located(self.dataset, self.revision)

    @cached_property
    def images(self) -> Images:
        """The decoded dataset; read on first use, or memory-mapped from the cache of an earlier use."""
        splits = {part: split for part, split in self.splits.items() if split is not None}
        folder, commit = self._located
        content = commit or digest_of(folder, train=splits["train"])
        columns = self.image, self.label
        known: tuple[Any, ...] = (
            *(
                FORMAT,
                self.dataset if commit else "",
                content,
                splits,
                self.channels,
                self.name,
                *columns,
            ),
        )
        if self.size or self.leave_out:  # the defaults keep the keys of earlier caches
            known = (*known, self.size and tuple(self.size), self.fit, self.leave_out)
        tensors = made_once("images", known, self.cache_dir, partial(self._read, splits, content))
        images = Images(tensors, int(tensors.pop("num_classes")), commit, known)
        self.check(images)
        return images

    def _read(self, splits: Mapping[str, str], content: str) -> dict[str, Tensor]:
        """Decode the images of some parts; an `AUTO` split only if the dataset has it."""
        folder, commit = self._located
        names = {part: _name_of(part, split) for part, split in splits.items()}
        cache = cache_folder(self.cache_dir)

        # The reader's copy goes at once: it would double the disk space.
        with temporary(cache, "reading", folder=True) as place:
            tables = open_tables(folder, [*names.values()], place, self.name, True, self.leave_out)
            pictures = {
                part: Pictures(tables, split, self.image, self.label, self.dataset)
                for part, split in names.items()
                if splits[part] != AUTO or split in tables
            }
            made = decode(pictures, self.channels, self.dataset, self.size, self.fit)

        if not commit and digest_of(folder, train=splits["train"]) != content:
            raise ActlabError(
                f"{folder} changed while it was read; run again when its files are complete"
            )
        return made

    def check(self, images: Images) -> None:
        """Raise an ActlabError if the dataset does not match the config."""
        side = min(images.tensors["train_images"].shape[2:])
        if self.augmentation.crop >= side:
            raise ActlabError(
                f"crop {self.augmentation.crop}: give fewer than the {side} pixels of an image"
            )

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
    def counts(self) -> Mapping[str, int]:  # type: ignore[override]
        """The number of images in each split of the dataset."""
        tensors = self.images.tensors
        return {
            part: len(tensors[f"{part}_labels"]) for part in DEFAULTS if f"{part}_labels" in tensors
        }

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
        """The sorted rows of the training split that each part takes; files sorted by class are rejected."""
        tensors = self.images.tensors
        rest = torch.arange(len(tensors["train_labels"]))
        taken: dict[str, Tensor] = {}
        for part, amount in self.amounts.items():
            if f"{part}_images" not in tensors:
                taken[part] = self._taken(part, amount, rest)
                if part == "test" or not self.train_on_all:
                    rest = rest[~torch.isin(rest, taken[part])]
        return {**taken, "train": rest}

    def _taken(self, part: str, amount: int | float, rest: Tensor) -> Tensor:
        """Return the rows, among the ``rest``, of a part that has no split of its own."""
        labels, kind = self.images.tensors["train_labels"], {"val": "validation"}.get(part, part)
        if isinstance(amount, float):
            rows = drawn_from_each_class(labels, rest, amount, self.split_seed, kind)
            if not len(rows):
                raise ActlabError(
                    f"data.{kind} {amount}: {self.dataset} has too few training images of each class; add some"
                )
            return rows

        if not 0 < amount < len(rest):
            raise ActlabError(
                f"data.{kind} {amount}: {self.dataset} has {len(rest)} training images; set a smaller number, "
                "at least 1, or a share, such as 0.1"
            )
        rows, others = rest[:amount], set(labels[rest[amount:]].tolist())
        first = set(labels[rows].tolist())
        by_class = (amount >= SORTED and len(first) == 1 < len(others)) or first - others
        trained_on = self.train_on_all and part == "val"
        if by_class and not (self.sample or trained_on):
            raise ActlabError(
                f"data.{kind} {amount}: the first {amount} training images of {self.dataset} are the {kind} "
                f"set and have {len(first)} classes, {len(first - others)} of which no other image has; the "
                f"files seem sorted by class: shuffle the dataset, or set data.{kind} to a share, such as 0.1"
            )
        return rows

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the classes, None where the dataset has none."""
        folder, listing = self._located[0], self._listed("train")
        if listing is not None:
            return listing.classes
        return class_names(parquet_files(folder), (self.label,) if self.label else LABEL_COLUMNS)

    def _listed(self, part: str) -> Listing | None:
        """Return the pictures of a part in class folders, in the order of its images."""
        folder, train = self._located[0], str(self.splits["train"])
        if not has_class_folders(folder, train):
            return None
        name = _name_of(part, str(self.splits[part]))
        return listed(folder, name, train, mixed=True, leave_out=self.leave_out)

    def _file_names(self, part: str) -> list[str] | None:
        """Return the paths of a part's pictures from the dataset's folder, None if they are not files."""
        rows = self.rows.get(part)
        listing = self._listed(part if rows is None else "train")
        if listing is None:
            return None
        files = [os.path.relpath(file, self._located[0]) for file in listing.files]
        return files if rows is None else [files[row] for row in rows.tolist()]

    def prepare_data(self) -> None:
        """Decode the images and fit the preprocessing into the cache, once per machine."""
        self._preprocessing()

    def _preprocessing(self) -> Preprocessing:
        rows = _as_slice(self.rows["train"])
        return fitted(self.images.tensors["train_images"][rows], self.steps, self.cache_dir)

    def load(self, device: torch.device) -> None:
        """Preprocess all images; divide the training split into the parts without a split of their own."""
        rows = self.rows
        tensors, as_bytes = self.images.tensors, self.steps == steps_of(["unit"])
        # Bits may depend on the number of threads.
        settings = self.amounts, self.split_seed, self.train_on_all
        key = repr((self.images.known, self.steps, settings, device, torch.get_num_threads()))
        if key not in _LATEST:
            _LATEST.clear()  # at once: two datasets may not fit in memory
        kept = _LATEST.setdefault(key, {})
        preprocess = cache(self._preprocessing)  # which digests all training images

        def part(name: str) -> tuple[Tensor, Tensor]:
            split, chosen = (
                ("train", _as_slice(rows[name])) if name in rows else (name, slice(None))
            )
            images, labels = (tensors[f"{split}_{kind}"][chosen] for kind in ("images", "labels"))
            if as_bytes:
                return images.to(device), labels.to(device)
            if name not in kept:
                kept[name] = preprocess()(images, device)
            return kept[name], labels.to(device)

        train, as_they_are = part("train"), Augmentation()
        kind = BothWays if self.augmentation.flip == "both" else TensorDataset
        self.train = kind(*train, transform=self.augmentation)
        if self.train_on_all:  # shares the memory of the training images
            chosen = _as_slice(torch.searchsorted(rows["train"], rows["val"]))
            val = train[0][chosen], train[1][chosen]
        else:
            val = part("val")
        self.val = TensorDataset(*val, transform=as_they_are)
        has_test = "test" in rows or "test_images" in tensors
        self.test = TensorDataset(*part("test"), transform=as_they_are) if has_test else None
        if self.test is not None:
            self.test.file_names = self._file_names("test")
