"""A corpus becomes tensors: every sentence is read once, its frames kept one after another in a cache.

Shapes: ``T`` frames of all sentences of a part, ``N`` sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.cache import Cached, made_once
from actlab.datamodules.speech.corpus import PARTS, Corpus, Sentence, find, gaps
from actlab.datamodules.speech.features import features, targets
from actlab.datamodules.speech.recordings import contents, read_phones, read_recording
from actlab.errors import ActlabError
from actlab.storage.files import cache_folder

FORMAT = 2  # of the cache: raised when reading changes
KINDS = ("frames", "targets", "lengths")


class Report(NamedTuple):
    """What a folder holds.

    Args:
        counts: sentences of each part.
        problems: what is missing or damaged, one line each; empty for a whole corpus.
    """

    counts: dict[str, int]
    problems: list[str]


def check(folder: str | Path) -> Report:
    """Compare a folder with what TIMIT is: its counts, and every file read.

    Args:
        folder: of the corpus, or of NLTK's sample, of which only the files are checked.

    Raises:
        ActlabError: for a folder of something else.
    """
    corpus = find(Path(folder))
    problems = gaps(corpus) if corpus.has_parts else []
    for sentence in corpus.sentences:
        try:
            wav, phn = sentence.files
            read_phones(phn, len(read_recording(wav)))
        except ActlabError as error:
            problems.append(str(error))
    return Report({part: len(corpus.part(part)) for part in PARTS}, problems)


def frames_of(sentence: Sentence) -> tuple[Tensor, Tensor]:
    """Features ``(T, 26)`` and targets ``(T,)`` of one sentence.

    Raises:
        ActlabError: where a file is missing or damaged.
    """
    wav, phn = sentence.files
    recording = read_recording(wav)
    phones = read_phones(phn, len(recording))
    return features(recording), targets(phones, len(recording))


@contextmanager
def one_thread() -> Iterator[None]:
    """Without torch's threads: a sentence is too small; on a busy computer they take ten times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def part_of(sentences: Sequence[Sentence]) -> dict[str, Tensor]:
    """A part of a corpus: ``frames (T, 26)`` float32, ``targets (T,)`` and ``lengths (N,)`` int64."""
    frames, labels = zip(*map(frames_of, sentences), strict=True)
    lengths = torch.tensor([len(of_sentence) for of_sentence in labels])
    return {"frames": torch.cat(frames), "targets": torch.cat(labels), "lengths": lengths}


def digest_of(corpus: Corpus) -> str:
    """Digest of what is read of a corpus: the names, parts and bytes of its sentences.

    Raises:
        ActlabError: where a file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    for sentence in corpus.sentences:
        digest.update(sentence.key.encode())
        for path in sentence.files:
            digest.update(hashlib.sha256(contents(path)).digest())
    return digest.hexdigest()


def load_corpus(corpus: Corpus, cache_dir: str | None = None) -> dict[str, Tensor]:
    """All parts of a corpus as ``{part}_{kind}`` (see `part_of`), read anew or from the cache.

    Args:
        corpus: every part of it has sentences.
        cache_dir: by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.

    Raises:
        ActlabError: for a sentence that is damaged or not whole.
    """

    def read() -> Cached:
        """Every part, its sentences read."""
        with one_thread():
            parts = {part: part_of(corpus.part(part)) for part in PARTS}
        if digest_of(corpus) != content:
            raise ActlabError(
                f"{corpus.folder} changed while it was read; run again when its files are complete"
            )
        return Cached({f"{part}_{kind}": parts[part][kind] for part in PARTS for kind in KINDS}, {})

    content = digest_of(corpus)
    key = hashlib.sha256(repr((FORMAT, content)).encode()).hexdigest()[:24]
    names = [f"{part}_{kind}" for part in PARTS for kind in KINDS]
    return made_once(cache_folder(cache_dir) / f"speech-{key}.safetensors", names, read).tensors
