"""Download and verify files; valid local files are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from actlab.errors import ActlabError, one_line

RETRIES, PATIENCE = 1, 10  # retries; seconds without data after which a request fails
# Called with (URL, target path, pooch), writes the file; by default pooch's HTTPDownloader with a progress bar.
Downloader = Callable[[str, str, Any], None]


class Remote(NamedTuple):
    """A file to download."""

    url: str
    sha256: str


def download(files: Mapping[str, Remote], folder: Path, downloader: Downloader | None = None) -> list[Path]:
    """Download files, given by their local names, each atomically; keep valid files that already exist."""
    import pooch

    write = downloader or pooch.HTTPDownloader(progressbar=True, timeout=PATIENCE)
    hashes = {name: f"sha256:{remote.sha256}" for name, remote in files.items()}
    urls = {name: remote.url for name, remote in files.items()}
    store = pooch.create(str(folder), base_url="", registry=hashes, urls=urls, retry_if_failed=RETRIES)
    paths = []
    for name, url in urls.items():
        try:
            paths.append(Path(store.fetch(name, downloader=write)))
        except (OSError, ValueError) as error:
            if (response := getattr(error, "response", None)) is not None:
                response.close()  # pooch leaves the connection of a failed request open
            raise ActlabError(
                f"{name} cannot be downloaded from {url} ({one_line(error)}); check the network, or put the "
                f"file into {folder} yourself"
            ) from error
    return paths
