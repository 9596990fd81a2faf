"""Limits on batches in a Trainer's arguments: the int 1 means one batch, the float 1.0 all batches."""

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
    """Restore the integers among the arguments `BATCHES` of a parsed Trainer section, in place.

    Lightning accepts an int or a float. Which type the parser tries first depends on earlier imports, because
    Python keeps one object for both orders of a union. The int 1 could become 1.0, the whole epoch.
    """
    for key in BATCHES:
        value = given.get(key)
        if isinstance(value, str) and value.isdecimal():  # from the command line
            value = int(value)
        if type(value) is int and isinstance(trainer.get(key), float):
            trainer[key] = value


def limited(loader: Any, limit: int | float, key: str) -> Iterator[Any]:
    """Return the batches of a data loader up to a Trainer's limit, as in Lightning's own loops.

    Args:
        loader: the data loader.
        limit: number of batches above 0, or as a float the fraction of batches.
        key: the config key of the limit, for the error.

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
