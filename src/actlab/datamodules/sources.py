"""Open a folder of pictures as tables of `datasets`: parquet files in the hub's layout, or class folders.

The reader of `datasets` guesses splits from file names. It reads a file twice if its folder and its
name both name a split, ignores files in a second folder, does not detect shards that were never
downloaded, and uses the class names of the first file for all files. All of this is checked here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from actlab.datamodules.hub import quiet
from actlab.datamodules.pictures import UNREADABLE
from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.storage.digests import digest_of as digest_of_file
from actlab.storage.digests import digests_of
from actlab.storage.files import regular

CARD = "README.md"  # its header may list the files of each split and the class names
# torchvision's
SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)
# Split → names of its folder, else the split's own
FOLDERS = {"validation": ("validation", "val", "valid")}
REMEDY = (
    "give the folder of one dataset, with its splits in folders or files called train and test, or name the "
    "files of each split in a README.md (configs: data_files)"
)
_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.parquet")
_SPLIT = re.compile(r"train|test|valid", re.IGNORECASE)
# Folders of these names, in any case, divide pictures; they are no classes.
_SPLIT_FOLDERS = {
    "train",
    "training",
    "test",
    "testing",
    "val",
    "valid",
    "validation",
    "dev",
    "eval",
}


def content(file: Path) -> bytes:
    """Return a digest of a file's bytes, for files too large to be read at each start."""
    return digests_of([file])[file].encode()


def state(file: Path) -> bytes:
    """Return a file's path, size and modification time, for files too many to be read."""
    try:
        status = file.stat()
    except OSError as error:
        raise ActlabError(f"{file} cannot be read ({one_line(error)})") from error
    return repr((str(file.absolute()), status.st_size, status.st_mtime_ns)).encode()


def digest_of(folder: Path, of: Callable[[Path], bytes] | None = None, train: str = "train") -> str:
    """Return a digest of a dataset: of the names of its pictures, parquet files and `CARD`, and ``of`` each."""
    digest, card = hashlib.sha256(), folder / CARD
    is_pictures = has_class_folders(folder, train)
    files = sorted(_all_pictures(folder)) if is_pictures else map(str, parquet_files(folder))
    for file in [*files, *([str(card)] if card.is_file() else [])]:
        digest.update(os.fsencode(file.removeprefix(f"{folder}/")))
        try:
            digest.update(of(Path(file)) if of else bytes.fromhex(digest_of_file(Path(file))))
        except OSError as error:
            raise ActlabError(f"{file} cannot be read ({one_line(error)})") from error
    return digest.hexdigest()


def has_class_folders(folder: Path, train: str = "train") -> bool:
    """Return whether there are class folders in the folder ``train``, or in the dataset's folder itself.

    Both are folders as torchvision's ``ImageFolder`` reads them.
    """
    top = folder / train
    if not top.is_dir():
        return is_undivided(folder, train)
    parquet = any(top.glob("*.parquet")) or any(top.glob("*/*.parquet"))
    return not parquet and any(entry.is_dir() for entry in top.iterdir())


def is_undivided(folder: Path, train: str = "train") -> bool:
    """Return whether a folder has class folders and no splits, ``CLASS/*.png``; never if a split is named."""
    if train != "train":
        return False
    names = _visible(entry.name for entry in os.scandir(folder) if entry.is_dir())
    if train in names or {name.lower() for name in names} & _SPLIT_FOLDERS:
        return False
    if next(folder.rglob("*.parquet"), None):
        return False
    return any(next(_all_pictures(folder / name), None) for name in names)


def _all_pictures(folder: Path) -> Iterator[str]:
    files = (
        f"{top}/{name}" for top, _, names in os.walk(folder, followlinks=True) for name in names
    )
    return (file for file in files if file.lower().endswith(SUFFIXES))


def open_tables(
    folder: Path,
    splits: Sequence[str],
    copy: Path,
    name: str | None = None,
    mixed: bool = False,
    leave_out: Sequence[str] = (),
) -> Any:
    """Return the splits of a folder of either layout, see `open_class_folders` and `open_parquet`.

    The first of ``splits`` is that of training.
    """
    if has_class_folders(folder, splits[0]):
        return open_class_folders(folder, splits, mixed, leave_out)
    if leave_out:
        raise ActlabError(
            "data.leave_out: expected class folders of pictures, got parquet files; remove it"
        )
    return open_parquet(folder, copy, name)


