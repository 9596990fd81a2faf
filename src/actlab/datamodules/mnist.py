"""The datamodule of MNIST and similar greyscale datasets in the layout of the Hugging Face hub."""

from __future__ import annotations

import torch

from actlab.datamodules.base import Batch, TensorDataset
from actlab.datamodules.decoded import DecodedImages
from actlab.random.positions import Position


def pixels(batch: Batch, position: Position) -> Batch:
    """Convert images uint8 ``(…, 1, H, W)`` to float32 in [0, 1], not centred (GELU §3.1); keep the labels."""
    images, labels = batch
    return images.to(torch.float32).div_(255), labels


class MNISTDataModule(DecodedImages):
    """MNIST with the paper's split: the first images in file order for validation, the rest for training.

    Batches: images ``(B, 1, H, W)`` float32 in [0, 1], labels ``(B,)`` int64.

    Args:
        dataset: a hub id, or a local folder in the hub's layout; datasets such as Fashion-MNIST work too.
            By default ``ylecun/mnist``.
        sample: use the embedded sample instead: 5,000 training images, 1,000 of them for validation, and 1,000
            test images.
        batch_size: size of the global training batch.
        eval_batch_size: batch size for validation, test and prediction.
        validation: number of validation images; by default 5,000, or 1,000 with ``sample``.
        train_on_all: train on all training images, including the validation images (autoencoder, GELU §3.2);
            validation then only measures the fit.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the commit.
        seed: determines the order of batches.

    Raises:
        ActlabError: if the dataset is missing, damaged, not greyscale or sorted by class.
    """

    channels, sample_validation = 1, 1000

    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        batch_size: int = 128,
        eval_batch_size: int = 5000,
        validation: int | None = None,
        train_on_all: bool = False,
        cache_dir: str | None = None,
        revision: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            dataset,
            "ylecun/mnist",
            "mnist" if sample else None,
            validation=validation,
            train_on_all=train_on_all,
            cache_dir=cache_dir,
            revision=revision,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            seed=seed,
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(1, H, W)."""
        return tuple(self.images.tensors["train_images"].shape[1:])

    def prepare_data(self) -> None:
        """Decode the images into the cache, once per machine."""
        _ = self.images

    def load(self, device: torch.device) -> None:
        """Split the training images in file order."""
        images, labels, test_images, test_labels = (
            self.images.tensors[name].to(device)
            for name in ("train_images", "train_labels", "test_images", "test_labels")
        )
        first, n = self.first, self.validation
        self.train = TensorDataset(images[first:], labels[first:], transform=pixels)
        self.val = TensorDataset(images[:n], labels[:n], transform=pixels)
        self.test = TensorDataset(test_images, test_labels, transform=pixels)
