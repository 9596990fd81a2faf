"""The datamodule of Twitter part-of-speech tagging (GELU §3.3), with fixed word features.

Shapes: ``B`` batch, ``N`` tokens, ``D`` features of a word, ``K`` tags.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.base import Batch, TensorDataModule, TensorDataset, check_sample_alone
from actlab.datamodules.clusters import PADDING, UNKNOWN, WordFeatures, read_clusters
from actlab.datamodules.downloads import Downloader, Remote, download, git_name
from actlab.datamodules.tweets import TAGS, Tweet, normalize, read_tweets
from actlab.datamodules.vectors import read_vectors
from actlab.errors import ActlabError, unknown
from actlab.random.positions import Position
from actlab.storage.files import at_home
from actlab.storage.resources import resource

FOLDER = "data/twitter_pos"
TRAIN, DEV, TEST, DAILY, CLUSTERS = "oct27.train", "oct27.dev", "oct27.test", "daily547", "50mpaths2"
VECTORS = "embeddings-twitter.txt"
ENDINGS = {DAILY: ("", ".conll"), CLUSTERS: ("", ".gz", ".txt")}  # accepted suffixes of a file name

_ARK = "https://raw.githubusercontent.com/brendano/ark-tweet-nlp/master"
_DATA = f"{_ARK}/data/twpos-data-v0.3"
_AUTHORS = "https://raw.githubusercontent.com/hendrycks/GELUs/master/data/Tweets"


def _is_daily547(path: Path) -> bool:
    """Return whether a file holds 547 tweets with 7,707 tokens."""
    try:
        tweets = read_tweets(path)
    except ActlabError:
        return False
    return (len(tweets), sum(len(tweet.tokens) for tweet in tweets)) == (547, 7707)


FILES = {
    TRAIN: Remote(
        f"{_DATA}/oct27.splits/{TRAIN}", "e55a63da62838a28b308bd1be0b5c903ac242ef208dc59838f4b39aa33b11948"
    ),
    DEV: Remote(
        f"{_DATA}/oct27.splits/{DEV}", "046e9c57ed2549b4dec08a9a7bccf8ec7f742faaa7b55d840408f2dfd1356851"
    ),
    TEST: Remote(
        f"{_DATA}/oct27.splits/{TEST}", "77f868fcd300d0acdd7bb8db28c961fcbe50d9cd0d48046e8fbec4b9f86bf814"
    ),
    CLUSTERS: Remote(
        f"{_ARK}/src/cmu/arktweetnlp/{CLUSTERS}",
        "67bdd062869a58949a1d6a3def0fcadc9c835ad63ed27dfc7dde36b79c929169",
    ),
}
# Not required by default: a second test set, and the paper's vectors, verified by their git blob hash.
EXTRAS = {
    f"{DAILY}.conll": Remote(f"{_DATA}/{DAILY}.conll", is_right=_is_daily547),
    VECTORS: Remote(
        f"{_AUTHORS}/{VECTORS}",
        is_right=lambda path: git_name(path) == "771febee0aec21c1f736401e30621f1594646d2b",
    ),
}


def fetch(
    folder: str | Path = FOLDER, extras: Collection[str] = (), downloader: Downloader | None = None
) -> list[Path]:
    """Download the tweets and the Brown clusters from their authors' repositories; keep valid local files.

    Args:
        folder: target folder.
        extras: names from `EXTRAS` to download as well.
        downloader: replaces the network, for example in tests.

    Returns:
        The paths of the files.

    Raises:
        ActlabError: if an extra is unknown, or a file cannot be downloaded or is not the expected file.
    """
    if strange := sorted(set(extras) - EXTRAS.keys()):
        raise unknown("extra file", strange[0], EXTRAS)
    wanted = FILES | {name: EXTRAS[name] for name in EXTRAS if name in extras}
    return download(wanted, at_home(str(folder)), downloader)


class Corpus(NamedTuple):
    """The tweets of each split and the features of their words."""

    train: list[Tweet]
    val: list[Tweet]
    test: list[Tweet]
    features: WordFeatures


def corpus_of(folder: Path, vectors: Path | None, test: str) -> Corpus:
    """Return the three splits and the features of all their words.

    Unchanged files are read once per process.

    Args:
        folder: holds the files of the splits, and of the clusters if ``vectors`` is None.
        vectors: a file of word vectors, or None for the clusters.
        test: file name of the test split.

    Raises:
        ActlabError: if a file is missing, damaged or malformed.
    """
    if not folder.is_dir():
        raise ActlabError(f"dataset {str(folder)!r} is not a folder; {_remedy()}")
    parts = tuple(part_of(folder, name) for name in (TRAIN, DEV, test))
    known = vectors or part_of(folder, CLUSTERS)
    states = tuple(path.stat() for path in (*parts, known) if path.exists())
    return _read(parts, known, vectors is None, tuple((s.st_ino, s.st_size, s.st_mtime_ns) for s in states))


@lru_cache(maxsize=2)
def _read(parts: tuple[Path, ...], known: Path, clustered: bool, states: tuple[tuple[int, ...], ...]) -> Corpus:
    train, val, test = map(read_tweets, parts)
    needed = {normalize(token) for tweet in [*train, *val, *test] for token in tweet.tokens}
    return Corpus(train, val, test, (read_clusters if clustered else read_vectors)(known, needed))


def part_of(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, with one of the accepted `ENDINGS` of its name.

    Raises:
        ActlabError: if there is no such file.
    """
    for ending in ENDINGS.get(name, ("",)):
        if (path := folder / f"{name}{ending}").exists():
            return path
    raise ActlabError(f"{folder} has no file {name!r}; {_remedy()}")


