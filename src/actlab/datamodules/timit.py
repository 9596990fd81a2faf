"""The datamodule of TIMIT: classify frames of read speech by phone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from actlab.datamodules.base import TensorDataModule, dataset_or
from actlab.datamodules.speech.corpus import EXPECTED, PARTS, WHOLE, check_whole, find
from actlab.datamodules.speech.features import FEATURES
from actlab.datamodules.speech.frames import ByFrame, BySentence, Frames
from actlab.datamodules.speech.phones import CLASSES
from actlab.datamodules.speech.reading import load_corpus
from actlab.errors import ActlabError
from actlab.storage.paths import at_home
from actlab.validation import Whole, validated


class TIMITDataModule(TensorDataModule):
    """TIMIT with the paper's split (GELU §3.4): the core test set is for test.

    The rest of the test folder is for validation.

    An evaluation sample is a frame with ``context`` frames on each side: windows ``(B, 11, 26)``
    float32 and labels ``(B,)`` int64 of 39 classes. A training sample is a sentence: a batch
    contains all F target frames of ``batch_size`` sentences, windows ``(F, 11, 26)`` and labels
    ``(F,)``. In a stack, shorter batches are padded with the label −100, to which
    `actlab.tasks.FrameTask` gives zero weight. Glottal stops are not targets but remain as context.
    Features are normalised by their mean and variance over the training frames.

    The authors' script subtracts the mean twice from validation and test data; we subtract it once.

    Args:
        dataset: folder of the corpus (LDC93S1) or of NLTK's sample, by default ``./TIMIT``; see
            `actlab.datamodules.speech.corpus`.
        sample: use a synthetic corpus of tones instead: 128 sentences for training, 8 for
            validation, 8 for test.
        partial: accept an incomplete copy of the corpus.
        batch_size: number of sentences in the global training batch; an incomplete last batch of an
            epoch is dropped.
        eval_batch_size: number of frames per batch in validation, test and prediction.
        context: number of frames on each side of a frame.
        cache_dir: folder for the features; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        seed: determines the order of batches.

    Raises:
        ActlabError: if the folder is missing, damaged, incomplete or not a copy of TIMIT.
    """

    sample_replaces_dataset = True
    published = WHOLE
    num_classes = len(CLASSES)  # K = 39
    class_names = CLASSES

    @validated
    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        partial: bool = False,
        batch_size: int = 64,
        eval_batch_size: int = 5000,
        context: Whole = 5,
        cache_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        self.dataset = dataset_or("./TIMIT", dataset, sample, "timit")
        self.partial = partial or sample
        self.context = context
        self.cache_dir = cache_dir

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(2·context + 1, 26), by default (11, 26): frames of a window, features of a frame."""
        return 2 * self.context + 1, FEATURES

    @property
    def counts(self) -> Mapping[str, int]:  # type: ignore[override]
        """The number of sentences in each split."""
        return {split: len(self.tensors[f"{split}_lengths"]) for split in PARTS}

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors from `actlab.datamodules.speech.reading.load_corpus`; read on first use."""
        folder = at_home(self.dataset)
        if not folder.is_dir():
            raise ActlabError(
                f"data.dataset: {EXPECTED}, got {self.dataset!r}, which is not a folder. Get TIMIT "
                "from the LDC (LDC93S1), or set data.sample to true."
            )
        corpus = find(folder)
        check_whole(corpus, self.partial)
        return load_corpus(corpus, self.cache_dir)

    def prepare_data(self) -> None:
        """Read the corpus into the cache, once per machine."""
        _ = self.tensors

    def load(self, device: torch.device) -> None:
        """Load all splits, normalised by the statistics of the training frames."""
        tensors = self.tensors

        # Compute the statistics.
        train = tensors["train_frames"]
        # In float64: a million frames add up
        mean = train.mean(0, dtype=torch.float64)
        deviation = train.double().std(0, correction=0)
        # A constant feature is only centred.
        scale = torch.where(deviation > 0, deviation, 1.0)

        # Normalise the frames of each part.
        def frames(part: str) -> Frames:
            values = (tensors[f"{part}_frames"] - mean.float()) / scale.float()
            targets = tensors[f"{part}_targets"]
            lengths = tensors[f"{part}_lengths"]
            return Frames(values.to(device), targets, lengths, self.context)

        # Train on batches of sentences, evaluate on frames
        self.train = BySentence(frames("train"))
        self.val = ByFrame(frames("val"))
        self.test = ByFrame(frames("test"))
