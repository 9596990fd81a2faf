"""What the datamodules of images share: a dataset in the hub's layout, decoded once, split in file order."""

from __future__ import annotations

from actlab.datamodules.base import TensorDataModule
from actlab.datamodules.images import Images
from actlab.datamodules.sources import load_images
from actlab.errors import ActlabError

SORTED = 50  # so many images of one class in a row are no chance


class DecodedImages(TensorDataModule):
    """Images with labels; validation is the first training images in file order.

    Args:
        dataset: a hub id, or a local folder in the hub's layout.
        validation: number of validation images.
        train_on_all: train on all training images; validation then measures fit alone.
        cache_dir: where decoded tensors are kept; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: of a hub dataset; by default the newest.
        label: column of the labels; by default the usual one.
        sample: whether this is the embedded sample, of which a class may be in validation alone.
        batch_size: of the global training batch.
        eval_batch_size: for validation, test and prediction.
        seed: the order of batches is a function of it.
    """

    channels: int

    def __init__(
        self,
        dataset: str,
        *,
        validation: int,
        train_on_all: bool,
        cache_dir: str | None,
        revision: str | None,
        label: str | None = None,
        sample: bool = False,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        self.dataset, self.label, self.revision = dataset, label, revision
        self.validation, self.train_on_all, self.cache_dir = validation, train_on_all, cache_dir
        self.sample = sample
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

    def check(self, found: Images) -> None:
        """Raise an ActlabError where a dataset is another than the config means; here nothing is refused."""

    @property
    def revisions(self) -> dict[str, str]:
        """The commit of the dataset, where it is one of the hub."""
        return {self.dataset: self.images.revision} if self.images.revision else {}

    @property
    def num_classes(self) -> int:
        """K."""
        return self.images.num_classes

    @property
    def first(self) -> int:
        """The number of the first image that is trained on.

        Raises:
            ActlabError: for a number of validation images that leaves none to train on, or none at all; and for
                one that takes all images of a class, as the first ones of files sorted by class do.
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
                f"{self.dataset}, the validation, and not among the {len(labels) - n} that are trained on, "
                f"{len(alone)} of this kind in all; the files seem sorted by class: shuffle the dataset, or "
                "give another data.validation"
            )
