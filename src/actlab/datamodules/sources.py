"""Open a folder of pictures as tables of `datasets`: parquet files in the hub's layout, or class folders.

The reader of `datasets` guesses splits from file names. It reads a file twice if its folder and its name both
name a split, ignores files in a second folder, does not detect shards that were never downloaded, and uses the
class names of the first file for all files. All of this is checked here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations, zip_longest
from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_info

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
    """Return a digest of a dataset: the names of its pictures or parquet files and `CARD`, and ``of`` each.

    By default, each is read as a whole.
    """
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

    Pictures in folders below belong to the class; files that are no pictures are skipped with a note. Splits
    without class folders are left out. ``mixed`` orders the pictures by a digest of their names instead of
    class and name: else the first pictures, which may become the validation set, are all of one class.
    """
    import datasets

    # Its own reader of such folders needs half a millisecond a file at each start: ten minutes for ImageNet.
    tables, classes_of, skipped = {}, {}, list[str]()
    for split in splits:
        tops = [top for name in FOLDERS.get(split, (split,)) if (top := folder / name).is_dir()]
        classes = _visible(entry.name for top in tops[:1] for entry in os.scandir(top) if entry.is_dir())
        if not classes:
            continue
        rows = [
            (path, label) for label, kind in enumerate(classes) for path in _pictures(tops[0] / kind, skipped)
        ]
        if mixed:
            start = len(f"{tops[0]}/")
            rows.sort(key=lambda row: hashlib.sha256(os.fsencode(row[0][start:])).digest())
        kinds = {"image": datasets.Value("string"), "label": datasets.ClassLabel(names=classes)}
        columns = dict(zip(kinds, map(list, zip(*rows, strict=True)), strict=True))
        table = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
        tables[split], classes_of[split] = table.cast_column("image", datasets.Image()), set(classes)
    if skipped:
        rank_zero_info(f"{folder}: skipped {len(skipped)} files that are no pictures, such as {skipped[0]}")
    for (split, here), (other, there) in permutations(classes_of.items(), 2):
        if alone := sorted(here - there):
            raise ActlabError(
                f"{folder}: class {alone[0]!r} is only in {split!r}, not in {other!r} ({len(alone)} such "
                "classes in all); both need the same class folders"
            )
    return tables


def _pictures(folder: Path, skipped: list[str]) -> list[str]:
    pictures: list[str] = []
    for top, folders, names in os.walk(folder, followlinks=True):
        folders[:] = _visible(folders)
        for file in (f"{top}/{name}" for name in _visible(names)):
            (pictures if file.lower().endswith(SUFFIXES) else skipped).append(file)
    if not pictures:
        raise ActlabError(
            f"{folder} has no pictures ({', '.join(SUFFIXES)}); unpack them again, or remove this class from "
            "all splits"
        )
    return pictures


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def parquet_files(folder: Path) -> list[Path]:
    """Return all parquet files below a folder, sorted; a pipe, which may never end, is rejected."""
    files = sorted(file for file in folder.rglob("*.parquet") if not file.is_dir())
    for file in [*files, folder / CARD]:
        if (file.exists() or file.is_symlink()) and not file.is_file():
            raise ActlabError(f"{file} is not a regular file; remove or replace it")
    if not files:
        raise ActlabError(
            f"{folder} holds no parquet files; expected the hub's layout, such as "
            "mnist/train-00000-of-00001.parquet, or class folders, train/CLASS/*.png and test/CLASS/*.png"
        )
    return files


def open_parquet(folder: Path, copy: Path, name: str | None = None, mode: str | None = None) -> Any:
    """Return the splits of a folder in the hub's layout, through the copy that `datasets` makes.

    The folder ``copy`` must exist until the splits have been read; a whole copy in it is kept, a damaged one is
    replaced (``mode``). ``name`` is one of several datasets that the folder's `CARD` describes.
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
        if mode is None:
            return open_parquet(folder, copy, name, "force_redownload")
        if "Config name is missing" in str(error) or f"BuilderConfig {name!r} not found" in str(error):
            raise ActlabError(
                f"{folder} holds several datasets, as its {CARD} says; set data.name to one of them "
                f"({one_line(error)})"
            ) from error
        raise _damaged(f"dataset {str(folder)!r}", error.__cause__ or error) from error


def _linked(folder: Path, files: Sequence[Path], place: Path) -> Path:
    """Return a folder of links to the files, because `datasets` parses some paths as patterns or protocols."""
    for file in (file for file in files if file.is_file()):
        link = place / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = link.with_name(f".{link.name}.{os.getpid()}")  # replaces the link atomically, for parallel runs
        fresh.symlink_to(file.resolve())
        fresh.replace(link)
    return place


def _damaged(where: str, cause: BaseException) -> ActlabError:
    return ActlabError(f"{where} is damaged or incomplete ({one_line(cause)}); fetch it again")


def _check_splits(
    splits: Mapping[str, Sequence[str]], files: Sequence[Path], folder: Path, stated: bool
) -> None:
    """Check that the reader neither reads a file twice, nor mixes datasets, nor skips a file."""
    owners: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            if name in owners:
                raise ActlabError(
                    f"{folder / name} would be read twice, as {owners[name]!r} and as {split!r}: its path "
                    f"names a split twice; {REMEDY}"
                )
            owners[name] = split
        if not stated and len(parents := sorted({str(Path(name).parent) for name in names})) > 1:
            raise ActlabError(
                f"{folder}: {split!r} would be put together from {parents[0]!r} and {parents[1]!r}; {REMEDY}"
            )
    for file in files:
        name = str(file.relative_to(folder))
        if not stated and name not in owners and _SPLIT.search(name):
            raise ActlabError(
                f"{file} would be left out; the first file read is {next(iter(owners), 'none')}; {REMEDY}"
            )


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
            raise _damaged(str(file), error) from error
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
