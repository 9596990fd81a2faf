"""ImageNet, or any pictures in folders of classes: decoded by workers while the network trains."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor
from torch.utils.data import DataLoader, SequentialSampler

from actlab.datamodules.base import BatchesInOrder, TensorDataModule, as_it_is
from actlab.datamodules.cache import unwritable
from actlab.datamodules.encoded import LAYOUT, Encoded, rows_of, tree
from actlab.datamodules.hub import open_hub, revision_of
from actlab.datamodules.images import check_class_names
from actlab.datamodules.photographs import Photographs, ReadingLoader, Windows, check_sizes, mean_image
from actlab.datamodules.sources import ends_digest, local_folder, open_folder, parquet_files
from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.storage.files import cache_folder
from actlab.storage.resources import resource

SAMPLE_VAL = 8


def _copied(folder: Path, copy: Path) -> Any:
    """The tables of a folder of parquet files, from the copy that the reader keeps; a damaged one is made anew.

    Raises:
        ActlabError: when a file is damaged or missing, the files do not fit together, or the cache cannot be
            written.
    """
    if copy.exists():
        with suppress(ActlabError):
            return open_folder(folder, str(copy))
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{copy}.lock"):
            if copy.exists():  # another process may have made it meanwhile
                with suppress(ActlabError):
                    return open_folder(folder, str(copy))
                shutil.rmtree(copy)
            return open_folder(folder, str(copy))
    except OSError as error:
        raise unwritable(copy.parent, error) from error


class ImageNetDataModule(TensorDataModule):
    """ImageNet as ELU §4.4 takes it: squares of 256, minus their mean, windows of 224, mirrored at random.

    Batches: images ``(B, 3, 224, 224)`` float32, labels ``(B,)`` int64. The paper does not say how a picture
    becomes square; our choice is to cut its central square, as Krizhevsky et al. (2012) do. So the mean of each
    pixel is one over the squares of all training images, it is subtracted from the square, and then a window is
    cut. Values are divided by 255, which the paper does not say either: He's weights pass on the scale of their
    input up to the logits.

    The 50,000 validation images have labels, the test images have not. As in the paper's Fig 6, ``val_images``
    of them, at random, are the validation; the test is on those that are left, so that what is chosen by the
    first is not measured on itself.

    Batches do not depend on the number of devices or workers.

    Args:
        dataset: a hub id; or a folder with ``train/CLASS/*`` and ``val/CLASS/*`` (or ``validation/``), classes
            in order of their names; or a folder of parquet files in the hub's layout, which its reader copies
            into the cache, below ``rows/``, anew when they change; copies of what they were stay there.
        sample: take generated pictures instead: ten classes, 40 training and 20 validation images.
        size: side of the squares.
        crop: side of the windows.
        val_images: how many validation images measure the training; by default all, which are then also the
            test's; of a sample at most 8.
        batch_size: of the global training batch.
        eval_batch_size: for validation, test and prediction.
        workers: processes that read and decode, on each device; 0 for none.
        cache_dir: where the mean is kept; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: of a hub dataset: a commit, tag or branch; by default the newest. A run records the commit.
        seed: order of batches, windows and mirroring are functions of it.

    Raises:
        ActlabError: for a dataset that is missing or has another layout, a picture that cannot be decoded, and
            settings that cannot be.
    """

    slices_batches = True
    stackable = False  # a stack would decode each member's own batches

    def __init__(
        self,
        dataset: str = "ILSVRC/imagenet-1k",
        sample: bool = False,
        size: int = 256,
        crop: int = 224,
        val_images: int | None = None,
        batch_size: int = 256,
        eval_batch_size: int = 250,
        workers: int = 4,
        cache_dir: str | None = None,
        revision: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        check_sizes(size, crop)
        if workers < 0:
            raise ActlabError(f"data.workers {workers}: give a number of processes, or 0 for none")
        self.dataset = str(resource("data/samples/imagenet")) if sample else dataset
        self.revision = None if sample else revision
        self.val_images = min(val_images, SAMPLE_VAL) if sample and val_images else val_images
        self.size, self.crop, self.workers, self.cache_dir = size, crop, workers, cache_dir
        self._parts: dict[str, Encoded] | None = None
        self._commit: str | None = None

    @property
    def encoded(self) -> dict[str, Encoded]:
        """The pictures of ``train`` and ``val`` as their files hold them; listed on first use."""
        if self._parts is None:
            folder = local_folder(self.dataset)
            if folder is None:
                tables = open_hub(self.dataset, self.revision)
                self._commit = revision_of(tables)
                self._parts = rows_of(tables, self.dataset)
            else:
                self._parts = self._of_folder(folder)
        return self._parts

    def _of_folder(self, folder: Path) -> dict[str, Encoded]:
        if self.revision is not None:
            raise ActlabError(
                f"data.revision {self.revision!r}: the folder {self.dataset!r} has no revisions; leave it out"
            )
        if (folder / "train").is_dir() and not any((folder / "train").glob("*.parquet")):
            return tree(folder)
        if next(folder.rglob("*.parquet"), None) is None:
            raise ActlabError(f"{folder} has no folder 'train'; {LAYOUT}, or the hub's parquet files")
        check_class_names(parquet_files(folder))
        content = ends_digest(folder)[:24]  # the reader itself knows files again by their paths and times
        copy = cache_folder(self.cache_dir) / "rows" / content
        return rows_of(_copied(folder, copy), self.dataset, content)

    @property
    def revisions(self) -> dict[str, str]:
        """The commit of the dataset, where it is one of the hub."""
        return {self.dataset: self._commit} if self.encoded and self._commit else {}

    @property
    def num_classes(self) -> int:
        """K."""
        return self.encoded["train"].num_classes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, 224, 224)."""
        return 3, self.crop, self.crop

    def prepare_data(self) -> None:
        """Compute the mean into the cache, once a machine."""
        self._mean()

    def _mean(self) -> Tensor:
        train = Photographs(self.encoded["train"], self.size)
        return mean_image(train, self.workers, cache_folder(self.cache_dir))

    def load(self, device: torch.device) -> None:
        """Choose the validation images; nothing is decoded yet but what the mean needs."""
        mean, val = self._mean(), self.encoded["val"]
        chosen, left = self._chosen(len(val))

        def part(encoded: Encoded, numbers: Tensor | None, random: bool = False) -> Photographs:
            return Photographs(encoded, self.size, numbers, Windows(mean, self.crop, random), device)

        self.train = part(self.encoded["train"], None, random=True)
        self.val, self.test = part(val, chosen), part(val, left)

    def _chosen(self, number: int) -> tuple[Tensor | None, Tensor | None]:
        """Which validation images are the validation, and which the test; None for all."""
        n = self.val_images
        if n is None:
            return None, None
        if not 0 < n < number:
            raise ActlabError(
                f"data.val_images {n}: {self.dataset} has {number} validation images; give fewer, at least 1, "
                "or null for all"
            )
        order = torch.randperm(number, generator=generator(0, "val_images"))  # the same for every run
        return order[:n].sort().values, order[n:].sort().values

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in the seed's order of the epoch."""
        return ReadingLoader(self._part("train"), batch_sampler=self._seeded_batches(), **self._reading())  # type: ignore[arg-type]

    def _in_order(self, part: str) -> DataLoader[Any]:
        samples = self._part(part)
        batches = BatchesInOrder(SequentialSampler(samples), self.eval_batch_size, drop_last=False)
        return ReadingLoader(samples, batch_sampler=batches, **self._reading())  # type: ignore[arg-type]

    def _reading(self) -> dict[str, Any]:
        on_accelerator = self.train is not None and self.train.device.type == "cuda"
        return {"collate_fn": as_it_is, "num_workers": self.workers, "pin_memory": on_accelerator}
