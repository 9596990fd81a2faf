"""The datamodule of CIFAR-10 and CIFAR-100, read in the layout of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from actlab.datamodules.augmentation import Augmentation, BothWays
from actlab.datamodules.base import TensorDataset
from actlab.datamodules.decoded import DecodedImages
from actlab.datamodules.images import Images
from actlab.datamodules.preprocessing import Preprocessing, fitted, steps_of
from actlab.errors import ActlabError

SHAPE = (3, 32, 32)
VARIANTS = ("cifar10", "cifar100")
FLIPS = ("none", "random", "both")
# (variant, label column) → K; the label column None is the default column.
CLASSES = {("cifar10", None): 10, ("cifar100", None): 100, ("cifar100", "coarse_label"): 20}


class CIFARDataModule(DecodedImages):
    """CIFAR-10 or CIFAR-100, preprocessed once and augmented during training.

    The first training images in file order are the validation set. Batches: images ``(B, 3, 32, 32)`` float32,
    labels ``(B,)`` int64. Images stay in memory, 12,288 bytes each: 614 MB for 50,000 images, 737 MB with the
    test images. Preprocessing statistics, such as those of whitening, are computed from the images used for
    training only, not from validation or test images.

    Args:
        variant: ``cifar10`` or ``cifar100``; determines the default of ``dataset`` and the sample.
        dataset: a hub id, or a local folder in the hub's layout; by default ``uoft-cs/cifar10`` or
            ``uoft-cs/cifar100``.
        label: column of the labels; by default ``label`` for CIFAR-10 and ``fine_label`` for CIFAR-100, whose
            20 superclasses are in ``coarse_label``.
        sample: use the embedded sample instead. CIFAR-10: 200 training images, 50 of them for validation, and
            50 test images. CIFAR-100: generated patterns, 200 training and 100 test images.
        preprocessing: steps in order, from ``unit``, ``scale``, ``mean``, ``gcn`` and ``zca``; a step with
            settings is a mapping such as ``{name: zca, eps: 0.1}``.
        crop: number of zeros added on each side of a training image before a random 32×32 window is cut; 4 in
            the papers, 0 for no cropping.
        flip: ``none``; ``random`` flips each training image left to right with probability ½; ``both`` shows
            each training image twice per epoch, original and flipped (script of GELU §3.5, CIFAR-100).
        noise: standard deviation of Gaussian noise on preprocessed training images; 0.15 in GELU §3.5,
            CIFAR-10.
        batch_size: size of the global training batch.
        eval_batch_size: batch size for validation, test and prediction.
        validation: number of validation images; by default 5,000, or 50 with ``sample``.
        train_on_all: train on all training images, including the validation images; validation then only
            measures the fit.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the commit.
        seed: determines the order of batches and the augmentation.

    Raises:
        ActlabError: if the dataset is missing, damaged, not CIFAR or sorted by class, or a setting is invalid.
    """

    channels, sample_validation = SHAPE[0], 50

    def __init__(
        self,
        variant: Literal["cifar10", "cifar100"] = "cifar10",
        dataset: str | None = None,
        label: str | None = None,
        sample: bool = False,
        preprocessing: Sequence[str | dict[str, Any]] = ("unit",),
        crop: int = 0,
        flip: Literal["none", "random", "both"] = "none",
        noise: float = 0.0,
        batch_size: int = 100,
        eval_batch_size: int = 500,
        validation: int | None = None,
        train_on_all: bool = False,
        cache_dir: str | None = None,
        revision: str | None = None,
        seed: int = 0,
    ) -> None:
        for name, value, allowed in (("variant", variant, VARIANTS), ("flip", flip, FLIPS)):
            if value not in allowed:
                raise ActlabError(f"data.{name} {value!r}: give {', '.join(allowed[:-1])} or {allowed[-1]}")
        if crop >= SHAPE[-1]:
            raise ActlabError(f"data.crop {crop}: give fewer than the {SHAPE[-1]} pixels of an image")
        super().__init__(
            dataset,
            f"uoft-cs/{variant}",
            variant if sample else None,
            validation=validation,
            train_on_all=train_on_all,
            cache_dir=cache_dir,
            revision=revision,
            label=label,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            seed=seed,
        )
        self.variant, self.steps = variant, steps_of(preprocessing)
        self.both_ways, self.augmentation = flip == "both", Augmentation(crop, flip == "random", noise)

    def check(self, found: Images) -> None:
        """Check that images have CIFAR's size, and that the dataset is not CIFAR in another variant.

        Raises:
            ActlabError: if the image size differs, or the number of classes is that of another variant.
        """
        if (shape := tuple(found.tensors["train_images"].shape[1:])) != SHAPE:
            sizes = ["×".join(map(str, size)) for size in (shape, SHAPE)]
            raise ActlabError(f"dataset {self.dataset!r} has images of {sizes[0]}, CIFAR has {sizes[1]}")
        expected = CLASSES.get((self.variant, self.label), found.num_classes)
        if (
            found.num_classes != expected and found.num_classes in CLASSES.values()
        ):  # else pictures of the user's
            raise ActlabError(
                f"dataset {self.dataset!r} has {found.num_classes} classes, {self.variant} has {expected}; "
                f"give the folder or hub id of {self.variant}, or another data.variant"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, 32, 32)."""
        return SHAPE

    def prepare_data(self) -> None:
        """Decode the images and fit the preprocessing into the cache, once per machine."""
        self._preprocessing()

    def _preprocessing(self) -> Preprocessing:
        return fitted(self.images.tensors["train_images"][self.first :], self.steps, self.cache_dir)

    def load(self, device: torch.device) -> None:
        """Preprocess all images and split the training images in file order."""
        preprocess, n = self._preprocessing(), self.validation
        images, test_images = (self.images.tensors[f"{split}_images"] for split in ("train", "test"))
        labels, test_labels = (self.images.tensors[f"{split}_labels"].to(device) for split in ("train", "test"))
        train = preprocess(images[self.first :], device)
        val = train[:n] if self.train_on_all else preprocess(images[:n], device)
        kind = BothWays if self.both_ways else TensorDataset
        self.train = kind(train, labels[self.first :], transform=self.augmentation)
        self.val = TensorDataset(val, labels[:n])
        self.test = TensorDataset(preprocess(test_images, device), test_labels)
