"""Datasets of the hub, from the network or from what its reader has kept of them on this computer."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from threading import Thread
from typing import Any

from actlab.datamodules.images import words
from actlab.errors import ActlabError

PATIENCE = 10.0  # seconds in which the hub must answer, name look-up and connection included
_COMMIT = re.compile(r"[@/]([0-9a-f]{40})/")
_LOGGERS = ("datasets", "huggingface_hub")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the reader's progress bars and log lines: what matters of them is in our own errors."""
    import datasets

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels, bars = [logger.level for logger in loggers], datasets.are_progress_bars_disabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()


@lru_cache(maxsize=1)
def answers(endpoint: str) -> bool:
    """Whether a hub answers at all within `PATIENCE`; asked once a process.

    The libraries themselves try again and again, for minutes where no answer comes. A thread asks, for neither
    a name look-up nor a connection to many addresses has a limit of its own.
    """
    from huggingface_hub import get_session

    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(get_session().head(endpoint, timeout=PATIENCE))
        except Exception:  # whatever the library's client of today raises, there was no answer
            return

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(found)


@contextmanager
def offline() -> Iterator[None]:
    """As with ``HF_HUB_OFFLINE=1``: the libraries look into what they have kept, and ask nobody."""
    import datasets
    from huggingface_hub import constants

    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def open_hub(name: str, revision: str | None = None) -> Any:
    """The splits of a dataset of the hub, undecoded; from the hub's own cache when there is no network.

    Raises:
        ActlabError: when it cannot be had, or the cache holds another revision than is asked for.
    """
    import datasets
    import pyarrow
    from huggingface_hub import constants

    cut_off = not (datasets.config.HF_HUB_OFFLINE or answers(constants.ENDPOINT))
    try:
        with quiet(), offline() if cut_off else nullcontext():
            tables = datasets.load_dataset(name, revision=revision)
    except (
        datasets.exceptions.DatasetsError,
        pyarrow.ArrowException,
        ValueError,
        OSError,
        RuntimeError,
    ) as error:
        reason = f"{constants.ENDPOINT} does not answer within {PATIENCE:g} s" if cut_off else words(error)
        raise ActlabError(
            f"dataset {name!r} cannot be had from the hub ({reason}); check the id and the network, give "
            "a local folder in the hub's layout, or set data.sample to true"
        ) from error
    found = revision_of(tables)
    if found and revision and re.fullmatch("[0-9a-f]{40}", revision) and found != revision:
        raise ActlabError(  # without network, the reader takes any revision that it finds
            f"dataset {name!r}: revision {revision} is not on this computer, {found} is; connect to the "
            "network, or give that one"
        )
    return tables


def revision_of(tables: Any) -> str | None:
    """The commit of a hub dataset; None where its tables do not say it."""
    for table in tables.values():
        places = [*(table.info.download_checksums or ()), *(file["filename"] for file in table.cache_files)]
        for place in places:
            if found := _COMMIT.search(str(place)):
                return found[1]
    return None
