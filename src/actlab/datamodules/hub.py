"""Locate a dataset: a folder, or a dataset of the Hugging Face Hub in the cache of its library."""

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

# Seconds in which the hub must answer, including DNS look-up and connection.
PATIENCE = 10.0


def locate(
    dataset: str, revision: str | None = None, files: str = "*.parquet"
) -> tuple[Path, str | None]:
    """Return the folder of a dataset and, for a dataset of the Hugging Face Hub, its commit.

    Args:
        dataset: path of a folder, or id of a hub dataset, which is downloaded if necessary.
        revision: commit, tag or branch of a hub dataset.
        files: pattern of the files to download.

    Raises:
        ActlabError: if there is neither such a folder nor such a dataset, the hub cannot be
            reached, or a folder is combined with a revision.
    """
    # Use the user's folder.
    path = at_home(dataset)
    if dataset and path.is_dir():
        if revision is not None:
            raise ActlabError(
                f"data.revision: expected null for the folder {dataset!r}, got {revision!r}. "
                "Remove the setting."
            )
        return path, None

    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    # Download the files, or use the library's cache if it cannot be reached.
    is_cut_off = False
    try:
        # Before the hub is asked: most ids that are invalid are wrong paths
        validate_repo_id(dataset)
        is_cut_off = not (constants.HF_HUB_OFFLINE or answers(constants.ENDPOINT))
        options: Any = {
            "allow_patterns": [files, "README.md"],
            "local_files_only": is_cut_off,
        }
        with quiet():
            snapshot = snapshot_download(
                dataset, repo_type="dataset", revision=revision, **options
            )
    except (OSError, ValueError, RuntimeError) as error:
        reason = one_line(error)
        if is_cut_off:
            reason = f"{constants.ENDPOINT} does not answer within {PATIENCE:g} s"
        at_revision = "" if revision is None else f" at revision {revision!r}"
        raise ActlabError(
            "data.dataset: expected a folder or a dataset of the Hugging Face Hub, got "
            f"{dataset!r}{at_revision} ({reason}). Check the path or id and the network, or set "
            "data.sample to true."
        ) from error

    folder = Path(snapshot)
    return folder, folder.name  # the library names a snapshot's folder by its commit


@lru_cache(maxsize=1)
def answers(endpoint: str) -> bool:
    """Return whether the hub answers within `PATIENCE`. Its library would retry for minutes.

    The hub is asked once in a process.
    """
    from huggingface_hub import get_session

    responses: list[Any] = []

    def ask() -> None:
        # Any error means no answer; its type depends on the library's HTTP client
        with suppress(Exception):
            response = get_session().head(endpoint, timeout=PATIENCE)
            responses.append(response)

    # In a thread: neither DNS look-up nor connecting to several addresses has a
    # timeout.
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(responses)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and logs of the hub's libraries; our errors say what matters."""
    import datasets

    level = logging.root.manager.disable
    has_bars = not datasets.are_progress_bars_disabled()
    logging.disable(logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        logging.disable(level)
        if has_bars:
            datasets.enable_progress_bars()
