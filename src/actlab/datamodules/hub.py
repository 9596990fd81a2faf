"""Locate a dataset: a folder, or a dataset of the Hugging Face hub in the cache of its library."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any

from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.storage.paths import at_home

PATIENCE = 10.0  # seconds in which the hub must answer, including DNS look-up and connection


def located(
    dataset: str, revision: str | None = None, files: str = "*.parquet"
) -> tuple[Path, str | None]:
    """Return the folder that ``dataset`` names, or the folder with ``files`` and commit of this hub dataset."""
    path = at_home(dataset)
    if dataset and path.is_dir():
        if revision is not None:
            raise ActlabError(
                f"data.revision {revision!r}: the folder {dataset!r} has no revisions; remove the setting"
            )
        return path, None
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    cut_off = False
    try:
        # Before the hub is asked: most ids that are invalid are wrong paths
        validate_repo_id(dataset)
        cut_off = not (constants.HF_HUB_OFFLINE or answers(constants.ENDPOINT))
        with quiet():
            options: Any = {"allow_patterns": [files, "README.md"], "local_files_only": cut_off}
            folder = Path(
                snapshot_download(dataset, repo_type="dataset", revision=revision, **options)
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = (
            f"{constants.ENDPOINT} does not answer within {PATIENCE:g} s"
            if cut_off
            else one_line(error)
        )
        which = "" if revision is None else f", revision {revision!r},"
        raise ActlabError(
            f"dataset {dataset!r}{which} is not a folder and cannot be loaded from the hub ({reason}); check "
            "the id and the network, give a path that exists, or set data.sample to true"
        ) from error
    return folder, folder.name  # the library names a snapshot's folder by its commit


@lru_cache(maxsize=1)
def answers(endpoint: str) -> bool:
    """Return whether the hub answers within `PATIENCE`, asked once; its library would retry for minutes."""
    from huggingface_hub import get_session

    responses: list[Any] = []

    def ask() -> None:
        # Any error means no answer; its type depends on the library's HTTP client
        with suppress(Exception):
            responses.append(get_session().head(endpoint, timeout=PATIENCE))

    # In a thread: neither DNS look-up nor connecting to several addresses has a timeout.
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(responses)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and logs of the hub's libraries; our errors contain what matters."""
    import datasets

    before, bars = logging.root.manager.disable, not datasets.are_progress_bars_disabled()
    logging.disable(logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logging.disable(before)
        if bars:
            datasets.enable_progress_bars()
