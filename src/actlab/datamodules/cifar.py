"""The datamodule of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from actlab.datamodules.augmentation import Flip
from actlab.datamodules.base import dataset_or
from actlab.datamodules.images import VALIDATION, ImageDataModule, Images
from actlab.errors import ActlabError
from actlab.validation import Count, Whole, validated

# (variant, label column) → K; the label column None is the default column.
CLASSES = {
    ("cifar10", None): 10,
    ("cifar100", None): 100,
    ("cifar100", "coarse_label"): 20,
}


class CIFARDataModule(ImageDataModule):
    """CIFAR-10 or CIFAR-100; the first training images in file order are the validation set.

    `ImageDataModule` with the defaults of CIFAR. A batch has images ``(B, 3, 32, 32)`` float32 and
    labels ``(B,)`` int64. Preprocessed images take 12,288 bytes each: 614 MB for 50,000, 737 MB
    with the test images.

    Args:
        variant: ``cifar10`` or ``cifar100``; determines the default of ``dataset`` and the sample.
        dataset: a hub id or a local folder; by default ``uoft-cs/cifar10`` or ``uoft-cs/cifar100``.
        label: column of the labels; by default ``label`` for CIFAR-10 and ``fine_label`` for
            CIFAR-100, whose 20 superclasses are in ``coarse_label``.
        sample: use the bundled sample of generated patterns instead. CIFAR-10: 200 training images,
            50 of them for validation, and 50 test images. CIFAR-100: 200 training and 100 test
            images.
        preprocessing: see `ImageDataModule`.
        crop: see `ImageDataModule`; 4 in the papers, 0 for no cropping.
        flip: see `ImageDataModule`; ``both`` in the script of GELU §3.5, CIFAR-100.
        noise: see `ImageDataModule`; 0.15 in GELU §3.5, CIFAR-10.
        batch_size: size of the global training batch; an incomplete last batch of an epoch is
            dropped.
        eval_batch_size: batch size for validation, test and prediction.
        validation: number of validation images; by default 5,000, or 50 with ``sample``.
        train_on_all: train on all training images, including the validation images; validation then
            only measures the fit.
        train_images: number of images to train on, see `ImageDataModule`.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the
            commit.
        seed: determines the order of batches and the augmentation.

    Raises:
        ActlabError: if the dataset is CIFAR in another variant, or as in `ImageDataModule`.
    """

    sample_replaces_dataset = True
    published: Mapping[str, int] = {"train": 50_000, "test": 10_000}

    @validated
    def __init__(
        self,
        variant: Literal["cifar10", "cifar100"] = "cifar10",
        dataset: str | None = None,
        label: str | None = None,
        sample: bool = False,
        preprocessing: Sequence[str | dict[str, Any]] = ("unit",),
        crop: int = 0,
        flip: Flip = "none",
        noise: float = 0.0,
        batch_size: int = 100,
        eval_batch_size: int = 500,
        validation: Whole | None = None,
        train_on_all: bool = False,
        cache_dir: str | None = None,
        revision: str | None = None,
        seed: int | None = None,
        train_images: Count | None = None,
    ) -> None:
        # Use the sample, or the dataset with the published number of validation images.
        source = dataset_or(f"uoft-cs/{variant}", dataset, sample, variant)
        if sample:
            revision = None
        if validation is None:
            validation = 50 if sample else VALIDATION

        # The dataset has splits for training and test only
        super().__init__(
            source,
            revision=revision,
            test_split="test",
            label=label,
            preprocessing=preprocessing,
            augmentation={"crop": crop, "flip": flip, "noise": noise},
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            validation=validation,
            train_on_all=train_on_all,
            cache_dir=cache_dir,
            seed=seed,
            train_images=train_images,
        )
        self.variant = variant
        self.sample = sample

    def check(self, images: Images) -> None:
        """Check that the dataset is not CIFAR in another variant, by its number of classes."""
        super().check(images)

        number = images.num_classes
        expected = CLASSES.get((self.variant, self.label), number)
        if number != expected and number in CLASSES.values():
            # Else the user's pictures.
            raise ActlabError(
                f"data.dataset: expected the {expected} classes of {self.variant}, got {number} "
                f"in {self.dataset!r}. Use {self.variant}, or set another data.variant."
            )
