"""Third-party files that configs name: find them on a node of a cluster by their digests, or send them there.

A node looks for a file or folder at the path of the config, then below ``$ACTLAB_DATA``, then in its cache
folder, where it also keeps what home sends.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from actlab.engines.parcels import packed, unpacked
from actlab.errors import ActlabError
from actlab.storage import contents
from actlab.storage.files import at_home, cache_folder, resolved, temporary
from actlab.studies.plan import Run

DATA = "ACTLAB_DATA"  # environment variable: a folder of data on this machine
MOST_BYTES = 256 * 2**20  # that are sent to a node
_CODE, _DATA = "code", "data"  # folders of what home sends


class Source(NamedTuple):
    """Something outside actlab that configs name.

    Args:
        text: the value in the config.
        digest: of its content; see `actlab.storage.contents`.
        path: absolute path of the file or folder at home; empty for a module.
    """

    text: str
    digest: str
    path: str

    @property
    def kind(self) -> str:
        """Whether the source is code or data: the folder of its files among what home sends."""
        return _CODE if not self.path or self.text.rpartition(":")[0].endswith(".py") else _DATA

    @property
    def kept(self) -> Path:
        """The folder in this machine's cache folder for what home sends."""
        return cache_folder() / "shipped" / hashlib.sha256(self.digest.encode()).hexdigest()[:32]

    def at(self, path: Path) -> str:
        """Return the text that names the same content at another path."""
        head, _, name = self.text.rpartition(":")
        return f"{path}:{name}" if head.endswith(".py") else str(path)

    def __str__(self) -> str:
        return f"{self.text} (digest {self.digest[:16]})"


def sources_of(runs: Iterable[Run]) -> list[Source]:
    """Return what the configs of some runs name outside actlab; called at home."""
    known = {text: digest for run in runs for text, digest in run.sources.items()}
    return [Source(text, digest, _path_of(text)) for text, digest in known.items()]


def _path_of(text: str) -> str:
    head, colon, _ = text.rpartition(":")
    if colon and head.endswith(".py"):
        return str(resolved(head))
    return "" if contents.code_of(text) or not at_home(text).exists() else str(resolved(text))


def find(source: Source) -> str | None:
    """Return the text by which this machine finds a source; None if its content is not here.

    The folder in which code is found is added to the end of Python's path, for the modules that it imports.
    """
    name, kept = Path(source.path).name, source.kept / source.kind
    data = [Path(os.environ[DATA])] if os.environ.get(DATA) else []
    folders = [Path(source.path).parent, *data, kept] if source.path else [Path("/"), kept]
    for folder in folders:
        text = source.at(folder / name) if source.path else source.text
        if source.kind == _CODE:
            sys.path.append(str(folder))
            importlib.invalidate_caches()
        if contents.matches(text, source.digest):
            return text
        if source.kind == _CODE:
            sys.path.pop()
    return None


def parcel(source: Source) -> bytes:
    """Return a tar of a source's files; called at home.

    Raises:
        ActlabError: if they are part of an installed distribution, or larger than `MOST_BYTES`.
    """
    found = contents.code_of(source.text) if source.kind == _CODE else contents.data_of(Path(source.path))
    if not found:
        raise ActlabError(f"{source} belongs to an installed package: install the same version there")
    size = sum(file.stat().st_size for file in found.values())
    if size > MOST_BYTES:
        raise ActlabError(
            f"{source} has {size / 2**20:,.0f} MB; home sends at most {MOST_BYTES // 2**20}: copy it to the "
            f"same path there, or into a folder there that the variable {DATA} of its Ray processes names"
        )
    return packed({f"{source.kind}/{name}": file for name, file in found.items()})


def receive(source: Source, content: bytes) -> None:
    """Keep what home has sent in the cache folder, instead of an earlier copy that no longer has the digest."""
    files = unpacked(content, (_CODE, _DATA))
    shutil.rmtree(source.kept, ignore_errors=True)
    try:
        with temporary(source.kept.parent, source.kept.name, folder=True) as partial:
            for name, data in files.items():
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                (partial / name).write_bytes(data)
            partial.replace(source.kept)
    except OSError:
        if not source.kept.exists():  # else another process of this machine has written it meanwhile
            raise
