"""Datasets of speech frames with their neighbours; a sample is one frame or one sentence.

Every frame is stored once, and a batch is one gather. Shapes: ``T`` frames of ``N`` sentences,
``D`` features, ``W`` frames of a window, ``F`` target frames of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from actlab.datamodules.base import Batch, Samples
from actlab.random.positions import Position

# Label of padding frames; the default ignore_index of torch's cross-entropy.
PADDING = -100


class Frames:
    """The frames of sentences, one sentence after another.

    Args:
        values: features ``(T, D)``, on the device of the batches.
        targets: classes of the frames ``(T,)``, below 0 for frames that are only context.
        lengths: number of frames of each sentence ``(N,)``.
        reach: number of frames of a window on each side of its centre.

    Attributes:
        sentences: the target frames of each sentence, on the CPU like positions.
        numbers: the target frames of all sentences.
    """

    def __init__(
        self, values: Tensor, targets: Tensor, lengths: Tensor, reach: int = 5
    ) -> None:
        device = values.device
        self.values = values
        self.targets = targets.to(device)
        self.offsets = torch.arange(-reach, reach + 1, device=device)

        # The edges of each frame's sentence
        ends = lengths.cumsum(0)
        self.begins = (ends - lengths).repeat_interleave(lengths).to(device)
        self.ends = (ends - 1).repeat_interleave(lengths).to(device)

        # The target frames
        frames = torch.split(torch.arange(len(targets)), lengths.tolist())
        self.sentences = [numbers[targets[numbers] >= 0] for numbers in frames]
        self.numbers = torch.cat(self.sentences)

    def windows(self, numbers: Tensor) -> Tensor:
        """Return the windows around frames ``(*)`` → ``(*, W, D)``.

        The first and last frames of a sentence are repeated beyond its edges.
        """
        neighbours = numbers.unsqueeze(-1) + self.offsets
        begins = self.begins[numbers].unsqueeze(-1)
        ends = self.ends[numbers].unsqueeze(-1)
        neighbours = neighbours.clamp(begins, ends)
        values = self.values.index_select(0, neighbours.flatten())
        return values.view(*neighbours.shape, -1)


class ByFrame(Samples):
    """A dataset whose samples are the target frames, for evaluation."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.device = frames.values.device

    @cached_property
    def groups(self) -> Tensor | None:  # type: ignore[override]
        """The first frame of the sentence of each target frame ``(N,)``."""
        numbers = self.frames.numbers.to(self.device)
        return self.frames.begins[numbers]

    def __len__(self) -> int:
        return len(self.frames.numbers)

    def batch(self, position: Position) -> Batch:
        """Return windows ``(B, W, D)`` and labels ``(B,)``, both with a leading R in a stack."""
        numbers = self.frames.numbers[position.index.cpu()].to(self.device)
        return self.frames.windows(numbers), self.frames.targets[numbers]


class BySentence(ByFrame):
    """A dataset whose samples are sentences: a batch holds all target frames of some sentences.

    The frames are one sentence after another. In a stack, runs may have batches of different
    numbers of frames. Shorter batches are padded at their end with frames labelled `PADDING`, so a
    run's own frames have the same positions as without a stack.
    """

    def __len__(self) -> int:
        return len(self.frames.sentences)

    def __getitems__(self, position: Position | Sequence[int]) -> Any:
        if isinstance(position, Position):
            return self.batch(position)
        return [self.batch(self.position_of([index])) for index in position]

    def batch(self, position: Position) -> Batch:
        """Return windows ``(F, W, D)`` and labels ``(F,)``.

        In a stack they are ``(R, F, W, D)`` and ``(R, F)``, with the largest F.
        """
        # Join the frames of each run's sentences.
        index = position.index
        runs = []
        for sentences in index.view(-1, index.shape[-1]).tolist():
            runs.append(
                torch.cat([self.frames.sentences[number] for number in sentences])
            )

        # Pad them to one length, with frame -1. Its window is that of frame 0, and its
        # label tells the loss to leave it out.
        padded = pad_sequence(runs, batch_first=True, padding_value=-1).to(self.device)
        numbers = padded.clamp_min(0)
        labels = self.frames.targets[numbers].masked_fill(padded < 0, PADDING)
        windows = self.frames.windows(numbers)
        if index.dim() > 1:
            return windows, labels
        return windows[0], labels[0]
