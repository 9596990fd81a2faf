"""The datamodule of Twitter part-of-speech tagging (GELU §3.3), with fixed word features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.base import Batch, TensorDataModule, TensorDataset, dataset_or
from actlab.datamodules.sources import state
from actlab.datamodules.tweets import TAGS, Tweet, normalize, read_tweets
from actlab.datamodules.words import (
    PADDING,
    UNKNOWN,
    WordFeatures,
    read_clusters,
    read_vectors,
)
from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.random.positions import Position
from actlab.storage.paths import at_home
from actlab.validation import validated

FOLDER = "data/twitter_pos"
RETRIES = 1  # of a download
PATIENCE = 10  # seconds without data after which a request fails
TRAIN = "oct27.train"
DEV = "oct27.dev"
TEST = "oct27.test"
DAILY = "daily547"
CLUSTERS = "50mpaths2"
TWEETS = {TRAIN: 1_000, DEV: 327, TEST: 500, DAILY: 547}
# Accepted suffixes of a file name.
ENDINGS = {
    DAILY: ("", ".conll"),
    CLUSTERS: ("", ".gz", ".txt"),
}

REMEDY = (
    f"The data are {TRAIN}, {DEV} and {TEST} (on each line a token, a tab and its tag) and the "
    f"clusters {CLUSTERS}, all from github.com/brendano/ark-tweet-nlp. Run actlab data fetch "
    "twitter_pos, or set data.sample to true."
)

_ARK = "https://raw.githubusercontent.com/brendano/ark-tweet-nlp/master"
_OCT27 = f"{_ARK}/data/twpos-data-v0.3/oct27.splits"
_CMU = f"{_ARK}/src/cmu/arktweetnlp"
FILES = {  # name → URL and SHA-256 digest
    TRAIN: (
        f"{_OCT27}/{TRAIN}",
        "e55a63da62838a28b308bd1be0b5c903ac242ef208dc59838f4b39aa33b11948",
    ),
    DEV: (
        f"{_OCT27}/{DEV}",
        "046e9c57ed2549b4dec08a9a7bccf8ec7f742faaa7b55d840408f2dfd1356851",
    ),
    TEST: (
        f"{_OCT27}/{TEST}",
        "77f868fcd300d0acdd7bb8db28c961fcbe50d9cd0d48046e8fbec4b9f86bf814",
    ),
    CLUSTERS: (
        f"{_CMU}/{CLUSTERS}",
        "67bdd062869a58949a1d6a3def0fcadc9c835ad63ed27dfc7dde36b79c929169",
    ),
}


def fetch(folder: str | Path = FOLDER) -> list[Path]:
    """Download the tweets and the Brown clusters from their authors' repositories.

    Valid local files stay.

    Returns:
        The paths of all files.

    Raises:
        ActlabError: if a file cannot be downloaded.
    """
    import pooch

    # Prepare the download.
    downloader = pooch.HTTPDownloader(progressbar=True, timeout=PATIENCE)
    folder = str(at_home(folder))
    store = pooch.create(folder, base_url="", retry_if_failed=RETRIES)

    # Download each file.
    paths = []
    for name, (url, digest) in FILES.items():
        store.urls[name] = url
        store.registry[name] = f"sha256:{digest}"
        try:
            path = store.fetch(name, downloader=downloader)
        except (OSError, ValueError) as error:
            response = getattr(error, "response", None)
            if response is not None:
                response.close()  # pooch leaves the connection of a failed request open
            raise ActlabError(
                f"{name} cannot be downloaded from {url} ({one_line(error)}). Check the network, "
                f"or put the file into {folder}."
            ) from error
        paths.append(Path(path))
    return paths


class TweetCorpus(NamedTuple):
    """The tweets of each split and the features of their words."""

    train: list[Tweet]
    val: list[Tweet]
    test: list[Tweet]
    features: WordFeatures


@lru_cache(maxsize=2)
def _read(
    files: tuple[Path, ...],
    read_words: Callable[[Path, Set[str]], WordFeatures],
    states: tuple[bytes, ...],
) -> TweetCorpus:
    """Read three files of tweets and one of word features, once per process and state."""
    *tweet_files, word_file = files
    train, val, test = map(read_tweets, tweet_files)

    # Read the features of their words alone.
    words: set[str] = set()
    for tweet in [*train, *val, *test]:
        # Normalised, as the words of the features are
        words.update(map(normalize, tweet.tokens))
    return TweetCorpus(train, val, test, read_words(word_file, words))


def find_file(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, with one of the accepted `ENDINGS` of its name."""
    for ending in ENDINGS.get(name, ("",)):
        path = folder / f"{name}{ending}"
        if path.exists():
            return path
    raise ActlabError(f"{folder} has no file {name!r}. {REMEDY}")


