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
    """Set the arguments `BATCHES` of a parsed ``trainer`` section back to int, in place, if they were given so.

    The parser may convert the int 1 (one batch) to the float 1.0 (the whole epoch): Python caches
    ``Union[int, float]`` and ``Union[float, int]`` as one object, so the order in which the parser tries the
    types depends on earlier imports.
    """
    for key in BATCHES:
        value = given.get(key)
        if type(value) is int and isinstance(trainer.get(key), float):
            trainer[key] = value


def limited(loader: Any, limit: int | float, key: str) -> Iterator[Any]:
    """Return the batches of a data loader up to a Trainer's limit, the value of ``key``, as Lightning does.

    The limit is a number of batches above 0, or as a float the fraction of batches.
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
