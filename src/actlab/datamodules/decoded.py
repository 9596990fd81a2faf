"""The base class of image datamodules whose dataset is decoded once and split in file order."""

from __future__ import annotations

from actlab.datamodules.base import TensorDataModule, check_sample
from actlab.datamodules.images import Images
from actlab.datamodules.sources import load_images
from actlab.errors import ActlabError
from actlab.storage.resources import resource

SORTED = 50  # this many images of one class in a row are not due to chance


class DecodedImages(TensorDataModule):
    """Base class for labelled images; the first training images in file order are the validation set.

    Args:
        dataset: a hub id, or a local folder in the hub's layout; None for the default.
        default: hub id of the default dataset.
        sample: name of the embedded sample to use instead, whose order of classes is not checked; None without.
        validation: number of validation images; by default 5,000, or `sample_validation` of a sample.
        train_on_all: train on all training images, including the validation images; validation then only
            measures the fit.
        cache_dir: folder for decoded tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest.
        label: column of the labels; by default the first column of `LABEL_COLUMNS` that exists.
        batch_size: size of the global training batch.
        eval_batch_size: batch size for validation, test and prediction.
        seed: determines the order of batches.
    """

    sample_replaces_dataset = True
    channels: int
    sample_validation: int

    def __init__(
        self,
        dataset: str | None,
        default: str,
        sample: str | None,
        *,
        validation: int | None,
        train_on_all: bool,
        cache_dir: str | None,
        revision: str | None,
        label: str | None = None,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        check_sample(dataset, sample)
        self.dataset = str(resource(f"data/samples/{sample}")) if sample else dataset or default
        self.label, self.revision = label, None if sample else revision
        number = self.sample_validation if sample else 5000
        self.validation = number if validation is None else validation
        self.train_on_all, self.cache_dir, self.sample = train_on_all, cache_dir, sample
        self._images: Images | None = None

    @property
    def images(self) -> Images:
        """The decoded dataset; read on first use."""
        if self._images is None:
            found = load_images(
                self.dataset, ("train", "test"), self.channels, self.label, self.cache_dir, self.revision
            )
            self.check(found)
            self._images = found
        return self._images

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

    def check(self, found: Images) -> None:
        """Raise an ActlabError if the dataset does not match the config; this base class accepts all."""

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder or an unknown commit."""
        return {self.dataset: self.images.revision} if self.images.revision else {}

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.images.num_classes

    @property
    def first(self) -> int:
        """The index of the first image used for training.

        Raises:
            ActlabError: if ``validation`` is below 1 or leaves no training images, or if a class is only in the
                validation set, as in files sorted by class.
        """
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