def windows(tweets: Sequence[Tweet], features: WordFeatures) -> tuple[Tensor, Tensor]:
    """Return a window of each word, as rows of the table, and the labels of the words.

    Returns:
        Rows int64 ``(N, 3)`` for the left word, the word and the right word; labels ``(N,)``.
    """
    rows: list[tuple[int, int, int]] = []
    labels: list[int] = []
    for tweet in tweets:
        # Pad each tweet at its ends.
        words = [features.rows.get(normalize(token), UNKNOWN) for token in tweet.tokens]
        padded = [PADDING, *words, PADDING]
        rows.extend(zip(padded[:-2], words, padded[2:], strict=True))
        labels.extend(tweet.labels)
    return torch.tensor(rows), torch.tensor(labels)


def look_up(table: Tensor, batch: Batch, position: Position) -> Batch:
    """Replace rows ``(…, 3)`` of a table ``(V + 2, D)`` by their features ``(…, 3, D)``."""
    # Features are looked up batch by batch: a table is smaller than all windows
    rows, labels = batch
    return table[rows], labels


class TwitterPOSDataModule(TensorDataModule):
    """Words of tweets and their part-of-speech tags, from the ARK files for train, dev and test.

    A batch has features ``(B, 3, D)`` float32 of the left word, the word and the right word, and
    labels ``(B,)`` int64, indices in `actlab.datamodules.tweets.TAGS`. The file ``oct27.dev`` is
    the validation set. Features are not trained (GELU §3.3). With clusters, D is 34 and the network
    3·34–256–256–25 has 98,585 parameters. With the paper's vectors, D is 50 and the network
    3·50–256–256–25 has 110,873 parameters.

    Args:
        dataset: a folder with ``oct27.train``, ``oct27.dev``, ``oct27.test`` and the Brown clusters
            ``50mpaths2`` (or ``.gz``); by default ``data/twitter_pos``.
        sample: use the bundled sample instead: 120 generated tweets, 40 for validation, 40 for
            test.
        vectors: a text file of word vectors, plain or gzipped, to use instead of the clusters.
        test_set: ``oct27.test``, or ``daily547`` to test on that file of the folder.
        batch_size: size of the global training batch; an incomplete last batch of an epoch is
            dropped.
        eval_batch_size: batch size for validation, test and prediction.
        seed: determines the order of batches.

    Raises:
        ActlabError: if a file is missing, damaged or malformed.
    """

    sample_replaces_dataset = True
    published = TWEETS
    num_classes = len(TAGS)  # K = 25
    class_names = TAGS

    @validated
    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        vectors: str | None = None,
        test_set: Literal["oct27.test", "daily547"] = "oct27.test",
        batch_size: int = 16,
        eval_batch_size: int = 5000,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        self.dataset = dataset_or(FOLDER, dataset, sample, "twitter_pos")
        self.vectors = vectors
        self.test_set = test_set

    @cached_property
    def corpus(self) -> TweetCorpus:
        """The tweets and the features of their words; read on first use."""
        folder = at_home(self.dataset)
        if not folder.is_dir():
            raise ActlabError(
                f"data.dataset: expected a folder, got {self.dataset!r}. {REMEDY}"
            )

        # Find the files.
        files = [find_file(folder, name) for name in (TRAIN, DEV, self.test_set)]
        if self.vectors is None:
            files.append(find_file(folder, CLUSTERS))
            read_words = read_clusters
        else:
            files.append(at_home(self.vectors))
            read_words = read_vectors

        # Read them, if they have changed.
        states = tuple(state(file) for file in files)
        return _read(tuple(files), read_words, states)

    @property
    def counts(self) -> Mapping[str, int]:  # type: ignore[override]
        """The number of tweets in each file."""
        corpus = self.corpus
        return {
            TRAIN: len(corpus.train),
            DEV: len(corpus.val),
            self.test_set: len(corpus.test),
        }

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(3, D)."""
        return 3, self.corpus.features.table.shape[1]

    def load(self, device: torch.device) -> None:
        """Load the windows of each split; the transform looks up the features of each batch."""
        features = self.corpus.features
        transform = partial(look_up, features.table.to(device))

        # Each sample is a window around a word
        def part(tweets: Sequence[Tweet]) -> TensorDataset:
            rows, labels = windows(tweets, features)
            dataset = TensorDataset(
                rows.to(device), labels.to(device), transform=transform
            )

            # The words of a tweet are a group.
            lengths = torch.tensor(
                [len(tweet.labels) for tweet in tweets], device=device
            )
            numbers = torch.arange(len(tweets), device=device)
            dataset.groups = numbers.repeat_interleave(lengths)
            return dataset

        self.train = part(self.corpus.train)
        self.val = part(self.corpus.val)
        self.test = part(self.corpus.test)
