"""Files from the network: checked before they are kept, and kept where they are right already."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from actlab.datamodules.images import words
from actlab.errors import ActlabError
from actlab.storage.files import regular

RETRIES, PATIENCE = 1, 10  # further tries; seconds that a server may be silent
# Writes what is at a URL to a path; pooch's own has a progress bar.
Downloader = Callable[[str, str, Any], None]


class Remote(NamedTuple):
    """A file that can be had.

    Args:
        url: where it is.
        sha256: of its bytes; None where only ``is_right`` knows it.
        is_right: whether a file is the one that is meant.
    """

    url: str
    sha256: str | None = None
    is_right: Callable[[Path], bool] = lambda path: True


def download(files: Mapping[str, Remote], folder: Path, downloader: Downloader | None = None) -> list[Path]:
    """Put files into a folder, each under its name and in one step; one that is there and right stays.

    Args:
        files: by name.
        folder: made where it is missing.
        downloader: stands for the network.

    Returns:
        The paths of the files.

    Raises:
        ActlabError: for a file that cannot be had or is another one than was meant.
    """
    import pooch

    write = downloader or pooch.HTTPDownloader(progressbar=True, timeout=PATIENCE)
    hashes = {name: remote.sha256 and f"sha256:{remote.sha256}" for name, remote in files.items()}
    urls = {name: remote.url for name, remote in files.items()}
    store = pooch.create(str(folder), base_url="", registry=hashes, urls=urls, retry_if_failed=RETRIES)
    return [_fetched(store, name, remote, folder / name, write) for name, remote in files.items()]


def _fetched(store: Any, name: str, remote: Remote, path: Path, write: Downloader) -> Path:
    def checked(url: str, target: str, store: Any) -> None:
        write(url, target, store)
        if not remote.is_right(Path(target)):
            raise ValueError("it is not the file that was meant")

    try:
        if path.is_file() and not remote.is_right(path):
            path.unlink()
        return Path(store.fetch(name, downloader=checked))
    except (OSError, ValueError) as error:
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # pooch leaves the connection of a refused request open
        raise ActlabError(
            f"{name} cannot be had from {remote.url} ({words(error)}); check the network, or put the file into "
            f"{path.parent} yourself"
        ) from error


def git_name(path: Path) -> str:
    """The name that git gives a file's content, 40 hexadecimal digits."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with regular(path).open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()