class Listing(NamedTuple):
    """The pictures of a split in class folders."""

    classes: list[str]  # sorted; labels number them
    files: list[str]  # paths, (N,)
    labels: list[int]  # (N,)


def listed(
    folder: Path, split: str, train: str, mixed: bool = False, leave_out: Sequence[str] = ()
) -> Listing | None:
    """Return the pictures of a split in class folders, None if there is no such split.

    ``mixed`` orders them by a digest of their names instead of class and name. Pictures and folders
    in ``leave_out``, by their paths from the folder, are left out.
    """
    if is_undivided(folder, train):
        tops = [folder] if split == train else []
    else:
        tops = [top for name in FOLDERS.get(split, (split,)) if (top := folder / name).is_dir()]
    if not tops:
        return None

    top, absent = tops[0], {str(folder / name) for name in leave_out}
    classes = _visible(entry.name for entry in os.scandir(top) if entry.is_dir())
    classes = [name for name in classes if f"{top}/{name}" not in absent]
    rows = [
        (path, label)
        for label, kind in enumerate(classes)
        for path in _pictures(top / kind, absent)
    ]
    if not rows:
        return None

    if mixed:  # else the first pictures, which may become the validation set, are all of one class
        start = len(f"{top}/")
        rows.sort(key=lambda row: hashlib.sha256(os.fsencode(row[0][start:])).digest())
    return Listing(classes, [path for path, _ in rows], [label for _, label in rows])


