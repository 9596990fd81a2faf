"""Limits on batches in a Trainer's arguments: the int 1 is one batch, the float 1.0 all batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from actlab.errors import ActlabError

BATCHES = (
    "limit_train_batches",
    "limit_val_batches",
    "limit_test_batches",
    "limit_predict_batches",
    "overfit_batches",
    "val_check_interval",
)


def limited(loader: Any, limit: int | float, key: str) -> Iterator[Any]:
    """Return the batches of a data loader up to a Trainer's limit, as Lightning does.

    The limit is the value of ``key``: a number of batches above 0, or as a float the fraction of
    batches.
    """
    if limit == 1.0 and isinstance(limit, float):
        return iter(loader)

    # At least one batch
    if isinstance(limit, int):
        number = limit
    else:
        number = int(limit * len(loader))
    if number == 0:
        raise ActlabError(
            f"{key}: expected at least one of {len(loader)} batches, got {limit}. "
            f"Use at least {1 / len(loader):.3g}, or a whole number of batches."
        )
    return islice(loader, number)