def _remedy() -> str:
    return (
        f"required are {TRAIN}, {DEV} and {TEST} (on each line a token, a tab and its tag) and the clusters"
        f" {CLUSTERS}, all from github.com/brendano/ark-tweet-nlp: run actlab data fetch twitter_pos, or set"
        " data.sample to true"
    )


def windows(tweets: Sequence[Tweet], features: WordFeatures) -> tuple[Tensor, Tensor]:
    """Return each token and its two neighbours as rows of the feature table.

    Returns:
        Rows int64 ``(N, 3)`` of the left word, the word and the right word, and labels int64 ``(N,)``; tokens
        in file order.
    """
    rows: list[list[int]] = []
    for tweet in tweets:
        known = [features.rows.get(normalize(token), UNKNOWN) for token in tweet.tokens]
        padded = [PADDING, *known, PADDING]
        rows += map(list, zip(padded, padded[1:], padded[2:], strict=False))
    return torch.tensor(rows), torch.tensor([label for tweet in tweets for label in tweet.labels])


def looked_up(table: Tensor, batch: Batch, position: Position) -> Batch:
    """Look up rows ``(…, 3)`` in a table ``(V + 2, D)``: features ``(…, 3, D)`` and the unchanged labels."""
    rows, labels = batch
    return table[rows], labels


class TwitterPOSDataModule(TensorDataModule):
    """Tokens of tweets and their parts of speech, from the ARK files for train, dev (validation) and test.

    Batches: features ``(B, 3, D)`` float32 of the left word, the word and the right word, and labels ``(B,)``
    int64, indices in `actlab.datamodules.tweets.TAGS`. Features are not trained (GELU §3.3). With clusters, D
    is 34 and the network 3·34–256–256–25 has 98,585 parameters. With the paper's vectors, D is 50 and the
    network 3·50–256–256–25 has 110,873 parameters.

    Args:
        dataset: a folder with ``oct27.train``, ``oct27.dev``, ``oct27.test`` and the Brown clusters
            ``50mpaths2`` (or ``.gz``); by default ``data/twitter_pos``.
        sample: use the embedded sample instead: 120 generated tweets, 40 for validation, 40 for test.
        vectors: a text file of word vectors, plain or gzipped, to use instead of the clusters.
        test_set: ``oct27.test``, or ``daily547`` to test on that file of the folder.
        batch_size: size of the global training batch.
        eval_batch_size: batch size for validation, test and prediction.
        seed: determines the order of batches.

    Raises:
        ActlabError: if a file is missing, damaged or malformed.
    """

    sample_replaces_dataset = True

    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        vectors: str | None = None,
        test_set: Literal["oct27.test", "daily547"] = "oct27.test",
        batch_size: int = 16,
        eval_batch_size: int = 5000,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        check_sample_alone(dataset, sample)
        self.dataset = str(resource("data/samples/twitter_pos")) if sample else dataset or FOLDER
        self.vectors, self.test_set = vectors, test_set
        self._corpus: Corpus | None = None

    @property
    def corpus(self) -> Corpus:
        """The tweets and the features of their words; read on first use."""
        if self._corpus is None:
            vectors = None if self.vectors is None else at_home(self.vectors)
            self._corpus = corpus_of(at_home(self.dataset), vectors, self.test_set)
        return self._corpus

    @property
    def num_classes(self) -> int:
        """The number of tags K = 25."""
        return len(TAGS)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, D)."""
        return 3, self.corpus.features.table.shape[1]

    def load(self, device: torch.device) -> None:
        """Load the windows of each split; the transform looks up the features of each batch."""
        corpus = self.corpus
        transform = partial(looked_up, corpus.features.table.to(device))
        self.train, self.val, self.test = (
            TensorDataset(*(t.to(device) for t in windows(tweets, corpus.features)), transform=transform)
            for tweets in (corpus.train, corpus.val, corpus.test)
        )
