"""Without Lightning's messages."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's messages and warnings about each run."""
    import pytorch_lightning  # noqa: F401  (an import sets the levels of its loggers)

    # Raise the levels of its loggers.
    levels = {}
    for name in ("pytorch_lightning", "lightning_fabric", "lightning"):
        logger = logging.getLogger(name)
        levels[logger] = logger.level
        logger.setLevel(logging.ERROR)

    # Ignore warnings inside the block, then restore the levels
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
