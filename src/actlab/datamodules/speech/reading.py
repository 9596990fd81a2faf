"""Read a corpus into tensors of frames, cached after the first read.

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
from actlab.storage.files import at_home, cache_folder

FORMAT = 2  # version of the cache; increased when reading changes
KINDS = ("frames", "targets", "lengths")


class Report(NamedTuple):
    """The result of checking a folder.

    Args:
        counts: number of sentences of each part.
        problems: one line for each missing or damaged item; empty for a complete corpus.
    """

    counts: dict[str, int]
    problems: list[str]


def check(folder: str | Path) -> Report:
    """Check a copy of TIMIT: compare its counts with the complete corpus, and read every file.

    Args:
        folder: of the corpus, or of NLTK's sample, for which only the files are checked.

    Raises:
        ActlabError: if the folder is not a copy of TIMIT.
    """
    corpus = find(at_home(folder))
    problems = gaps(corpus) if corpus.has_parts else []
    for sentence in corpus.sentences:
        try:
            wav, phn = sentence.files
            read_phones(phn, len(read_recording(wav)))
        except ActlabError as error:
            problems.append(str(error))
    return Report({part: len(corpus.part(part)) for part in PARTS}, problems)


def frames_of(sentence: Sentence) -> tuple[Tensor, Tensor]:
    """Return the features ``(T, 26)`` and the targets ``(T,)`` of one sentence.

    Raises:
        ActlabError: if a file is missing or damaged.
    """
    wav, phn = sentence.files
    recording = read_recording(wav)
    phones = read_phones(phn, len(recording))
    return features(recording), targets(phones, len(recording))


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, because sentences are small.

    On a busy machine, reading with several threads takes ten times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def part_of(sentences: Sequence[Sentence]) -> dict[str, Tensor]:
    """Return the tensors of a part: ``frames (T, 26)`` float32, ``targets (T,)`` and ``lengths (N,)`` int64."""
    frames, labels = zip(*map(frames_of, sentences), strict=True)
    lengths = torch.tensor([len(of_sentence) for of_sentence in labels])
    return {"frames": torch.cat(frames), "targets": torch.cat(labels), "lengths": lengths}


def digest_of(corpus: Corpus) -> str:
    """Return a digest of a corpus: the parts, names and file contents of its sentences.

    Raises:
        ActlabError: if a file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    for sentence in corpus.sentences:
        digest.update(sentence.key.encode())
        for path in sentence.files:
            digest.update(hashlib.sha256(contents(path)).digest())
    return digest.hexdigest()


def load_corpus(corpus: Corpus, cache_dir: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of all parts as ``{part}_{kind}`` (see `part_of`), from the cache if it is up to date.

    Args:
        corpus: must have sentences in every part.
        cache_dir: folder of the cache; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.

    Raises:
        ActlabError: if a sentence is damaged or incomplete.
    """

    def _read() -> Cached:
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
    return made_once(cache_folder(cache_dir) / f"speech-{key}.safetensors", names, _read).tensors
