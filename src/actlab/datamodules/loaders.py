"""Loaders whose workers read files, and that go on in the middle of an epoch after a resume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from actlab.datamodules.base import SeededBatches
from actlab.errors import ActlabError


class ReadingLoader(DataLoader[Any]):
    """The stock loader, but its workers start when the first batch is asked for, and their errors are short.

    Lightning makes iterators that it never uses, and others before it says which epoch it is: workers of the
    stock loader would begin at once, with the batches of another epoch.
    """

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator is one
        """The batches.

        Raises:
            ActlabError: as the data set raises it, in a worker too.
        """
        try:
            yield from super().__iter__()
        except ActlabError as error:  # torch puts the worker's traceback before the message
            raise ActlabError(str(error).rpartition(f"{ActlabError.__name__}: ")[2].strip()) from error


class ResumableLoader(ReadingLoader):
    """A loader of `SeededBatches` that goes on with the very next batch after a resume.

    A batch is a function of (seed, epoch, number of the batch), so its state is two numbers: the epoch and how
    many batches of it were given out, whatever workers have fetched ahead. Lightning keeps the state in its
    checkpoints. Stateful loaders of other packages would have to be told the epoch before they fetch.
    """

    batch_sampler: SeededBatches  # type: ignore[assignment]  # torch would have it yield lists
    given = 0  # batches of the epoch so far
    _resumed = (-1, 0)  # the epoch that is gone on with, and how many of its batches were given

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator is one
        """The batches of the epoch, or those that are left of it."""
        (epoch, given), self._resumed = self._resumed, (-1, 0)
        self.given = self.batch_sampler.first = given if epoch == self.batch_sampler.epoch else 0
        for batch in super().__iter__():
            self.given += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where the loader is."""
        batches = self.batch_sampler
        return {"epoch": batches.epoch, "given": self.given, "batch_size": batches.batch_size}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from where a loader was.

        Raises:
            ActlabError: for batches of another size, which would show some images twice and others never.
        """
        size, now = state_dict["batch_size"], self.batch_sampler.batch_size
        if size != now and 0 < state_dict["given"] < len(self):
            raise ActlabError(
                f"data.batch_size {now}: the checkpoint is from the middle of an epoch of batches of {size}; "
                f"give {size}"
            )
        self._resumed = (state_dict["epoch"], state_dict["given"])
