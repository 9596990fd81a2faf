"""TIMIT: frames of read speech, each to be told which phone it is part of."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from actlab.datamodules.base import TensorDataModule
from actlab.datamodules.speech.corpus import EXPECTED, PARTS, Corpus, find, refuse_empty, refuse_gaps
from actlab.datamodules.speech.features import FEATURES
from actlab.datamodules.speech.frames import ByFrame, BySentence, Frames, standardised, statistics
from actlab.datamodules.speech.phones import CLASSES
from actlab.datamodules.speech.reading import load_corpus
from actlab.datamodules.speech.sample import write_sample
from actlab.errors import ActlabError
from actlab.storage.files import at_home


@cache
def _sample(cache_dir: str | None) -> dict[str, Tensor]:
    """The frames of the sample, whose files are written and read once in a process."""
    with TemporaryDirectory() as folder:
        write_sample(Path(folder))
        return load_corpus(find(Path(folder)), cache_dir)


class TIMITDataModule(TensorDataModule):
    """TIMIT with the paper's parts: the core test set, the rest of the test folder as validation (GELU §3.4).

    A sample of an evaluation is a frame with ``context`` frames to each side: windows ``(B, 11, 26)`` float32
    and labels ``(B,)`` int64 of 39 classes. A sample of training is a sentence: a batch is all frames of
    ``batch_size`` sentences, windows ``(F, 11, 26)`` and labels ``(F,)``; a stack of runs fills the shorter
    batches up with the label −100, which `actlab.tasks.FrameTask` gives no weight. Glottal stops are no
    targets but stay as context. Features are normalised by mean and variance over the training frames.

    The authors' script subtracts the mean twice from validation and test data; that is not done here.

    Args:
        dataset: folder of the corpus (LDC93S1), or of NLTK's sample; see `actlab.datamodules.speech.corpus`.
        sample: take a made-up corpus instead, tones in place of speech: 128 sentences of training, 8 of
            validation, 8 of the test.
        partial: use a copy that lacks sentences as it is.
        batch_size: sentences of the global training batch.
        eval_batch_size: frames, for validation, test and prediction.
        context: frames to each side of a frame.
        cache_dir: where features are kept; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        seed: the order of batches is a function of it.

    Raises:
        ActlabError: for a folder that is missing, damaged, not whole or of something else.
    """

    def __init__(
        self,
        dataset: str = "./TIMIT",
        sample: bool = False,
        partial: bool = False,
        batch_size: int = 64,
        eval_batch_size: int = 5000,
        context: int = 5,
        cache_dir: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        if context < 0:
            raise ActlabError(f"context {context}: give a whole number of frames from 0")
        self.dataset, self.sample, self.partial = dataset, sample, partial
        self.context, self.cache_dir = context, cache_dir
        self._tensors: dict[str, Tensor] | None = None

    @property
    def num_classes(self) -> int:
        """K = 39."""
        return len(CLASSES)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(11, 26): frames of a window, features of a frame."""
        return 2 * self.context + 1, FEATURES

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All frames, see `actlab.datamodules.speech.reading.load_corpus`; read on first use."""
        if self._tensors is None:
            self._tensors = (
                _sample(self.cache_dir) if self.sample else load_corpus(self._corpus(), self.cache_dir)
            )
        return self._tensors

    def _corpus(self) -> Corpus:
        folder = at_home(self.dataset)
        if not folder.is_dir():
            raise ActlabError(
                f"dataset {self.dataset!r} is no folder; {EXPECTED}, or set data.sample to true. TIMIT is "
                "licensed by the LDC (LDC93S1) and cannot be fetched"
            )
        corpus = find(folder)
        if not self.partial:
            refuse_gaps(corpus)
        refuse_empty(corpus)
        return corpus

    def prepare_data(self) -> None:
        """Read the corpus into the cache, once a machine."""
        _ = self.tensors

    def load(self, device: torch.device) -> None:
        """Normalise all parts by the training frames."""
        of_training = statistics(self.tensors["train_frames"])
        train, val, test = (
            Frames(
                standardised(self.tensors[f"{part}_frames"], *of_training).to(device),
                self.tensors[f"{part}_targets"],
                self.tensors[f"{part}_lengths"],
                self.context,
            )
            for part in PARTS
        )
        self.train, self.val, self.test = BySentence(train), ByFrame(val), ByFrame(test)
