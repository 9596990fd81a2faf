"""Download and verify files; valid local files are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

RETRIES, PATIENCE = 1, 10  # retries; seconds without data after which a request fails
# Called with (URL, target path, pooch), writes the file; by default pooch's HTTPDownloader with a progress bar.
Downloader = Callable[[str, str, Any], None]


class Remote(NamedTuple):
    """A file to download.

    Args:
        url: of the file.
        sha256: expected digest of the file; None if only ``is_right`` verifies it.
        is_right: returns whether a local file is the expected file.
    """

    url: str
    sha256: str | None = None
    is_right: Callable[[Path], bool] = lambda path: True


def download(files: Mapping[str, Remote], folder: Path, downloader: Downloader | None = None) -> list[Path]:
    """Download files into a folder, each atomically; keep files that already exist and are valid.

    Args:
        files: remote files by local name.
        folder: created if missing.
        downloader: replaces the network, for example in tests.

    Returns:
        The paths of the files.

    Raises:
        ActlabError: if a file cannot be downloaded or is not the expected file.
    """
    import pooch

    write = downloader or pooch.HTTPDownloader(progressbar=True, timeout=PATIENCE)
    hashes = {name: remote.sha256 and f"sha256:{remote.sha256}" for name, remote in files.items()}
    urls = {name: remote.url for name, remote in files.items()}
    store = pooch.create(str(folder), base_url="", registry=hashes, urls=urls, retry_if_failed=RETRIES)
    return [_fetch(store, name, remote, folder / name, write) for name, remote in files.items()]


def _fetch(store: Any, name: str, remote: Remote, path: Path, write: Downloader) -> Path:
    def checked(url: str, target: str, store: Any) -> None:
        write(url, target, store)
        if not remote.is_right(Path(target)):
            raise ValueError("it is not the expected file")

    try:
        if path.is_file() and not remote.is_right(path):
            path.unlink()
        return Path(store.fetch(name, downloader=checked))
    except (OSError, ValueError) as error:
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # pooch leaves the connection of a failed request open
        raise ActlabError(
            f"{name} cannot be downloaded from {remote.url} ({one_line(error)}); check the network, or put the "
            f"file into {path.parent} yourself"
        ) from error


def git_name(path: Path) -> str:
    """Return the git blob hash (SHA-1) of a file's content, 40 hexadecimal digits."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with regular(path).open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()
