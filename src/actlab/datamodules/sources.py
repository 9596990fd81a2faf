"""Open a folder of pictures as tables of `datasets`: parquet files in the hub's layout, or class folders.

The reader of `datasets` guesses splits from file names. It reads a file twice if its folder and its name both
name a split, ignores files in a second folder, does not detect shards that were never downloaded, and uses the
class names of the first file for all files. All of this is checked here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations, zip_longest
from pathlib import Path
from typing import Any

from actlab.datamodules.hub import quiet
from actlab.datamodules.pictures import UNREADABLE
from actlab.errors import ActlabError, one_line
from actlab.storage.digests import digests_of
from actlab.storage.files import digest_of as digest_of_file
from actlab.storage.files import regular

CARD = "README.md"  # its header may list the files of each split and the class names
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
FOLDERS = {"validation": ("validation", "val", "valid")}  # split → names of its folder, else the split's own
REMEDY = (
    "give the folder of one dataset, with its splits in folders or files called train and test, or name the "
    "files of each split in a README.md (configs: data_files)"
)
_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.parquet")
_SPLIT = re.compile(r"train|test|valid", re.IGNORECASE)


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


def digest_of(folder: Path, of: Callable[[Path], bytes] | None = None) -> str:
    """Return a digest of a dataset: of the names of its pictures, parquet files and `CARD`, and ``of`` each."""
    digest, card = hashlib.sha256(), folder / CARD
    files = _all_pictures(folder) if has_class_folders(folder) else map(str, parquet_files(folder))
    for file in [*files, *([str(card)] if card.is_file() else [])]:
        digest.update(os.fsencode(file.removeprefix(f"{folder}/")))
        try:
            digest.update(of(Path(file)) if of else bytes.fromhex(digest_of_file(Path(file))))
        except OSError as error:
            raise ActlabError(f"{file} cannot be read ({one_line(error)})") from error
    return digest.hexdigest()


def has_class_folders(folder: Path) -> bool:
    """Return whether a folder has class folders in ``train/``, as torchvision's ``ImageFolder`` reads them."""
    top = folder / "train"
    parquet = any(top.glob("*.parquet")) or any(top.glob("*/*.parquet"))
    return top.is_dir() and not parquet and any(entry.is_dir() for entry in top.iterdir())


def _all_pictures(folder: Path) -> list[str]:
    files = (f"{top}/{name}" for top, _, names in os.walk(folder, followlinks=True) for name in names)
    return sorted(file for file in files if file.lower().endswith(SUFFIXES))


def open_tables(
    folder: Path, splits: Iterable[str], copy: Path, name: str | None = None, mixed: bool = False
) -> Any:
    """Return the splits of a folder of either layout, see `open_class_folders` and `open_parquet`."""
    if has_class_folders(folder):
        return open_class_folders(folder, splits, mixed)
    return open_parquet(folder, copy, name)


def open_class_folders(folder: Path, splits: Iterable[str], mixed: bool = False) -> dict[str, Any]:
    """Return the splits of class folders, ``SPLIT/CLASS/*.png``, as tables of paths; labels number the names.

    ``mixed`` orders the pictures by a digest of their names instead of class and name.
    """
    import datasets

    # Its own reader of such folders needs half a millisecond a file at each start: ten minutes for ImageNet.
    tables, classes_of = {}, {}
    for split in splits:
        tops = [top for name in FOLDERS.get(split, (split,)) if (top := folder / name).is_dir()]
        classes = _visible(entry.name for top in tops[:1] for entry in os.scandir(top) if entry.is_dir())
        if not classes:
            continue
        rows = [(path, label) for label, kind in enumerate(classes) for path in _pictures(tops[0] / kind)]
        if mixed:  # else the first pictures, which may become the validation set, are all of one class
            start = len(f"{tops[0]}/")
            rows.sort(key=lambda row: hashlib.sha256(os.fsencode(row[0][start:])).digest())
        kinds = {"image": datasets.Value("string"), "label": datasets.ClassLabel(names=classes)}
        columns = dict(zip(kinds, map(list, zip(*rows, strict=True)), strict=True))
        table = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
        tables[split], classes_of[split] = table.cast_column("image", datasets.Image()), set(classes)
    for (split, here), (other, there) in permutations(classes_of.items(), 2):
        if alone := sorted(here - there):
            raise ActlabError(
                f"{folder}: class {alone[0]!r} is only in {split!r}, not in {other!r} ({len(alone)} such "
                "classes in all); both need the same class folders"
            )
    return tables


def _pictures(folder: Path) -> list[str]:
    pictures: list[str] = []
    for top, folders, names in os.walk(folder, followlinks=True):
        folders[:] = _visible(folders)
        pictures += [f"{top}/{name}" for name in _visible(names) if name.lower().endswith(SUFFIXES)]
    if not pictures:
        raise ActlabError(
            f"{folder} has no pictures ({', '.join(SUFFIXES)}); unpack them again, or remove this class from "
            "all splits"
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
            "mnist/train-00000-of-00001.parquet, or class folders, train/CLASS/*.png and test/CLASS/*.png"
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
            splits = {str(split): [os.path.relpath(file, place) for file in of] for split, of in data_files}
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
        fresh = link.with_name(f".{link.name}.{os.getpid()}")  # replaces the link atomically, for parallel runs
        fresh.symlink_to(file.resolve())
        fresh.replace(link)
    return place


def _check_splits(
    splits: Mapping[str, Sequence[str]], files: Sequence[Path], folder: Path, stated: bool
) -> None:
    """Check that the reader neither reads a file twice, nor mixes datasets, nor skips a file."""
    counts = Counter(name for names in splits.values() for name in names)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ActlabError(f"{folder / twice[0]} would be read twice: its path names a split twice; {REMEDY}")
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
    names = {str(file) for file in files}
    counts = sorted({(m[1], int(m[2])) for name in names if (m := _SHARD.fullmatch(name))})
    for (stem, count), (next_stem, next_count) in pairwise(counts):
        if stem == next_stem:
            raise ActlabError(
                f"{stem} is in {count} and in {next_count} parts; keep the parts of one count only"
            )
    for stem, count in counts:
        shards = {f"{stem}-{number:05}-of-{count:05}.parquet" for number in range(count)}
        if missing := sorted(shards - names):
            raise ActlabError(f"{missing[0]} is missing, {len(missing)} of {count} parts in all; fetch it")


def _check_class_names(files: Sequence[Path]) -> None:
    """Check that the class names in the hub's metadata of the files are equal, column by column."""
    import datasets
    import pyarrow
    import pyarrow.parquet

    first: dict[str, tuple[Path, list[str]]] = {}
    for file in files:
        try:
            features = datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(regular(file)))
        except (pyarrow.ArrowException, *UNREADABLE) as error:
            raise ActlabError(f"{file} is damaged or incomplete ({one_line(error)}); fetch it again") from error
        for column, kind in features.items():
            if not (names := getattr(kind, "names", None)):
                continue
            other, expected = first.setdefault(column, (file, names))
            if names != expected:
                pairs = enumerate(zip_longest(expected, names))
                number, (before, here) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
                raise ActlabError(
                    f"{other} and {file} number their classes differently: class {number} is {before!r} in the "
                    f"first and {here!r} in the second; rewrite them with one order of names, or give a folder "
                    "that holds only one dataset"
                )
