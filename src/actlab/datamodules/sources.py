"""Open a dataset of pictures: parquet files in the hub's layout, or class folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actlab.datamodules.hub import quiet, snapshot
from actlab.datamodules.listing import check_parts, check_splits, names_files
from actlab.datamodules.pictures import UNREADABLE
from actlab.errors import ActlabError, one_line
from actlab.storage.files import at_home, regular

MOST_FILES = 100_000  # upper limit of files searched for parquet files
CARD = "README.md"  # its header may list the files of each split and the class names
END = 2**20  # bytes that `ends` reads at each end of a file
SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
FOLDERS = {"validation": ("validation", "val", "valid")}  # split → names of its folder, else the split's own


class Source(NamedTuple):
    """A dataset on this computer.

    Args:
        folder: holds its files.
        commit: of a hub dataset; None for a folder of the user's.
    """

    folder: Path
    commit: str | None = None


def located(dataset: str, revision: str | None = None) -> Source:
    """Return the folder that ``dataset`` names, or download the hub dataset of this id.

    Raises:
        ActlabError: if ``dataset`` is written as a path and there is no such folder, a revision of a folder is
            asked for, or the hub dataset cannot be downloaded.
    """
    path = at_home(dataset)
    if dataset and path.is_dir():
        if revision is not None:
            raise ActlabError(
                f"data.revision {revision!r}: the folder {dataset!r} has no revisions; remove the setting"
            )
        return Source(path)
    written_as_path = dataset.startswith((".", "~", os.sep)) or dataset.count("/") > 1 or dataset.endswith("/")
    beside_folders = "/" in dataset and path.parent.exists()
    if not dataset or written_as_path or beside_folders or path.exists():
        raise ActlabError(
            f"dataset {dataset!r} is not a folder; give a folder in the hub's layout (parquet files), a hub "
            "id such as ylecun/mnist, or set data.sample to true"
        )
    folder = snapshot(dataset, revision)
    return Source(folder, folder.name)


def whole(file: Path) -> bytes:
    """Return a digest of a file's bytes."""
    with regular(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def ends(file: Path) -> bytes:
    """Return a file's size and `END` bytes at each end, for files too large to be read.

    A parquet file ends with the offsets and sizes of its contents, so different files usually differ there.
    """
    size = file.stat().st_size
    with regular(file).open("rb") as stream:
        first = stream.read(END)
        stream.seek(max(END, size - END))
        return b"%d " % size + first + stream.read()


def state(file: Path) -> bytes:
    """Return a file's path, size and modification time, for files too many to be read."""
    found = file.stat()
    return repr((str(file.absolute()), found.st_size, found.st_mtime_ns)).encode()


def digest_of(folder: Path, of: Callable[[Path], bytes] = whole) -> str:
    """Return a digest of a dataset: the names of its pictures or parquet files and `CARD`, and ``of`` each.

    Raises:
        ActlabError: if there are neither, or a file cannot be read.
    """
    digest, card = hashlib.sha256(), folder / CARD
    files = _all_pictures(folder) if has_class_folders(folder) else map(str, parquet_files(folder))
    for file in [*files, *([str(card)] if card.is_file() else [])]:
        digest.update(os.fsencode(file.removeprefix(f"{folder}/")))
        try:
            digest.update(of(Path(file)))
        except OSError as error:
            raise ActlabError(f"{file} cannot be read ({one_line(error)})") from error
    return digest.hexdigest()


def has_class_folders(folder: Path) -> bool:
    """Return whether a folder has class folders in ``train/``, as torchvision's ``ImageFolder`` reads them."""
    top = folder / "train"
    if not top.is_dir() or any(top.glob("*.parquet")) or any(top.glob("*/*.parquet")):
        return False
    return any(entry.is_dir() for entry in top.iterdir())


def _all_pictures(folder: Path) -> list[str]:
    found = (f"{top}/{name}" for top, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if path.lower().endswith(SUFFIXES))


def open_class_folders(folder: Path, splits: Iterable[str]) -> dict[str, Any]:
    """Return the splits of class folders as tables of paths, in order of class and name.

    Labels number the classes in order of their names. `datasets` can open such folders too, but would need ten
    minutes at each start for the 1.3 million files of ImageNet.

    Args:
        folder: holds ``SPLIT/CLASS/*.png``.
        splits: names of the splits; those without class folders are left out.

    Raises:
        ActlabError: if a class has no pictures, or the splits' classes differ.
    """
    import datasets

    found = {}
    for split in splits:
        top = next((folder / name for name in FOLDERS.get(split, (split,)) if (folder / name).is_dir()), folder)
        classes = _visible(entry.name for entry in os.scandir(top) if entry.is_dir()) if top != folder else []
        paths: list[str] = []
        labels: list[int] = []
        for label, kind in enumerate(classes):
            names = _visible(entry.name for entry in os.scandir(top / kind))
            pictures = [str(top / kind / name) for name in names if name.lower().endswith(SUFFIXES)]
            if not pictures:
                raise ActlabError(
                    f"{top / kind} has no pictures ({', '.join(SUFFIXES)}); unpack them again, or remove this "
                    "class from all splits"
                )
            paths += pictures
            labels += [label] * len(pictures)
        if classes:
            kinds = {"image": datasets.Value("string"), "label": datasets.ClassLabel(names=classes)}
            columns = {"image": paths, "label": labels}
            table = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
            found[split] = table.cast_column("image", datasets.Image())
    every = {split: set(table.features["label"].names) for split, table in found.items()}
    for split, classes_of in every.items():
        for other, others in every.items():
            if alone := sorted(classes_of - others):
                raise ActlabError(
                    f"{folder}: class {alone[0]!r} is only in {split!r}, not in {other!r} ({len(alone)} such "
                    "classes in all); both need the same class folders"
                )
    return found


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


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


def open_parquet(folder: Path, copy: Path, name: str | None = None, again: bool = False) -> Any:
    """Return the splits of a folder in the hub's layout, through the copy that `datasets` makes.

    Args:
        folder: holds parquet files.
        copy: folder of the copy; must exist until the splits have been read.
        name: of one of several datasets that the folder's `CARD` describes.
        again: whether to replace an existing copy.

    Raises:
        ActlabError: if a file is damaged or missing, or the files are inconsistent.
    """
    import datasets
    import pyarrow

    files = parquet_files(folder)
    check_parts(files)
    try:
        with quiet():
            place = _linked(folder, [*files, folder / CARD], copy / "links" / "dataset")
            builder = datasets.load_dataset_builder(str(place), name, cache_dir=str(copy / "read"))
            found = (builder.config.data_files or {}).items()
            splits = {str(split): [os.path.relpath(file, place) for file in of] for split, of in found}
            check_splits(splits, files, folder, stated=name is not None or names_files(folder / CARD))
            builder.download_and_prepare(download_mode="force_redownload" if again else None)
            return builder.as_dataset()
    except (datasets.exceptions.DatasetsError, pyarrow.ArrowException, *UNREADABLE) as error:
        if "Config name is missing" in str(error) or f"BuilderConfig {name!r} not found" in str(error):
            raise ActlabError(
                f"{folder} holds several datasets, as its {CARD} says; set data.name to one of them "
                f"({one_line(error)})"
            ) from error
        where = ", ".join(map(str, _damaged(files))) or f"dataset {str(folder)!r}"
        cause = one_line(error.__cause__ or error)
        raise ActlabError(f"{where} is damaged or incomplete ({cause}); fetch it again") from error


def _linked(folder: Path, files: Sequence[Path], place: Path) -> Path:
    """Return a folder of links to the files, because `datasets` parses some paths as patterns or protocols."""
    for file in (file for file in files if file.is_file()):
        link = place / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{link.name}.{os.getpid()}")  # replaces the link atomically, for parallel runs
        fresh.symlink_to(file.resolve())
        fresh.replace(link)
    return place


def _damaged(files: Sequence[Path]) -> list[Path]:
    """Return the parquet files that cannot be read individually."""
    import pyarrow
    import pyarrow.parquet

    damaged = []
    for file in files:
        try:
            pyarrow.parquet.ParquetFile(regular(file)).read()
        except (pyarrow.ArrowException, ValueError, OSError):
            damaged.append(file)
    return damaged
