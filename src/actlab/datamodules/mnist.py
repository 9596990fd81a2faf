"""The datamodule of MNIST and similar greyscale datasets."""

from __future__ import annotations

from collections.abc import Mapping

from actlab.datamodules.base import dataset_or
from actlab.datamodules.images import VALIDATION, ImageDataModule
from actlab.validation import Count, Whole, validated


class MNISTDataModule(ImageDataModule):
    """MNIST with the paper's split: the first training images in file order are for validation.

    `ImageDataModule` with the defaults of MNIST, greyscale. A batch has images ``(B, 1, H, W)``
    float32 in [0, 1], not centred (GELU §3.1), and labels ``(B,)`` int64.

    Args:
        dataset: a hub id or a local folder, of Fashion-MNIST too; by default ``ylecun/mnist``.
        sample: use the bundled sample instead: 5,000 training images, 1,000 of them for
            validation, and 1,000 test images.
        batch_size: size of the global training batch; an incomplete last batch of an epoch is
            dropped.
        eval_batch_size: batch size for validation, test and prediction.
        validation: number of validation images; by default 5,000, or 1,000 with ``sample``.
        train_on_all: train on all training images, including the validation images (autoencoder,
            GELU §3.2); validation then only measures the fit.
        train_images: number of images to train on, see `ImageDataModule`.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the
            commit.
        seed: determines the order of batches.

    Raises:
        ActlabError: as in `ImageDataModule`.
    """

    sample_replaces_dataset = True
    published: Mapping[str, int] = {"train": 60_000, "test": 10_000}

    @validated
    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        batch_size: int = 128,
        eval_batch_size: int = 5000,
        validation: Whole | None = None,
        train_on_all: bool = False,
        cache_dir: str | None = None,
        revision: str | None = None,
        seed: int | None = None,
        train_images: Count | None = None,
    ) -> None:
        # Use the sample, or the dataset with the paper's number of validation images.
        source = dataset_or("ylecun/mnist", dataset, sample, "mnist")
        if sample:
            revision = None
        if validation is None:
            validation = 1000 if sample else VALIDATION

        # The dataset has splits for training and test only
        super().__init__(
            source,
            revision=revision,
            test_split="test",
            channels=1,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            validation=validation,
            train_on_all=train_on_all,
            cache_dir=cache_dir,
            seed=seed,
            train_images=train_images,
        )
        self.sample = sample
