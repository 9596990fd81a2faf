"""Numbers of batches in a Trainer's arguments: 1 is one batch, and 1.0 is all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from itertools import islice
from typing import Any

from actlab.errors import ActlabError

BATCHES = (
    *("limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches"),
    *("overfit_batches", "val_check_interval"),
)


def restore_batches(trainer: MutableMapping[str, Any], given: Mapping[str, Any]) -> None:
    """Give a parsed Trainer its whole numbers of `BATCHES` back, in place.

    Lightning takes an int or a float there. Which of them the parser tries first depends on what was imported
    before, as Python keeps one object for both orders of a union; then 1 batch becomes 1.0, the whole epoch.
    """
    for key in BATCHES:
        value = given.get(key)
        if isinstance(value, str) and value.isdecimal():  # a word of the command line
            value = int(value)
        if type(value) is int and isinstance(trainer.get(key), float):
            trainer[key] = value


def limited(loader: Any, limit: int | float, key: str) -> Iterator[Any]:
    """The batches of a loader that a Trainer's limit leaves, as in Lightning's own loops.

    Args:
        loader: of batches.
        limit: their number above 0, or as a float their fraction.
        key: of the limit in a config, for the error.

    Raises:
        ActlabError: for a fraction of less than one batch.
    """
    if limit == 1.0 and isinstance(limit, float):
        return iter(loader)
    number = limit if isinstance(limit, int) else int(limit * len(loader))
    if not number:
        raise ActlabError(
            f"{key} {limit}: less than one of {len(loader)} batches; "
            f"give at least {1 / len(loader):.3g}, or a whole number of batches"
        )
    return islice(loader, number)
