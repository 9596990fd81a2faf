"""A loader whose workers read files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

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
