"""MNIST and its look-alikes: greyscale images in the layout of the Hugging Face hub."""

from __future__ import annotations

import torch

from actlab.datamodules.base import Batch, TensorDataset
from actlab.datamodules.decoded import DecodedImages
from actlab.random.positions import Position
from actlab.storage.resources import resource

SAMPLE_VALIDATION = 1000


def pixels(batch: Batch, position: Position) -> Batch:
    """Images uint8 ``(…, 1, H, W)`` to float32 in [0, 1], not centred (GELU §3.1); labels stay."""
    images, labels = batch
    return images.to(torch.float32).div_(255), labels


class MNISTDataModule(DecodedImages):
    """MNIST with the paper's split: validation is the first images in file order, training the rest.

    Batches: images ``(B, 1, H, W)`` float32 in [0, 1], labels ``(B,)`` int64.

    Args:
        dataset: a hub id, or a local folder in the hub's layout; look-alikes such as Fashion-MNIST serve too.
        sample: take the embedded sample instead: 5,000 training images (1,000 of them validation), 1,000 test.
        batch_size: of the global training batch.
        eval_batch_size: for validation, test and prediction.
        validation: number of validation images, the first in file order; by default 5,000, of the sample 1,000.
        train_on_all: train on all training images (autoencoder, GELU §3.2); validation then measures fit alone.
        cache_dir: where decoded tensors are kept; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: of a hub dataset: a commit, tag or branch; by default the newest. A run records the commit.
        seed: the order of batches is a function of it.

    Raises:
        ActlabError: for a dataset that is missing, damaged, of another kind or sorted by class.
    """

    channels = 1

    def __init__(
        self,
        dataset: str = "ylecun/mnist",
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
            str(resource("data/samples/mnist")) if sample else dataset,
            validation=validation if validation is not None else SAMPLE_VALIDATION if sample else 5000,
            train_on_all=train_on_all,
            cache_dir=cache_dir,
            revision=None if sample else revision,
            sample=sample,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            seed=seed,
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(1, H, W)."""
        return tuple(self.images.tensors["train_images"].shape[1:])

    def prepare_data(self) -> None:
        """Decode into the cache, once a machine."""
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