def open_class_folders(
    folder: Path, splits: Sequence[str], mixed: bool = False, leave_out: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the splits of class folders, ``SPLIT/CLASS/*.png``, as tables of paths; see `listed`.

    Without splits, ``CLASS/*.png``, all pictures are those of the first of ``splits``, training.
    """
    import datasets

    for name in leave_out:
        if not (folder / name).exists():
            raise ActlabError(
                f"data.leave_out: expected paths from {folder}, got {name!r}, which does not exist; remove it"
            )

    # Its own reader of such folders needs half a millisecond a file at each start: ten minutes for
    # ImageNet.
    tables, classes_of = {}, {}
    for split in splits:
        listing = listed(folder, split, splits[0], mixed, leave_out)
        if listing is None:
            continue
        kinds = {
            "image": datasets.Value("string"),
            "label": datasets.ClassLabel(names=listing.classes),
        }
        columns = {"image": listing.files, "label": listing.labels}
        table = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
        tables[split], classes_of[split] = (
            table.cast_column("image", datasets.Image()),
            set(listing.classes),
        )

    if is_undivided(folder, splits[0]) and len(classes_of.get(splits[0], ())) < 2:
        raise ActlabError(
            f"{folder}: expected at least two class folders, CLASS/*.png, got one. Use another."
        )
    for (split, here), (other, there) in permutations(classes_of.items(), 2):
        if alone := sorted(here - there):
            raise ActlabError(
                f"{folder}: class {alone[0]!r} is only in {split!r}, not in {other!r} ({len(alone)} such "
                "classes in all); both need the same class folders"
            )
    return tables


def _pictures(folder: Path, absent: Set[str]) -> list[str]:
    pictures: list[str] = []
    for top, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in _visible(folders) if f"{top}/{name}" not in absent]
        files = [f"{top}/{name}" for name in _visible(names) if name.lower().endswith(SUFFIXES)]
        pictures += [file for file in files if file not in absent]
    if not pictures:
        raise ActlabError(
            f"{folder}: expected pictures ({', '.join(SUFFIXES)}), got none. Add some, or remove the folders "
            "of this class."
        )
    return pictures


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def parquet_files(folder: Path) -> list[Path]:
    """Return all parquet files below a folder, sorted."""
    files = sorted(file for file in folder.rglob("*.parquet") if not file.is_dir())
    if not files:
        raise ActlabError(
            f"{folder} holds no parquet files; expected the hub's layout, such as "
            "mnist/train-00000-of-00001.parquet, or class folders, train/CLASS/*.png and test/CLASS/*.png, or "
            "CLASS/*.png without splits"
        )
    return files


def open_parquet(folder: Path, copy: Path, name: str | None = None, mode: str | None = None) -> Any:
    """Return the splits of a folder in the hub's layout, through a ``copy`` that `datasets` makes and reads.

    ``name`` is one of several datasets that the folder's `CARD` describes.
    """
    import datasets
    import pyarrow

    files, card = parquet_files(folder), folder / CARD
    text = regular(card).read_text("utf-8", "replace") if card.is_file() else ""
    _check_shards(files)
    _check_class_names(files)
    try:
        with quiet():
            place = _linked(folder, [*files, card], copy / "links" / "dataset")
            builder = datasets.load_dataset_builder(str(place), name, cache_dir=str(copy / "read"))
            data_files = (builder.config.data_files or {}).items()
            # Paths relative to the folder, stated by the card or guessed by the reader.
            splits = {
                str(split): [os.path.relpath(file, place) for file in of]
                for split, of in data_files
            }
            stated = name is not None or "\nconfigs:" in f"\n{text}"
            _check_splits(splits, files, folder, stated)
            builder.download_and_prepare(download_mode=mode)
            return builder.as_dataset()
    except (datasets.exceptions.DatasetsError, pyarrow.ArrowException, *UNREADABLE) as error:
        if mode is None:  # perhaps only the copy is damaged
            return open_parquet(folder, copy, name, "force_redownload")
        raise ActlabError(
            f"dataset {str(folder)!r} cannot be read ({one_line(error.__cause__ or error)}); fetch it "
            "again, or set data.name to one of several datasets in it"
        ) from error


def _linked(folder: Path, files: Sequence[Path], place: Path) -> Path:
    """Return a folder of links to the files, because `datasets` parses some paths as patterns or protocols."""
    for file in (file for file in files if file.is_file()):
        link = place / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        # Replaces the link atomically, for parallel runs
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(file.resolve())
        fresh.replace(link)
    return place


def _check_splits(
    splits: Mapping[str, Sequence[str]], files: Sequence[Path], folder: Path, stated: bool
) -> None:
    """Check that the reader neither reads a file twice, nor mixes datasets, nor skips a file."""
    counts = Counter(name for names in splits.values() for name in names)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ActlabError(
            f"{folder / twice[0]} would be read twice: its path names a split twice; {REMEDY}"
        )
    if stated:
        return
    for split, names in splits.items():
        if len(parents := sorted({str(Path(name).parent) for name in names})) > 1:
            raise ActlabError(
                f"{folder}: {split!r} would be put together from {parents[0]!r} and {parents[1]!r}; {REMEDY}"
            )
    for name in (str(file.relative_to(folder)) for file in files):
        if name not in counts and _SPLIT.search(name):
            raise ActlabError(f"{folder / name} would be left out; {REMEDY}")


def _check_shards(files: Sequence[Path]) -> None:
    """Check that the parts of each table are complete and were divided once."""
    counts_of: dict[str, list[str]] = {}
    for file in files:
        if shard := _SHARD.fullmatch(str(file)):
            counts_of.setdefault(shard[1], []).append(shard[2])
    for stem, counts in counts_of.items():
        if counts != [counts[0]] * int(counts[0]):
            raise ActlabError(
                f"{stem}: expected {int(counts[0])} parts, got {len(counts)}. Fetch the missing parts, or keep "
                "the parts of one count only."
            )


def class_names(files: Sequence[Path], columns: Sequence[str]) -> list[str] | None:
    """Return the class names in parquet files of the first of some columns, None if none has any."""
    kinds = _features(files[0]) if files else {}
    column = next((name for name in columns if name in kinds), None)
    return getattr(kinds[column], "names", None) if column else None


def _features(file: Path) -> Mapping[str, Any]:
    """Return the columns of a parquet file with their kinds, according to the hub's metadata in it."""
    import datasets
    import pyarrow
    import pyarrow.parquet

    try:
        found: Any = datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(regular(file)))
    except (pyarrow.ArrowException, *UNREADABLE) as error:
        raise ActlabError(
            f"{file} is damaged or incomplete ({one_line(error)}); fetch it again"
        ) from error
    return dict(found)


def _check_class_names(files: Sequence[Path]) -> None:
    """Check that the class names in the hub's metadata of the files are equal, column by column."""
    first: dict[str, tuple[Path, list[str]]] = {}
    for file in files:
        for column, kind in _features(file).items():
            if not (names := getattr(kind, "names", None)):
                continue
            other, expected = first.setdefault(column, (file, names))
            if names != expected:
                raise ActlabError(
                    f"{other} and {file} number their classes differently: rewrite them with one order of "
                    "names, or use a folder that holds only one dataset"
                )
