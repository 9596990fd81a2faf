"""``actlab data list | fetch | check``: which data there are, how to get them, whether a copy is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from actlab.datamodules import twitter_pos
from actlab.datamodules.lines import lines
from actlab.datamodules.speech import reading as speech
from actlab.datamodules.tweets import read_tweets
from actlab.errors import ActlabError, Parser, unknown
from actlab.storage.files import at_home, cache_folder


class Found(NamedTuple):
    """What a copy of a data set holds.

    Args:
        counts: of samples, by part.
        problems: what is missing or damaged, one line each.
    """

    counts: dict[str, int]
    problems: list[str]


class DataSet(NamedTuple):
    """A data set of the papers.

    Args:
        what: in a few words.
        source: where it is from.
        get: how to get it.
        check: looks through a copy.
        fetch: gets it into a folder, where that can be done without the hub's reader.
    """

    what: str
    source: str
    get: str
    check: Callable[[str], Found]
    fetch: Callable[[str], list[Path]] | None = None


def main(argv: Sequence[str]) -> None:
    """Run ``actlab data`` with the words after it.

    Raises:
        ActlabError: for bad input, a file that cannot be had, or a copy that is not whole.
    """
    args = parser().parse_args(argv)
    if args.command == "list":
        show()
        return
    if args.name not in DATA:
        raise unknown("data set", args.name, DATA)
    if args.command == "fetch":
        fetch(args.name, args.folder)
    else:
        check(args.name, args.folder)


def parser() -> Parser:
    """The command line of ``actlab data``."""
    top = Parser(
        prog="actlab data",
        description="Which data there are, how to get them, and whether they are whole.",
        examples=["actlab data list", "actlab data fetch twitter_pos", "actlab data check timit FOLDER"],
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="list|fetch|check")
    commands.add_parser("list", help="the data sets, where they are from and how to get them")
    one = commands.add_parser("fetch", help="get a data set, checked by its digests", description=FETCH)
    one.add_argument("name", metavar="NAME", help=", ".join(DATA))
    one.add_argument("--folder", metavar="DIR", help=f"default: {twitter_pos.FOLDER} for twitter_pos")
    other = commands.add_parser("check", help="say what a copy holds, and what is missing or damaged")
    other.add_argument("name", metavar="NAME", help=", ".join(DATA))
    other.add_argument("folder", metavar="DIR", help="the folder that data.dataset names, or a hub id")
    return top


def show() -> None:
    """Print the data sets."""
    for name, data in DATA.items():
        print(f"{name}: {data.what}, from {data.source}\n    {data.get}")
    print(f"Decoded data are kept in {cache_folder(None)}. Every data set has a sample: data.sample=true.")


def fetch(name: str, folder: str | None) -> None:
    """Get a data set and say where it is.

    Raises:
        ActlabError: when it cannot be had.
    """
    get = DATA[name].fetch
    if get is None:
        raise ActlabError(f"{name} is not fetched by this command: it {DATA[name].get}")
    for path in get(folder or twitter_pos.FOLDER):
        print(path)


def check(name: str, folder: str) -> None:
    """Print what a copy holds.

    Raises:
        ActlabError: when it is not whole.
    """
    found = DATA[name].check(folder)
    print(", ".join(f"{part} {number:,}" for part, number in found.counts.items()))
    for problem in found.problems:
        print(problem)
    if found.problems:
        raise ActlabError(
            f"{folder!r} is not whole: {len(found.problems)} problems, listed above. It {DATA[name].get}"
        )
    print(f"{name}: as expected")


def _images(
    wanted: dict[str, int], channels: int, classes: int, label: str | None = None
) -> Callable[[str], Found]:
    """A check of a data set of images: numbers of images of each part, every one decoded, and of classes."""

    def look(folder: str) -> Found:
        """Decode a copy and count."""
        from actlab.datamodules.sources import load_images

        images = load_images(folder, tuple(wanted), channels, label)
        counts = {part: len(images.tensors[f"{part}_labels"]) for part in wanted}
        found = {**counts, "classes": images.num_classes}
        return Found(counts, _differences(found, {**wanted, "classes": classes}))

    return look


def _pictures(folder: str) -> Found:
    from actlab.datamodules.imagenet import ImageNetDataModule

    parts = ImageNetDataModule(folder).encoded
    counts = {part: len(pictures) for part, pictures in parts.items()} | {"classes": parts["train"].num_classes}
    return Found(counts, _differences(counts, IMAGENET))


def _tweets(folder: str) -> Found:
    counts, problems = {}, []
    for part, remote in twitter_pos.FILES.items():
        try:
            path = twitter_pos.part_of(Path(folder), part)
            if part in TWEETS:
                counts[part] = len(read_tweets(path))
                problems += _differences({part: counts[part]}, {part: TWEETS[part]})
            digest = hashlib.sha256()
            for _, line in lines(path):
                digest.update(line + b"\n")
            if digest.hexdigest() != remote.sha256:
                problems.append(f"{path} is not the authors' file: its lines are others")
        except ActlabError as error:
            problems.append(str(error))
    return Found(counts, problems)


def _timit(folder: str) -> Found:
    report = speech.check(at_home(folder))
    return Found(report.counts, report.problems)


def _differences(counts: dict[str, int], wanted: dict[str, int]) -> list[str]:
    return [f"{part}: {counts[part]:,}, expected are {n:,}" for part, n in wanted.items() if counts[part] != n]


FETCH = "Files of MNIST and CIFAR come from the hub by themselves when a run first asks for them."
TWEETS = {twitter_pos.TRAIN: 1000, twitter_pos.DEV: 327, twitter_pos.TEST: 500}
_HUB = "comes from the hub by itself, or download its parquet files and name their folder in data.dataset"
IMAGENET = {"train": 1_281_167, "val": 50_000, "classes": 1000}
_CIFAR = {"train": 50_000, "test": 10_000}
DATA = {
    "mnist": DataSet(
        "70,000 handwritten digits, 28×28",
        "the hub, ylecun/mnist",
        _HUB,
        _images({"train": 60_000, "test": 10_000}, 1, 10),
    ),
    "cifar10": DataSet(
        "60,000 photographs of 10 classes, 32×32", "the hub, uoft-cs/cifar10", _HUB, _images(_CIFAR, 3, 10)
    ),
    "cifar100": DataSet(
        "60,000 photographs of 100 classes, 32×32",
        "the hub, uoft-cs/cifar100",
        _HUB,
        _images(_CIFAR, 3, 100, "fine_label"),
    ),
    "imagenet": DataSet(
        "1,331,167 photographs of 1,000 classes, any size",
        "the hub, ILSVRC/imagenet-1k, or image-net.org",
        "is for those who have agreed to its terms: comes from the hub with an account, or as a folder of "
        "train/CLASS/*.JPEG and val/CLASS/*.JPEG that data.dataset names",
        _pictures,
    ),
    "twitter_pos": DataSet(
        "1,827 tweets with tags of parts of speech, and word clusters",
        "github.com/brendano/ark-tweet-nlp",
        "is fetched by: actlab data fetch twitter_pos",
        _tweets,
        twitter_pos.fetch,
    ),
    "timit": DataSet(
        "6,300 spoken sentences with their phones",
        "the Linguistic Data Consortium, LDC93S1",
        "is licensed: ask the LDC for it, and name its folder in data.dataset",
        _timit,
    ),
}
