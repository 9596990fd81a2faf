"""Open a folder of pictures or of tables as tables of `datasets`.

A folder has parquet files in the hub's layout, class folders of pictures, or CSV files.

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
from actlab.storage.paths import leads_back

CARD = "README.md"  # its header may list the files of each split and the class names
# The suffixes of torchvision
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# Split → names of its folder. The folder of another split has the split's name.
FOLDERS = {"validation": ("validation", "val", "valid")}
REMEDY = (
    "Use the folder of one dataset, with splits in folders or files called train and test, or "
    "list the files of each split in a README.md (configs: data_files)."
)
_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.parquet")
_SPLIT = re.compile(r"train|test|valid", re.IGNORECASE)
# Folders of these names, in any case, divide pictures; they are not classes.
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


def _digest_of_bytes(file: Path) -> bytes:
    return bytes.fromhex(digest_of_file(file))


def digest_of(
    folder: Path,
    digest_file: Callable[[Path], bytes] = _digest_of_bytes,
    train: str = "train",
) -> str:
    """Return a digest of a dataset: of the names and contents of its pictures or tables and `CARD`.

    Args:
        folder: of the dataset.
        digest_file: returns the digest of a file; by default, SHA-256 of its bytes.
        train: name of the training split.
    """
    # Texts, because there may be a million files
    try:
        if has_class_folders(folder, train):
            files = sorted(_all_pictures(folder))
        else:
            files = [str(file) for file in parquet_files(folder)]
    except OSError as error:
        # A folder may be removed, or be closed to this user.
        raise ActlabError(f"{folder} cannot be read ({one_line(error)})") from error
    return digest_of_files(folder, files, digest_file)


def digest_of_files(
    folder: Path,
    files: Sequence[str],
    digest_file: Callable[[Path], bytes] = _digest_of_bytes,
) -> str:
    """Return a digest of the names and contents of files below a folder, and of its `CARD`."""
    card = folder / CARD
    if card.is_file():
        files = [*files, str(card)]

    digest = hashlib.sha256()
    for file in files:
        digest.update(os.fsencode(file.removeprefix(f"{folder}/")))
        try:
            digest.update(digest_file(Path(file)))
        except OSError as error:
            raise ActlabError(f"{file} cannot be read ({one_line(error)})") from error
    return digest.hexdigest()


def has_class_folders(folder: Path, train: str = "train") -> bool:
    """Return whether there are class folders, in the folder ``train`` or in the dataset's folder.

    Both are folders as torchvision's ``ImageFolder`` reads them.
    """
    top = folder / train
    if not top.is_dir():
        return is_undivided(folder, train)
    has_tables = any(top.glob("*.parquet")) or any(top.glob("*/*.parquet"))
    return not has_tables and any(entry.is_dir() for entry in top.iterdir())


def is_undivided(folder: Path, train: str) -> bool:
    """Return whether a folder has class folders but no splits, ``CLASS/*.png``.

    A training split of another name means that there are splits.
    """
    if train != "train":
        return False
    names = _subfolders(folder)
    if any(name.lower() in _SPLIT_FOLDERS for name in names):
        return False
    if any(folder.rglob("*.parquet")):
        return False
    return any(_has_pictures(folder / name) for name in names)


def _has_pictures(folder: Path) -> bool:
    # Links below a folder that is no dataset may lead to the whole disk.
    return next(_all_pictures(folder, follow_links=False), None) is not None


def _all_pictures(folder: Path, follow_links: bool = True) -> Iterator[str]:
    """Yield the paths of all pictures below a folder."""
    for top, folders, names in os.walk(folder, followlinks=follow_links):
        folders[:] = [name for name in folders if not leads_back(f"{top}/{name}")]
        for name in names:
            if name.lower().endswith(SUFFIXES):
                yield f"{top}/{name}"


def open_tables(
    folder: Path,
    splits: Sequence[str],
    reader_folder: Path,
    name: str | None = None,
    mixed: bool = False,
    leave_out: Sequence[str] = (),
) -> Any:
    """Return the splits of a folder of either layout.

    See `open_class_folders` and `open_parquet` for the arguments. The first of ``splits`` is the
    training split.
    """
    if has_class_folders(folder, splits[0]):
        return open_class_folders(folder, splits, mixed, leave_out)
    if leave_out:
        raise ActlabError(
            "data.leave_out: expected class folders of pictures, got parquet files. Remove it."
        )
    return open_parquet(folder, reader_folder, name)


class Listing(NamedTuple):
    """The pictures of a split in class folders."""

    classes: list[str]  # sorted; labels number them
    files: list[str]  # paths, (N,)
    labels: list[int]  # (N,)


def list_pictures(
    folder: Path,
    split: str,
    train: str,
    mixed: bool = False,
    leave_out: Sequence[str] = (),
) -> Listing | None:
    """Return the pictures of a split in class folders, None if there is no such split.

    Args:
        folder: of the dataset.
        split: name of the split.
        train: name of the training split.
        mixed: order pictures by a digest of their names instead of class and name. Otherwise the
            first pictures, which may become the validation set, are all of one class.
        leave_out: pictures and folders to leave out, by their paths from the folder.
    """
    # Without split folders, all pictures belong to training
    top = _folder_of_split(folder, split, train)
    if top is None:
        return None

    # List the pictures of each class.
    left_out = {str(folder / name) for name in leave_out}
    classes = [name for name in _subfolders(top) if f"{top}/{name}" not in left_out]
    rows = []
    for label, name in enumerate(classes):
        for path in _pictures(top / name, left_out):
            rows.append((path, label))
    if not rows:
        return None

    # Mix the classes.
    if mixed:
        start = len(f"{top}/")

        # The order does not depend on the folder's own path
        def digest(row: tuple[str, int]) -> bytes:
            path, _ = row
            name = os.fsencode(path[start:])
            return hashlib.sha256(name).digest()

        rows.sort(key=digest)

    files = [path for path, _ in rows]
    labels = [label for _, label in rows]
    return Listing(classes, files, labels)


def _folder_of_split(folder: Path, split: str, train: str) -> Path | None:
    """Return the folder with the class folders of a split, None if there is no such split."""
    if is_undivided(folder, train):
        return folder if split == train else None
    for name in FOLDERS.get(split, (split,)):
        if (folder / name).is_dir():
            return folder / name
    return None


def open_class_folders(
    folder: Path,
    splits: Sequence[str],
    mixed: bool = False,
    leave_out: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the splits of class folders, ``SPLIT/CLASS/*.png``, as tables of paths.

    Without splits, ``CLASS/*.png``, all pictures belong to training, the first of ``splits``. See
    `list_pictures` for the arguments.

    Raises:
        ActlabError: if a path to leave out does not exist, there are too few classes, or the splits
            have different classes.
    """
    import datasets

    # Reject misspelt paths, which would leave out nothing
    for name in leave_out:
        if not (folder / name).exists():
            raise ActlabError(
                f"data.leave_out: expected paths from {folder}, got {name!r}, which does not "
                "exist. Remove it."
            )

    # Make a table of each split. The library's own reader of such folders needs half a
    # millisecond a file at each start: ten minutes for ImageNet.
    train = splits[0]
    tables = {}
    classes: dict[str, set[str]] = {}
    for split in splits:
        listing = list_pictures(folder, split, train, mixed, leave_out)
        if listing is None:
            continue
        kinds = datasets.Features(
            {
                "image": datasets.Value("string"),
                "label": datasets.ClassLabel(names=listing.classes),
            }
        )
        columns = {"image": listing.files, "label": listing.labels}
        table = datasets.Dataset.from_dict(columns, features=kinds)
        tables[split] = table.cast_column("image", datasets.Image())
        classes[split] = set(listing.classes)

    # Check the classes.
    if is_undivided(folder, train) and len(classes.get(train, ())) < 2:
        raise ActlabError(
            f"{folder}: expected at least two class folders, CLASS/*.png, got one. Use another."
        )
    for split, other_split in permutations(classes, 2):
        unmatched = sorted(classes[split] - classes[other_split])
        if unmatched:
            raise ActlabError(
                f"{folder}: expected the same class folders in {split!r} and {other_split!r}, got "
                f"{unmatched[0]!r} only in {split!r} ({len(unmatched)} such classes in all). Add "
                "the missing folders, or remove the others."
            )
    return tables


def _pictures(folder: Path, left_out: Set[str]) -> list[str]:
    """Return the paths of the visible pictures below a class folder, sorted in each folder."""
    pictures: list[str] = []
    for top, folders, names in os.walk(folder, followlinks=True):
        # The walk descends into the folders that this list retains.
        folders[:] = [
            name
            for name in _visible(folders)
            if f"{top}/{name}" not in left_out and not leads_back(f"{top}/{name}")
        ]
        for name in _visible(names):
            file = f"{top}/{name}"
            if name.lower().endswith(SUFFIXES) and file not in left_out:
                pictures.append(file)
    if not pictures:
        raise ActlabError(
            f"{folder}: expected pictures ({', '.join(SUFFIXES)}), got none. Add some, or remove "
            "the folders of this class."
        )
    return pictures


def _subfolders(folder: Path) -> list[str]:
    """Return the names of the visible folders in a folder, without links that lead back."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            # A link to itself is no folder; `entry.is_dir()` would raise for it
            is_link = entry.is_symlink()
            is_folder = Path(entry).is_dir() if is_link else entry.is_dir()
            if is_folder and not leads_back(entry.path):
                names.append(entry.name)
    return _visible(names)


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def parquet_files(folder: Path) -> list[Path]:
    """Return all parquet files below a folder, sorted; raise an ActlabError if there are none."""
    files = [file for file in sorted(folder.rglob("*.parquet")) if not file.is_dir()]
    if not files:
        raise ActlabError(
            f"{folder}: expected parquet files, such as mnist/train-00000-of-00001.parquet, or "
            "class folders, train/CLASS/*.png and test/CLASS/*.png, or CLASS/*.png without "
            "splits, got neither. Use another folder."
        )
    return files


def open_parquet(
    folder: Path, reader_folder: Path, name: str | None = None, mode: str | None = None
) -> Any:
    """Return the splits of a folder in the hub's layout; see `open_files`."""
    return open_files(folder, parquet_files(folder), reader_folder, name, mode)


def open_files(
    folder: Path,
    files: Sequence[Path],
    reader_folder: Path,
    name: str | None = None,
    mode: str | None = None,
) -> Any:
    """Return the splits of parquet or CSV files.

    Args:
        folder: of the dataset.
        files: all parquet files or all CSV files of the dataset, below the folder.
        reader_folder: where `datasets` makes the copy of the files that it reads.
        name: of one of several datasets that the folder's `CARD` describes.
        mode: how `datasets` makes its copy.

    Raises:
        ActlabError: if files are missing or damaged, or the reader would not read each file once.
    """
    import datasets
    import pyarrow

    # A card may state the files of each split; otherwise the reader guesses them.
    card = folder / CARD
    text = regular(card).read_text("utf-8", "replace") if card.is_file() else ""
    is_stated = name is not None or "\nconfigs:" in f"\n{text}"

    # Check the files.
    _check_shards(files)
    _check_class_names([file for file in files if file.suffix == ".parquet"])

    # Some paths would be taken for patterns: link the files
    try:
        with quiet():
            links = _linked(folder, [*files, card], reader_folder / "links" / "dataset")
            cache_dir = str(reader_folder / "read")
            builder = datasets.load_dataset_builder(
                str(links), name, cache_dir=cache_dir
            )

            # Check what the reader would read.
            data_files = builder.config.data_files or {}
            splits = {}
            for split, paths in data_files.items():
                splits[str(split)] = [os.path.relpath(path, links) for path in paths]
            _check_splits(splits, files, folder, is_stated)

            builder.download_and_prepare(download_mode=mode)
            return builder.as_dataset()
    except (
        datasets.exceptions.DatasetsError,
        pyarrow.ArrowException,
        *UNREADABLE,
    ) as error:
        if mode is None:  # perhaps only the copy is damaged
            return open_files(folder, files, reader_folder, name, "force_redownload")
        cause = one_line(error.__cause__ or error)
        remedy = "Fetch it again, or set data.name to one of several datasets in it."
        if (
            files[0].suffix == ".csv"
        ):  # the first file determines columns and their types
            remedy = (
                "Use equal columns in all CSV files, and write whole numbers as 1.0 in a column "
                "that has other numbers."
            )
        raise ActlabError(
            f"dataset {str(folder)!r} cannot be read ({cause}). {remedy}"
        ) from error


def _linked(folder: Path, files: Sequence[Path], links: Path) -> Path:
    """Return a folder of links to the files: `datasets` takes some paths for patterns."""
    for file in files:
        if not file.is_file():
            continue
        link = links / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)

        # Replace the link atomically, for parallel runs.
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(file.resolve())
        fresh.replace(link)
    return links


def _check_splits(
    splits: Mapping[str, Sequence[str]],
    files: Sequence[Path],
    folder: Path,
    is_stated: bool,
) -> None:
    """Check that the reader neither reads a file twice, nor mixes datasets, nor skips a file."""
    # No file is read twice.
    counts: Counter[str] = Counter()
    for names in splits.values():
        counts.update(names)
    for name, count in counts.items():
        if count > 1:
            raise ActlabError(
                f"{folder / name} would be read twice, because its path names a split twice. "
                f"{REMEDY}"
            )
    if is_stated:
        return

    # The files of a split are in one folder.
    for split, names in splits.items():
        parents = sorted({str(Path(name).parent) for name in names})
        if len(parents) > 1:
            raise ActlabError(
                f"{folder}: expected one folder for the split {split!r}, got {parents[0]!r} and "
                f"{parents[1]!r}. {REMEDY}"
            )

    # No file whose name names a split is skipped.
    for file in files:
        name = str(file.relative_to(folder))
        if name not in counts and _SPLIT.search(name):
            raise ActlabError(f"{folder / name} would be left out. {REMEDY}")


def _check_shards(files: Sequence[Path]) -> None:
    """Check that the parts of each table are complete and were divided once."""
    # Each part states the number of parts.
    stated_numbers: dict[str, list[str]] = {}
    for file in files:
        shard = _SHARD.fullmatch(str(file))
        if shard:
            stem, number = shard.groups()
            stated_numbers.setdefault(stem, []).append(number)

    for stem, numbers in stated_numbers.items():
        expected = int(numbers[0])
        if numbers != [numbers[0]] * expected:
            raise ActlabError(
                f"{stem}: expected {expected} parts, got {len(numbers)}. Fetch the missing parts, "
                "or keep the parts of one count only."
            )


def class_names(files: Sequence[Path], columns: Sequence[str]) -> list[str] | None:
    """Return the class names in parquet files, of the first existing one of some columns.

    None if there is no such column, or it has no class names.
    """
    kinds = _features(files[0]) if files else {}
    for column in columns:
        if column in kinds:
            return getattr(kinds[column], "names", None)
    return None


def _features(file: Path) -> Mapping[str, Any]:
    """Return the columns of a parquet file with their kinds, by the hub's metadata in it."""
    import datasets
    import pyarrow
    import pyarrow.parquet

    try:
        schema = pyarrow.parquet.read_schema(regular(file))
        features: Any = datasets.Features.from_arrow_schema(schema)
    except (pyarrow.ArrowException, *UNREADABLE) as error:
        raise ActlabError(
            f"{file} is damaged or incomplete ({one_line(error)}). Fetch it again."
        ) from error
    return dict(features)


def _check_class_names(files: Sequence[Path]) -> None:
    """Check that the class names in the hub's metadata of the files are equal, in each column."""
    references: dict[str, tuple[Path, list[str]]] = {}
    for file in files:
        for column, kind in _features(file).items():
            names = getattr(kind, "names", None)
            if not names:
                continue
            reference_file, reference_names = references.setdefault(
                column, (file, names)
            )
            if names != reference_names:
                raise ActlabError(
                    f"{reference_file} and {file} number their classes differently. Write both "
                    "with the same order of names, or use a folder of only one dataset."
                )
