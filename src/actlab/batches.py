"""Numbers of batches in a Trainer's arguments: 1 is one batch, and 1.0 is all of them."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

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
        if type(given.get(key)) is int and isinstance(trainer.get(key), float):
            trainer[key] = given[key]
