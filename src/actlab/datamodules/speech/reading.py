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
    return features(recording), targets(read_phones(phn, len(recording)), len(recording))


def _read(corpus: Corpus) -> dict[str, Tensor]:
    """Return the tensors of all parts, by one thread: with several, a busy machine takes ten times as long."""
    tensors: dict[str, Tensor] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for part in PARTS:
            frames, labels = zip(*map(frames_of, corpus.part(part)), strict=True)
            tensors[f"{part}_frames"], tensors[f"{part}_targets"] = (
                torch.cat(frames),
                torch.cat(labels),
            )
            tensors[f"{part}_lengths"] = torch.tensor([len(of_sentence) for of_sentence in labels])
    finally:
        torch.set_num_threads(threads)
    return tensors


def _digest_of(corpus: Corpus) -> str:
    digest = hashlib.sha256()
    for sentence in corpus.sentences:
        digest.update(sentence.key.encode())
        for path in sentence.files:
            digest.update(hashlib.sha256(contents(path)).digest())
    return digest.hexdigest()


def load_corpus(corpus: Corpus, cache_dir: str | None = None) -> dict[str, Tensor]:
    """Return ``{part}_frames (T, 26)``, ``_targets (T,)`` and the ``_lengths (N,)`` of sentences."""
    content = _digest_of(corpus)

    def _make() -> dict[str, Tensor]:
        tensors = _read(corpus)
        if _digest_of(corpus) != content:
            raise ActlabError(
                f"{corpus.folder} changed while it was read; run again when its files are whole"
            )
        return tensors

    return made_once("speech", (FORMAT, content), cache_dir, _make)
