"""Read a corpus into tensors of frames, cached after the first read."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from actlab.datamodules.cache import made_once
from actlab.datamodules.speech.corpus import PARTS, Corpus, Sentence
from actlab.datamodules.speech.features import features, targets
from actlab.datamodules.speech.recordings import contents, read_phones, read_recording
from actlab.errors import ActlabError

FORMAT = 2  # version of the cache; increased when reading changes


def frames_of(sentence: Sentence) -> tuple[Tensor, Tensor]:
    """Return the features ``(T, 26)`` and the targets ``(T,)`` of one sentence."""
    wav, phn = sentence.files
    recording = read_recording(wav)
    phones = read_phones(phn, len(recording))
    return features(recording), targets(phones, len(recording))


def _read(corpus: Corpus) -> dict[str, Tensor]:
    """Return the tensors of all parts, see `load_corpus`."""
    # By one thread: with several, a busy machine takes ten times as long.
    tensors: dict[str, Tensor] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for part in PARTS:
            sentences = map(frames_of, corpus.part(part))
            frames, labels = zip(*sentences, strict=True)
            tensors[f"{part}_frames"] = torch.cat(frames)
            tensors[f"{part}_targets"] = torch.cat(labels)
            tensors[f"{part}_lengths"] = torch.tensor(
                [len(sentence) for sentence in labels]
            )
    finally:
        torch.set_num_threads(threads)
    return tensors


def _digest_of(corpus: Corpus) -> str:
    digest = hashlib.sha256()
    for sentence in corpus.sentences:
        digest.update(sentence.key.encode())
        for path in sentence.files:
            content = contents(path)
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def load_corpus(corpus: Corpus, cache_dir: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a corpus, from the cache if they have been read.

    Returns:
        For each part ``{part}_frames (T, 26)``, ``{part}_targets (T,)`` and ``{part}_lengths (N,)``
        of its sentences.

    Raises:
        ActlabError: if a file is damaged, or changes while it is read.
    """
    digest = _digest_of(corpus)

    # Files may change while they are read.
    def read() -> dict[str, Tensor]:
        tensors = _read(corpus)
        if _digest_of(corpus) != digest:
            raise ActlabError(
                f"{corpus.folder} changed while it was read. Run again when its files are complete."
            )
        return tensors

    return made_once("speech", (FORMAT, digest), cache_dir, read)
