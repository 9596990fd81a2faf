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
    """Set the arguments `BATCHES` back to int, in place, if the parser has converted an int to a float.

    The parser may convert the int 1 (one batch) to the float 1.0 (the whole epoch): Python caches
    ``Union[int, float]`` and ``Union[float, int]`` as one object, so the order in which the parser tries the
    types depends on earlier imports.

    Args:
        trainer: the parsed ``trainer`` section, which is changed.
        given: the same section before parsing; values from the command line may be text.
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
