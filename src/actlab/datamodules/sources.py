"""Where datasets come from: the hub or a local folder in its layout; decoded once into a cache of tensors."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from actlab.datamodules.cache import Cached, made_once
from actlab.datamodules.hub import open_hub, quiet, revision_of
from actlab.datamodules.images import Images, check_class_names, decode, words
from actlab.datamodules.listing import check_parts, check_splits, names_files
from actlab.errors import ActlabError
from actlab.storage.files import at_home, cache_folder, regular, scratch

FORMAT = 4  # of the cache: raised when decoding changes
MOST_FILES = 100_000  # that are looked through for parquet files
CARD = "README.md"  # whose header may say which files a split has, and what the classes are called
END = 2**20  # bytes at either end of a file that `ends_digest` reads


def load_images(
    dataset: str,
    splits: Sequence[str],
    channels: int,
    label: str | None = None,
    cache_dir: str | None = None,
    revision: str | None = None,
) -> Images:
    """Decode a dataset of images, or map its cache into memory when it was decoded before.

    Args:
        dataset: a hub id, or a local folder in the hub's layout.
        splits: those that are needed.
        channels: 1 for greyscale, 3 for colour.
        label: column of the labels; by default the first of `LABEL_COLUMNS` that is there.
        cache_dir: by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: of a hub dataset: a commit, tag or branch; by default the newest.

    Raises:
        ActlabError: for a dataset that is missing, damaged or of another kind.
    """
    folder = local_folder(dataset)
    if folder is not None and revision is not None:
        raise ActlabError(f"data.revision {revision!r}: the folder {dataset!r} has no revisions; leave it out")
    tables = open_hub(dataset, revision) if folder is None else {}
    commit = revision_of(tables)
    source = content_digest(folder) if folder else [tables[split]._fingerprint for split in sorted(tables)]
    if folder:
        check_class_names(parquet_files(folder), label)
    key = hashlib.sha256(repr((FORMAT, source, list(splits), channels, label)).encode()).hexdigest()[:24]
    cache = cache_folder(cache_dir) / f"images-{key}.safetensors"
    names = [f"{split}_{kind}" for split in splits for kind in ("images", "labels")]

    def make() -> Cached:
        """The images, decoded."""
        if folder is None:
            images = decode(tables, splits, channels, label, dataset)
        else:
            # The reader's own copy goes at once. Kept, it would double the space, and since it is keyed by
            # names and times, a file replaced by another of equal time would be served from it.
            with scratch(cache.parent, "reading") as place:
                images = decode(open_folder(folder, str(place)), splits, channels, label, dataset)
            if content_digest(folder) != source:
                raise ActlabError(f"{folder} changed while it was read; run again when its files are complete")
        return Cached(images.tensors, {"num_classes": str(images.num_classes)})

    tensors, metadata = made_once(cache, names, make)
    return Images(tensors, int(metadata["num_classes"]), commit)


def local_folder(dataset: str) -> Path | None:
    """The folder that ``dataset`` names, or None for a hub id.

    Raises:
        ActlabError: when it is written as a path and there is no such folder.
    """
    path = at_home(dataset)
    if dataset and path.is_dir():
        return path
    written_as_path = dataset.startswith((".", "~", os.sep)) or dataset.count("/") > 1 or dataset.endswith("/")
    beside_folders = "/" in dataset and path.parent.exists()
    if not dataset or written_as_path or beside_folders or path.exists():
        raise ActlabError(
            f"dataset {dataset!r} is no folder; give a folder in the hub's layout (parquet files), a hub id "
            "such as ylecun/mnist, or set data.sample to true"
        )
    return None


def content_digest(folder: Path) -> str:
    """Digest of the bytes of all parquet files below a folder, with their names, and of its `CARD`.

    Raises:
        ActlabError: when there are no parquet files, or they cannot be read.
    """
    return _digest(folder, lambda stream: hashlib.file_digest(stream, "sha256").digest())


def ends_digest(folder: Path) -> str:
    """As `content_digest`, but of sizes and of both ends of each file: for what is too large to be read whole.

    A parquet file ends with the places and sizes of all that is in it, so the ends of two differ as a rule.

    Raises:
        ActlabError: when there are no parquet files, or they cannot be read.
    """
    return _digest(folder, _ends)


def _ends(stream: BufferedReader) -> bytes:
    """Digest of a file's size and of `END` bytes at either end."""
    size = os.fstat(stream.fileno()).st_size
    digest = hashlib.sha256(str(size).encode())
    digest.update(stream.read(END))
    stream.seek(max(stream.tell(), size - END))
    digest.update(stream.read())
    return digest.digest()


