"""The seed of tasks and datamodules that are built without one; loads no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from actlab.errors import ActlabError

SEED_VARIABLE = "PL_GLOBAL_SEED"  # set by Lightning's `seed_everything`


def seed_or_default(seed: int | None) -> int:
    """Return the seed of a task or datamodule: as given, else of Lightning's ``seed_everything``, else 0."""
    if seed is not None:
        return seed
    if not (text := os.environ.get(SEED_VARIABLE, "0")).isdecimal():
        raise ActlabError(f"${SEED_VARIABLE} {text!r}: give a whole number from 0")
    return int(text)


@contextmanager
def default_seed(seed: int | None = None) -> Iterator[None]:
    """Use a seed, if any, as that of ``seed_everything`` in a block, and restore the variable afterwards."""
    before = os.environ.get(SEED_VARIABLE)
    if seed is not None:
        os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        os.environ.pop(SEED_VARIABLE, None)
        os.environ |= {} if before is None else {SEED_VARIABLE: before}
