"""Load image datasets from the hub or from a local folder in its layout, decoded once into a cache."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from actlab.datamodules.cache import Cached, made_once
from actlab.datamodules.encoded import PARTS_OF_SMALL, SUFFIXES, has_class_folders, tree
from actlab.datamodules.hub import open_hub, quiet, revision_of
from actlab.datamodules.images import Images, check_class_names, decode
from actlab.datamodules.listing import check_parts, check_splits, names_files
from actlab.errors import ActlabError, one_line
from actlab.storage.files import at_home, cache_folder, regular, scratch

FORMAT = 4  # version of the cache; increased when decoding changes
MOST_FILES = 100_000  # upper limit of files searched for parquet files
CARD = "README.md"  # its header may list the files of each split and the class names
END = 2**20  # bytes that `ends_digest` reads at each end of a file


def load_images(
    dataset: str,
    splits: Sequence[str],
    channels: int,
    label: str | None = None,
    cache_dir: str | None = None,
    revision: str | None = None,
) -> Images:
    """Decode a dataset of images, or memory-map the cache of an earlier call.

    Args:
        dataset: a hub id, or a local folder in the hub's layout or with class folders of pictures,
            ``train/CLASS/*.png`` and ``test/CLASS/*.png``.
        splits: names of the splits to load.
        channels: 1 for greyscale, 3 for colour.
        label: column of the labels; by default the first of `LABEL_COLUMNS` that exists.
        cache_dir: folder of the cache; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        revision: commit, tag or branch of a hub dataset; by default the newest.

    Raises:
        ActlabError: if the dataset is missing, damaged or does not contain the expected images and labels.
    """
    folder = local_folder(dataset, revision)
    tables = open_hub(dataset, revision) if folder is None else {}
    commit = revision_of(tables)
    pictures = folder is not None and has_class_folders(folder)
    source = content_digest(folder) if folder else [tables[split]._fingerprint for split in sorted(tables)]
    if folder and not pictures:
        check_class_names(parquet_files(folder), label)
    key = hashlib.sha256(repr((FORMAT, source, list(splits), channels, label)).encode()).hexdigest()[:24]
    cache = cache_folder(cache_dir) / f"images-{key}.safetensors"
    names = [f"{split}_{kind}" for split in splits for kind in ("images", "labels")]

    def _make() -> Cached:
        if folder is None:
            images = decode(tables, splits, channels, label, dataset)
        elif pictures:
            images = decode(open_class_folders(folder, splits), splits, channels, None, dataset)
        else:
            # Delete the reader's own copy at once: it doubles the disk space. It is also keyed by names and
            # modification times only, so a file replaced by another with the same time would be read from it.
            with scratch(cache.parent, "reading") as place:
                images = decode(open_folder(folder, str(place)), splits, channels, label, dataset)
            if content_digest(folder) != source:
                raise ActlabError(f"{folder} changed while it was read; run again when its files are complete")
        return Cached(images.tensors, {"num_classes": str(images.num_classes)})

    tensors, metadata = made_once(cache, names, _make)
    return Images(tensors, int(metadata["num_classes"]), commit)


def local_folder(dataset: str, revision: str | None = None) -> Path | None:
    """Return the folder that ``dataset`` names, or None for a hub id.

    Raises:
        ActlabError: if ``dataset`` is written as a path and there is no such folder, or a revision of a
            folder is asked for.
    """
    path = at_home(dataset)
    if dataset and path.is_dir():
        if revision is not None:
            raise ActlabError(
                f"data.revision {revision!r}: the folder {dataset!r} has no revisions; remove the setting"
            )
        return path
    written_as_path = dataset.startswith((".", "~", os.sep)) or dataset.count("/") > 1 or dataset.endswith("/")
    beside_folders = "/" in dataset and path.parent.exists()
    if not dataset or written_as_path or beside_folders or path.exists():
        raise ActlabError(
            f"dataset {dataset!r} is not a folder; give a folder in the hub's layout (parquet files), a hub "
            "id such as ylecun/mnist, or set data.sample to true"
        )
    return None


def open_class_folders(folder: Path, splits: Sequence[str]) -> dict[str, Any]:
    """Return the splits of a folder of class folders, undecoded.

    The pictures of a split are in the order of a digest of their names. In the order of their names, the first
    ones, which are the validation set, would all be of one class.

    Args:
        folder: holds ``train/CLASS/…`` and, for the split ``test``, ``test/CLASS/…`` (or ``val``).
        splits: names of the splits to open.

    Raises:
        ActlabError: as `actlab.datamodules.encoded.tree`.
    """
    import datasets

    found = tree(folder, {split: PARTS_OF_SMALL.get(split, (split,)) for split in splits})
    opened = {}
    for split, files in found.items():
        names = [path.relative_to(files.folder).as_posix() for path in files.paths()]
        order = sorted(range(len(files)), key=lambda n: hashlib.sha256(os.fsencode(names[n])).digest())
        kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=files.num_classes)}
        pictures = [{"bytes": files.read(n), "path": None} for n in order]
        columns = {"image": pictures, "label": files.labels[order].tolist()}
        opened[split] = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    return opened


def content_digest(folder: Path) -> str:
    """Return a digest of the names and bytes of a dataset's files and of its `CARD`.

    The files are pictures in class folders, or parquet files.

    Raises:
        ActlabError: if there are neither, or a file cannot be read.
    """
    return _digest(folder, lambda stream: hashlib.file_digest(stream, "sha256").digest())


def ends_digest(folder: Path) -> str:
    """Return a digest like `content_digest`, but of the size and both ends of each file only.

    For datasets too large to be read completely. A parquet file ends with the offsets and sizes of its
    contents, so different files usually differ at their ends.

    Raises:
        ActlabError: if there are no parquet files, or a file cannot be read.
    """
    return _digest(folder, _ends)


def _ends(stream: BufferedReader) -> bytes:
    """Return a digest of a file's size and of `END` bytes at each end."""
    size = os.fstat(stream.fileno()).st_size
    digest = hashlib.sha256(str(size).encode())
    digest.update(stream.read(END))
    stream.seek(max(stream.tell(), size - END))
    digest.update(stream.read())
    return digest.digest()


def _digest(folder: Path, of: Callable[[BufferedReader], bytes]) -> str:
    """Return a digest of the names of a folder's parquet files and `CARD`, and of each file's digest."""
    digest = hashlib.sha256()
    card = folder / CARD
    files = _pictures(folder) if has_class_folders(folder) else parquet_files(folder)
    for file in [*files, *([card] if card.is_file() else [])]:
        digest.update(str(file.relative_to(folder)).encode())
        try:
            with regular(file).open("rb") as stream:
                digest.update(of(stream))
        except OSError as error:
            raise ActlabError(f"{file} cannot be read ({one_line(error)})") from error
    return digest.hexdigest()


def _pictures(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)


def parquet_files(folder: Path) -> list[Path]:
    """Return all parquet files below a folder, sorted, and check that the hub's reader can safely open it.

    Raises:
        ActlabError: if there are no parquet files, more than `MOST_FILES` files of any kind, a dangling link,
            or something other than a regular file, which a reader might never finish reading.
    """
    found: list[Path] = []
    seen = 0
    for top, _, names in os.walk(folder):
        seen += len(names)
        if seen > MOST_FILES:
            raise ActlabError(
                f"{folder} holds more than {MOST_FILES:,} files; give a folder that holds only the dataset"
            )
        if odd := [file for name in names if (file := Path(top, name)).exists() and not file.is_file()]:
            raise ActlabError(
                f"{odd[0]} is not a regular file; remove it, or give a folder that holds only the dataset"
            )
        files = [Path(top, name) for name in names if name.endswith(".parquet")]
        if dangling := [file for file in files if file.is_symlink() and not file.exists()]:
            raise ActlabError(
                f"{dangling[0]} is a link to {dangling[0].readlink()}, which does not exist; fetch that file"
            )
        found += files
    if found:
        return sorted(found)
    raise ActlabError(
        f"{folder} holds no parquet files; expected the hub's layout, such as "
        "mnist/train-00000-of-00001.parquet, or class folders, train/CLASS/*.png and test/CLASS/*.png"
    )


def open_folder(folder: Path, scratch: str) -> Any:
    """Return the splits of a folder in the hub's layout, undecoded.

    Args:
        folder: holds parquet files.
        scratch: folder that the reader may write to; must exist until the splits are decoded.

    Raises:
        ActlabError: if a file is damaged or missing, or the files are inconsistent.
    """
    import datasets
    import pyarrow

    files = parquet_files(folder)
    check_parts(files)
    try:
        with quiet():
            place = _path_for_reader(folder, Path(scratch))
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
                f"{folder} holds several datasets, as its {CARD} says; give a folder that holds only one"
            ) from error
        where = ", ".join(map(str, damaged_files(folder))) or f"dataset {str(folder)!r}"
        raise ActlabError(f"{where} is damaged or incomplete ({one_line(cause)}); fetch it again") from error


def _path_for_reader(folder: Path, scratch: Path) -> Path:
    """Return the folder, or a folder of links if the reader would parse its path as a pattern or protocol."""
    if not re.search(r"[][*?]|::|://", str(folder)):
        return folder
    links = scratch / "dataset"
    for file in (file for file in sorted(folder.rglob("*")) if file.is_file()):
        link = links / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{link.name}.{os.getpid()}")  # replaces the link atomically, for parallel runs
        fresh.symlink_to(file.resolve())
        fresh.replace(link)
    return links


def damaged_files(folder: Path) -> list[Path]:
    """Return the parquet files below a folder that cannot be read individually."""
    import pyarrow
    import pyarrow.parquet

    damaged = []
    for file in parquet_files(folder):
        try:
            pyarrow.parquet.ParquetFile(regular(file)).read()
        except (pyarrow.ArrowException, ValueError, OSError):
            damaged.append(file)
    return damaged