def _digest(folder: Path, of: Callable[[BufferedReader], bytes]) -> str:
    """Digest of the names and contents of what decides a dataset in a folder."""
    digest = hashlib.sha256()
    card = folder / CARD
    for file in [*parquet_files(folder), *([card] if card.is_file() else [])]:
        digest.update(str(file.relative_to(folder)).encode())
        try:
            with regular(file).open("rb") as stream:
                digest.update(of(stream))
        except OSError as error:
            raise ActlabError(f"{file} cannot be read ({words(error)})") from error
    return digest.hexdigest()


def parquet_files(folder: Path) -> list[Path]:
    """All parquet files below a folder, sorted; the folder is then safe to give to the hub's reader.

    Raises:
        ActlabError: when there are none, far too many files, a link that leads nowhere, or what is not a
            regular file, of which a reader might never see the end.
    """
    found: list[Path] = []
    seen = 0
    for top, _, names in os.walk(folder):
        seen += len(names)
        if seen > MOST_FILES:
            raise ActlabError(
                f"{folder} holds more than {MOST_FILES:,} files; give the folder of the dataset alone"
            )
        if odd := [file for name in names if (file := Path(top, name)).exists() and not file.is_file()]:
            raise ActlabError(
                f"{odd[0]} is not a regular file; take it out, or give the folder of the dataset alone"
            )
        files = [Path(top, name) for name in names if name.endswith(".parquet")]
        if dangling := [file for file in files if file.is_symlink() and not file.exists()]:
            raise ActlabError(
                f"{dangling[0]} is a link to {dangling[0].readlink()}, which is not there; fetch it"
            )
        found += files
    if found:
        return sorted(found)
    raise ActlabError(
        f"{folder} holds no parquet files; expected the hub's layout, such as "
        "mnist/train-00000-of-00001.parquet"
    )


def open_folder(folder: Path, scratch: str) -> Any:
    """The splits of a folder in the hub's layout, undecoded.

    Args:
        folder: holds parquet files.
        scratch: where the reader may write; must live until the splits are decoded.

    Raises:
        ActlabError: when a file is damaged or missing, or the files do not fit together.
    """
    import datasets
    import pyarrow

    files = parquet_files(folder)
    check_parts(files)
    try:
        with quiet():
            place = _plainly_named(folder, Path(scratch))
            builder = datasets.load_dataset_builder(str(place), cache_dir=scratch)
            found = (builder.config.data_files or {}).items()
            splits = {str(split): [os.path.relpath(file, place) for file in of] for split, of in found}
            check_splits(splits, files, folder, stated=names_files(folder / CARD))
            builder.download_and_prepare()
            return builder.as_dataset()
    except (
        datasets.exceptions.DatasetsError,
        pyarrow.ArrowException,
        ValueError,
        OSError,
        RuntimeError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
    ) as error:
        cause = error.__cause__ or error
        if "Config name is missing" in str(error):
            raise ActlabError(
                f"{folder} holds several datasets, as its {CARD} says; give a folder of one"
            ) from error
        where = ", ".join(map(str, damaged_files(folder))) or f"dataset {str(folder)!r}"
        raise ActlabError(f"{where} is damaged or incomplete ({words(cause)}); fetch it anew") from error


def _plainly_named(folder: Path, scratch: Path) -> Path:
    """A folder of links for one whose path the reader would take for a pattern or a protocol."""
    if not re.search(r"[][*?]|::|://", str(folder)):
        return folder
    links = scratch / "dataset"
    for file in (file for file in sorted(folder.rglob("*")) if file.is_file()):
        link = links / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{link.name}.{os.getpid()}")  # put into place at once: others may come, too
        fresh.symlink_to(file.resolve())
        fresh.replace(link)
    return links


def damaged_files(folder: Path) -> list[Path]:
    """The parquet files below a folder that cannot be read by themselves."""
    import pyarrow
    import pyarrow.parquet

    damaged = []
    for file in parquet_files(folder):
        try:
            pyarrow.parquet.ParquetFile(regular(file)).read()
        except (pyarrow.ArrowException, ValueError, OSError):
            damaged.append(file)
    return damaged
