"""Download and verify files; valid local files are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

RETRIES, PATIENCE = 1, 10  # retries; seconds without data after which a request fails
# Called with (URL, target path, pooch), writes the file; by default pooch's HTTPDownloader with a progress bar.
Downloader = Callable[[str, str, Any], None]


class Remote(NamedTuple):
    """A file to download: its URL, its digest or None, and a check of a local copy where there is no digest."""

    url: str
    sha256: str | None = None
    is_right: Callable[[Path], bool] = lambda path: True


def download(files: Mapping[str, Remote], folder: Path, downloader: Downloader | None = None) -> list[Path]:
    """Download files, given by their local names, each atomically; keep files that already exist and are valid.

    A ``downloader`` replaces the network, for example in tests.
    """
    import pooch

    write = downloader or pooch.HTTPDownloader(progressbar=True, timeout=PATIENCE)
    hashes = {name: remote.sha256 and f"sha256:{remote.sha256}" for name, remote in files.items()}
    urls = {name: remote.url for name, remote in files.items()}
    store = pooch.create(str(folder), base_url="", registry=hashes, urls=urls, retry_if_failed=RETRIES)

    def checked(name: str, url: str, target: str, store: Any) -> None:
        write(url, target, store)
        if not files[name].is_right(Path(target)):
            raise ValueError("it is not the expected file")

    def fetched(name: str) -> Path:
        try:
            if (path := folder / name).is_file() and not files[name].is_right(path):
                path.unlink()
            return Path(store.fetch(name, downloader=partial(checked, name)))
        except (OSError, ValueError) as error:
            if (response := getattr(error, "response", None)) is not None:
                response.close()  # pooch leaves the connection of a failed request open
            raise ActlabError(
                f"{name} cannot be downloaded from {urls[name]} ({one_line(error)}); check the network, or put "
                f"the file into {folder} yourself"
            ) from error

    return [fetched(name) for name in files]


def git_name(path: Path) -> str:
    """Return the git blob hash (SHA-1) of a file's content, 40 hexadecimal digits."""
    content = regular(path).read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
