"""Find datasets of the Hugging Face hub in the cache of its library, and download them into it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from threading import Thread
from typing import Any

from actlab.errors import ActlabError, one_line

PATIENCE = 10.0  # seconds in which the hub must answer, including DNS look-up and connection
FILES = ("*.parquet", "README.md")
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

    Without an answer, the library would retry for minutes. The request runs in a thread because neither DNS
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


def snapshot(name: str, revision: str | None = None) -> Path:
    """Return the folder of a hub dataset, named by its commit; without network, from the library's cache.

    Args:
        name: hub id of the dataset.
        revision: commit, tag or branch; by default the newest, or without network the newest in the cache.

    Raises:
        ActlabError: if the dataset cannot be downloaded, and the cache does not hold the revision.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.file_download import repo_folder_name

    cut_off = not (constants.HF_HUB_OFFLINE or answers(constants.ENDPOINT))
    fetch: Any = partial(snapshot_download, repo_type="dataset", allow_patterns=[*FILES])
    try:
        with quiet():
            return Path(fetch(name, revision=revision, local_files_only=cut_off))
    except (OSError, ValueError, RuntimeError) as error:
        reason = f"{constants.ENDPOINT} does not answer within {PATIENCE:g} s" if cut_off else one_line(error)
        cache = Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=name, repo_type="dataset"))
        commits = sorted(path.name for path in cache.glob("snapshots/*"))
        other = f"set data.revision to {' or '.join(commits)}" if commits else "set data.sample to true"
        which = "" if revision is None else f", revision {revision!r},"
        raise ActlabError(
            f"dataset {name!r}{which} cannot be loaded from the hub ({reason}); check the id and the network, "
            f"give a local folder in the hub's layout, or {other}"
        ) from error
