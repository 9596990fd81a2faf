"""CIFAR-10 and CIFAR-100: colour images of 32×32 pixels in the layout of the Hugging Face hub."""

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
from actlab.storage.resources import resource

SHAPE = (3, 32, 32)
VARIANTS = ("cifar10", "cifar100")
FLIPS = ("none", "random", "both")
SAMPLE_VALIDATION = 50
# Labels of a variant → K; None are its usual ones.
CLASSES = {("cifar10", None): 10, ("cifar100", None): 100, ("cifar100", "coarse_label"): 20}


class CIFARDataModule(DecodedImages):
    """CIFAR, preprocessed once, augmented in training; validation is the first training images in file order.

    Batches: images ``(B, 3, 32, 32)`` float32, labels ``(B,)`` int64. In memory are 12,288 bytes an image: 614
    MB for 50,000, 737 MB with the test images. What steps such as whitening learn, they learn from the images
    that are trained on: neither validation nor test images count.

    Args:
        variant: which of the two it is; says the default of ``dataset`` and the sample.
        dataset: a hub id, or a local folder in the hub's layout; by default ``uoft-cs/cifar10`` or
            ``uoft-cs/cifar100``.
        label: column of the labels; by default ``label``, or ``fine_label`` of CIFAR-100, whose 20 superclasses
            are ``coarse_label``.
        sample: take the embedded sample instead: 200 training images, 50 of them validation, and 50 test images
            of CIFAR-10; for CIFAR-100 generated patterns, 200 and 100.
        preprocessing: steps in order, of ``unit``, ``scale``, ``mean``, ``gcn`` and ``zca``; one with settings
            is ``{name: zca, eps: 0.1}``.
        crop: training images get this many zeros on each side, then a random window of 32×32 is cut; 4 in the
            papers, 0 for none.
        flip: ``none``; ``random`` mirrors half of the training images; ``both`` shows each of them twice an
            epoch, as it is and mirrored (the script of GELU §3.5, CIFAR-100).
        noise: standard deviation of Gaussian noise on preprocessed training images; 0.15 in GELU §3.5,
            CIFAR-10.
        batch_size: of the global training batch.
        eval_batch_size: for validation, test and prediction.
        validation: number of validation images, the first in file order; by default 5,000, of a sample 50.
        train_on_all: train on all training images; validation then measures fit alone.
        cache_dir: where decoded tensors are kept; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: of a hub dataset: a commit, tag or branch; by default the newest. A run records the commit.
        seed: the order of batches and the augmentation are functions of it.

    Raises:
        ActlabError: for a dataset that is missing, damaged, of another kind or sorted by class, and for
            settings that cannot be.
    """

    channels = SHAPE[0]

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
            str(resource(f"data/samples/{variant}")) if sample else dataset or f"uoft-cs/{variant}",
            validation=validation if validation is not None else SAMPLE_VALIDATION if sample else 5000,
            train_on_all=train_on_all,
            cache_dir=cache_dir,
            revision=None if sample else revision,
            label=label,
            sample=sample,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            seed=seed,
        )
        self.variant, self.steps = variant, steps_of(preprocessing)
        self.both_ways, self.augmentation = flip == "both", Augmentation(crop, flip == "random", noise)

    def check(self, found: Images) -> None:
        """Check that a dataset is the one that the config means.

        Raises:
            ActlabError: for images of another size, or another number of classes.
        """
        if (shape := tuple(found.tensors["train_images"].shape[1:])) != SHAPE:
            sizes = ["×".join(map(str, size)) for size in (shape, SHAPE)]
            raise ActlabError(f"dataset {self.dataset!r} has images of {sizes[0]}, CIFAR has {sizes[1]}")
        expected = CLASSES.get((self.variant, self.label), found.num_classes)
        if found.num_classes != expected:
            raise ActlabError(
                f"dataset {self.dataset!r} has {found.num_classes} classes, {self.variant} has {expected}; "
                f"give the folder or hub id of {self.variant}, or another data.variant"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, 32, 32)."""
        return SHAPE

    def prepare_data(self) -> None:
        """Decode, and learn what preprocessing must know, into the cache, once a machine."""
        self._preprocessing()

    def _preprocessing(self) -> Preprocessing:
        return fitted(self.images.tensors["train_images"][self.first :], self.steps, self.cache_dir)

    def load(self, device: torch.device) -> None:
        """Split the training images in file order, preprocess all."""
        preprocess, n = self._preprocessing(), self.validation
        images, test_images = (self.images.tensors[f"{split}_images"] for split in ("train", "test"))
        labels, test_labels = (self.images.tensors[f"{split}_labels"].to(device) for split in ("train", "test"))
        train = preprocess(images[self.first :], device)
        val = train[:n] if self.train_on_all else preprocess(images[:n], device)
        kind = BothWays if self.both_ways else TensorDataset
        self.train = kind(train, labels[self.first :], transform=self.augmentation)
        self.val = TensorDataset(val, labels[:n])
        self.test = TensorDataset(preprocess(test_images, device), test_labels)
