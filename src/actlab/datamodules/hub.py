"""Open datasets of the Hugging Face hub, from the network or from the local cache of its libraries."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

PATIENCE = 10.0  # seconds in which the hub must answer, including DNS look-up and connection
_COMMIT = re.compile("[0-9a-f]{40}")
_COMMIT_IN_PATH = re.compile(rf"[@/]({_COMMIT.pattern})/")
_LOGGERS = ("datasets", "huggingface_hub")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and logs of the hub's libraries; our errors contain what matters."""
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
    """Return whether the hub answers within `PATIENCE`; the result is cached for the process.

    Without an answer, the libraries would retry for minutes. The request runs in a thread because neither DNS
    look-up nor connecting to several addresses has a timeout of its own.
    """
    from huggingface_hub import get_session

    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(get_session().head(endpoint, timeout=PATIENCE))
        except Exception:  # any error means no answer; its type depends on the library's HTTP client
            return

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(found)


@contextmanager
def offline() -> Iterator[None]:
    """Make the hub's libraries read only from their caches, as with ``HF_HUB_OFFLINE=1``."""
    import datasets
    from huggingface_hub import constants

    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def open_hub(name: str, revision: str | None = None) -> Any:
    """Return the splits of a hub dataset, undecoded; without network, read them from the libraries' cache.

    Args:
        name: hub id of the dataset.
        revision: commit, tag or branch; by default the newest, or the latest in the cache without network.

    Raises:
        ActlabError: if the dataset cannot be loaded, or ``revision`` is not in the cache without network.
    """
    import datasets
    import pyarrow
    from huggingface_hub import constants

    cut_off = not (datasets.config.HF_HUB_OFFLINE or answers(constants.ENDPOINT))
    try:
        with quiet(), offline() if cut_off else nullcontext():
            if revision is not None and datasets.config.HF_HUB_OFFLINE:
                return _open_cached(name, revision)
            tables = datasets.load_dataset(name, revision=revision)
    except (
        datasets.exceptions.DatasetsError,
        pyarrow.ArrowException,
        ValueError,
        OSError,
        RuntimeError,
    ) as error:
        reason = f"{constants.ENDPOINT} does not answer within {PATIENCE:g} s" if cut_off else one_line(error)
        raise ActlabError(
            f"dataset {name!r} cannot be loaded from the hub ({reason}); check the id and the network, give "
            "a local folder in the hub's layout, or set data.sample to true"
        ) from error
    # When a request fails, `load_dataset` returns the latest cached revision, whichever was asked for.
    if revision is not None and revision_of(tables) != _commit(name, revision):
        return _open_cached(name, revision)
    return tables


def _open_cached(name: str, revision: str) -> Any:
    """Return the splits of a revision from the libraries' cache.

    Raises:
        ActlabError: if the cache does not hold the revision.
    """
    import datasets
    from datasets.naming import camelcase_to_snakecase
    from datasets.packaged_modules.cache.cache import Cache

    *owner, short = name.split("/")
    folder = Path(datasets.config.HF_DATASETS_CACHE, "___".join([*owner, camelcase_to_snakecase(short)]))
    commit = _commit(name, revision)
    cached = sorted(path for path in folder.glob("*/*/*") if _COMMIT.fullmatch(path.name))
    found = [path for path in cached if path.name == commit]
    if len(found) != 1:
        others = sorted({path.name for path in cached})
        other = f"set data.revision to {' or '.join(others)}" if others else "set data.sample to true"
        raise ActlabError(
            f"dataset {name!r}: revision {revision!r} is not on this computer; connect to the network, or "
            f"{other}"
        )
    builder = Cache(
        repo_id=name,
        dataset_name=short,
        config_name=found[0].parts[-3],
        version=found[0].parts[-2],
        hash=commit,
    )
    builder.download_and_prepare()
    return builder.as_dataset()


def _commit(name: str, revision: str) -> str | None:
    """Return the commit of a revision as last seen by this computer, from ``refs`` in the hub's cache."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    if _COMMIT.fullmatch(revision):
        return revision
    refs = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=name, repo_type="dataset"), "refs")
    reference = refs / revision
    return regular(reference).read_text(encoding="utf-8").strip() if reference.is_file() else None


def revision_of(tables: Any) -> str | None:
    """Return the commit of a hub dataset, or None if its tables do not record the commit."""
    for table in tables.values():
        places = [*(table.info.download_checksums or ()), *(file["filename"] for file in table.cache_files)]
        for place in places:
            if found := _COMMIT_IN_PATH.search(str(place)):
                return found[1]
    return None
