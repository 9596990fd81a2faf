"""``actlab data list | fetch``: list and download datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from actlab.cli.parser import Parser
from actlab.datamodules import twitter_pos
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage.paths import cache_folder


class PaperData(NamedTuple):
    """A dataset of the papers."""

    content: str
    source: str
    access: str  # how to get the data; continues a sentence that begins with the dataset's name


def main(argv: Sequence[str]) -> None:
    """Run ``actlab data``."""
    args = parser().parse_args(argv)
    # The list needs no download
    if args.command == "list":
        for name, data in DATA.items():
            print(f"{name}: {data.content}, from {data.source}\n    {data.access}")
        print(
            f"Decoded data is cached in {cache_folder(None)}. Every dataset has a sample: "
            "data.sample=true."
        )
        return

    # Suggest the nearest names
    if args.name not in DATA:
        raise unknown("dataset", args.name, DATA)

    # The only dataset that a user has to fetch; others come from the hub or need a
    # licence
    if args.name == "twitter_pos":
        print(*twitter_pos.fetch(args.folder), sep="\n")
    else:
        access = DATA[args.name].access
        raise ActlabError(f"this command cannot fetch {args.name}, which {access}.")


def parser() -> Parser:
    """Return the argument parser of ``actlab data``."""
    top = Parser(
        prog="actlab data",
        description="List or download the datasets of the papers.",
        examples=["actlab data list", "actlab data fetch twitter_pos"],
    )
    commands = top.add_subparsers(
        title="commands", dest="command", required=True, metavar="list|fetch"
    )
    commands.add_parser("list", help=LIST, description=f"{LIST}.")

    # Only downloads have arguments
    fetching = commands.add_parser(
        "fetch", help=FETCH, description=f"{FETCH}. {_ON_FIRST_USE}"
    )
    fetching.add_argument("name", metavar="NAME", help="the dataset: twitter_pos")
    fetching.add_argument(
        "--folder",
        metavar="DIR",
        default=twitter_pos.FOLDER,
        help=f"folder for the files; default: {twitter_pos.FOLDER}",
    )
    return top


LIST = "List the datasets, their sources and how to get them"
FETCH = "Download a dataset and check its digests"
_ON_FIRST_USE = (
    "A run downloads MNIST, CIFAR and WikiText from the Hugging Face Hub on first use."
)
_HUB = (
    "is downloaded from the Hugging Face Hub on first use, unless data.dataset is a folder with "
    "its parquet files"
)
DATA = {
    "mnist": PaperData(
        "70,000 handwritten digits, 28×28",
        "the hub, ylecun/mnist",
        _HUB,
    ),
    "cifar10": PaperData(
        "60,000 photographs of 10 classes, 32×32",
        "the hub, uoft-cs/cifar10",
        _HUB,
    ),
    "cifar100": PaperData(
        "60,000 photographs of 100 classes, 32×32",
        "the hub, uoft-cs/cifar100",
        _HUB,
    ),
    "imagenet": PaperData(
        "1,331,167 photographs of 1,000 classes, any size",
        "the hub, ILSVRC/imagenet-1k, or image-net.org",
        "requires agreement to its terms. Log in to the Hugging Face Hub, or set data.dataset to a "
        "folder with train/CLASS/*.JPEG and val/CLASS/*.JPEG",
    ),
    "twitter_pos": PaperData(
        "1,827 tweets with tags of parts of speech, and word clusters",
        "github.com/brendano/ark-tweet-nlp",
        "is downloaded by `actlab data fetch twitter_pos`",
    ),
    "wikitext": PaperData(
        "44,836 lines of Wikipedia, read as bytes (wikitext-2-raw-v1)",
        "the hub, Salesforce/wikitext",
        "is downloaded from the Hugging Face Hub on first use, unless data.dataset is a text file "
        "or a folder of text files",
    ),
    "timit": PaperData(
        "6,300 spoken sentences with their phones",
        "the Linguistic Data Consortium, LDC93S1",
        "requires a licence from the LDC. Set data.dataset to its folder",
    ),
}
