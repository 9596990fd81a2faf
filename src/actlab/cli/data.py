"""``actlab data list | fetch | check``: list, download and check datasets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from actlab.datamodules import twitter_pos
from actlab.datamodules.lines import lines
from actlab.datamodules.speech import reading as speech
from actlab.datamodules.speech.reading import Report
from actlab.datamodules.tweets import read_tweets
from actlab.errors import ActlabError, Parser, unknown
from actlab.storage.files import cache_folder


class PaperData(NamedTuple):
    """A dataset of the papers."""

    what: str
    source: str
    get: str  # how to get the data; continues a sentence that begins with the dataset's name
    check: Callable[[str], Report]  # of the copy in a folder


def main(argv: Sequence[str]) -> None:
    """Run ``actlab data``."""
    args = parser().parse_args(argv)
    if args.command == "list":
        for name, data in DATA.items():
            print(f"{name}: {data.what}, from {data.source}\n    {data.get}")
        print(f"Decoded data is cached in {cache_folder(None)}. Every dataset has a sample: data.sample=true.")
        return
    if args.name not in DATA:
        raise unknown("dataset", args.name, DATA)
    if args.command == "check":
        check(args.name, args.folder)
    elif args.name == "twitter_pos":
        print(*twitter_pos.fetch(args.folder), sep="\n")
    else:
        raise ActlabError(f"this command cannot fetch {args.name}: it {DATA[args.name].get}")


def parser() -> Parser:
    """Return the argument parser of ``actlab data``."""
    top = Parser(
        prog="actlab data",
        description="List, download and check datasets.",
        examples=["actlab data list", "actlab data fetch twitter_pos", "actlab data check timit FOLDER"],
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="list|fetch|check")
    commands.add_parser("list", help="list the datasets, their sources and how to get them")
    fetching = commands.add_parser("fetch", help="download a dataset and check its digests", description=FETCH)
    fetching.add_argument("name", metavar="NAME", help=", ".join(DATA))
    fetching.add_argument(
        "--folder",
        metavar="DIR",
        default=twitter_pos.FOLDER,
        help=f"default: {twitter_pos.FOLDER} for twitter_pos",
    )
    checking = commands.add_parser("check", help="count the samples of a copy, and report what is damaged")
    checking.add_argument("name", metavar="NAME", help=", ".join(DATA))
    checking.add_argument("folder", metavar="DIR", help="the folder that data.dataset names, or a hub id")
    return top


def check(name: str, folder: str) -> None:
    """Check a copy of a dataset and print the number of its samples."""
    report = DATA[name].check(folder)
    print(", ".join(f"{part} {number:,}" for part, number in report.counts.items()))
    for problem in report.problems:
        print(problem)
    if report.problems:
        raise ActlabError(
            f"{folder!r} is incomplete or damaged, with {len(report.problems)} problems listed above. "
            f"{name} {DATA[name].get}"
        )
    print(f"{name}: as expected")


def _check_images(
    wanted: dict[str, int], channels: int, classes: int, label: str | None, folder: str
) -> Report:
    from actlab.datamodules.images import ImageDataModule

    names: Any = {"val_split": None, "test_split": "test", "label": label}
    images = ImageDataModule(folder, channels=channels, **names).images  # type: ignore[arg-type]
    counts = {part: len(images.tensors[f"{part}_labels"]) for part in wanted}
    numbers = {**counts, "classes": images.num_classes}
    return Report(counts, _differences(numbers, {**wanted, "classes": classes}))


def _check_imagenet(folder: str) -> Report:
    from actlab.datamodules.imagenet import ImageNetDataModule

    train, val = ImageNetDataModule(folder).pictures.values()
    counts = {"train": len(train), "val": len(val), "classes": train.num_classes}
    return Report(counts, _differences(counts, IMAGENET))


def _check_twitter_pos(folder: str) -> Report:
    counts, problems = {}, []
    for part, (_, expected) in twitter_pos.FILES.items():
        try:
            path = twitter_pos.part_of(Path(folder), part)
            if part in TWEETS:
                counts[part] = len(read_tweets(path))
                problems += _differences({part: counts[part]}, {part: TWEETS[part]})
            digest = hashlib.sha256()
            for _, line in lines(path):
                digest.update(f"{line}\n".encode())
            if digest.hexdigest() != expected:
                problems.append(f"{path} differs from the authors' file")
        except ActlabError as error:
            problems.append(str(error))
    return Report(counts, problems)


def _check_wikitext(folder: str) -> Report:
    from actlab.datamodules.text import SPLITS, TextDataModule

    text = TextDataModule(folder).text
    rows = {SPLITS[part]: of_part.count(b"\n") for part, of_part in text.items()}  # rows end with a newline
    return Report(rows, _differences(rows, WIKITEXT))


def _differences(counts: dict[str, int], wanted: dict[str, int]) -> list[str]:
    return [f"{part}: {counts[part]:,}, expected {n:,}" for part, n in wanted.items() if counts[part] != n]


FETCH = "MNIST, CIFAR and WikiText are downloaded from the hub on first use by a run."
TWEETS = {twitter_pos.TRAIN: 1000, twitter_pos.DEV: 327, twitter_pos.TEST: 500}
_HUB = "is downloaded from the hub on first use; or set data.dataset to a folder with its parquet files"
IMAGENET = {"train": 1_281_167, "val": 50_000, "classes": 1000}
WIKITEXT = {"train": 36_718, "validation": 3_760, "test": 4_358}
_CIFAR = {"train": 50_000, "test": 10_000}
DATA = {
    "mnist": PaperData(
        "70,000 handwritten digits, 28×28",
        "the hub, ylecun/mnist",
        _HUB,
        partial(_check_images, {"train": 60_000, "test": 10_000}, 1, 10, None),
    ),
    "cifar10": PaperData(
        "60,000 photographs of 10 classes, 32×32",
        "the hub, uoft-cs/cifar10",
        _HUB,
        partial(_check_images, _CIFAR, 3, 10, None),
    ),
    "cifar100": PaperData(
        "60,000 photographs of 100 classes, 32×32",
        "the hub, uoft-cs/cifar100",
        _HUB,
        partial(_check_images, _CIFAR, 3, 100, "fine_label"),
    ),
    "imagenet": PaperData(
        "1,331,167 photographs of 1,000 classes, any size",
        "the hub, ILSVRC/imagenet-1k, or image-net.org",
        "requires agreement to its terms: log in to the hub, or set data.dataset to a folder with "
        "train/CLASS/*.JPEG and val/CLASS/*.JPEG",
        _check_imagenet,
    ),
    "twitter_pos": PaperData(
        "1,827 tweets with tags of parts of speech, and word clusters",
        "github.com/brendano/ark-tweet-nlp",
        "is downloaded by: actlab data fetch twitter_pos",
        _check_twitter_pos,
    ),
    "wikitext": PaperData(
        "44,836 lines of Wikipedia, read as bytes (wikitext-2-raw-v1)",
        "the hub, Salesforce/wikitext",
        "is downloaded from the hub on first use; or set data.dataset to any text file or folder of text files",
        _check_wikitext,
    ),
    "timit": PaperData(
        "6,300 spoken sentences with their phones",
        "the Linguistic Data Consortium, LDC93S1",
        "requires a licence from the LDC; set data.dataset to its folder",
        speech.check,
    ),
}
