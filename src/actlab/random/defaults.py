"""The seed of tasks and datamodules that are built without one; loads no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from actlab.errors import ActlabError

SEED_VARIABLE = "PL_GLOBAL_SEED"  # set by Lightning's `seed_everything`


def seed_or_default(seed: int | None) -> int:
    """Return the seed of a task or datamodule.

    Without a seed, it is the seed of Lightning's ``seed_everything``, or 0.
    """
    if seed is not None:
        return seed
    text = os.environ.get(SEED_VARIABLE, "0")
    # Lightning writes a number, but a user may set the variable
    if not text.isdecimal():
        raise ActlabError(
            f"${SEED_VARIABLE}: expected a whole number from 0, got {text!r}"
        )
    return int(text)


@contextmanager
def default_seed(seed: int | None = None) -> Iterator[None]:
    """Make a seed, if any, the seed of ``seed_everything`` within a block."""
    before = os.environ.get(SEED_VARIABLE)
    if seed is not None:
        os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        os.environ.pop(SEED_VARIABLE, None)
        if before is not None:
            os.environ[SEED_VARIABLE] = before
