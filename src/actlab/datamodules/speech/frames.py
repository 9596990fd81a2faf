"""Datasets of speech frames with their neighbours, with one frame or one sentence as a sample.

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

PADDING = -100  # label of padding frames; the default ignore_index of torch's cross-entropy


class Frames:
    """The frames of sentences, one sentence after another.

    The features ``values (T, D)`` are on the device of the batches. ``targets (T,)`` are the
    classes of frames, below 0 for those that are only context. A sentence has ``lengths (N,)``
    frames, a window ``reach`` on each side of its centre.
    """

    def __init__(self, values: Tensor, targets: Tensor, lengths: Tensor, reach: int = 5) -> None:
        ends = lengths.cumsum(0)
        self.values, self.targets = values, targets.to(values.device)
        self.first = (ends - lengths).repeat_interleave(lengths).to(values.device)
        self.last = (ends - 1).repeat_interleave(lengths).to(values.device)
        self.around = torch.arange(-reach, reach + 1, device=values.device)
        # The target frames of each sentence and of all, on the CPU like positions.
        each = torch.split(torch.arange(len(targets)), lengths.tolist())
        self.sentences = [rows[targets[rows] >= 0] for rows in each]
        self.numbers = torch.cat(self.sentences)

    def windows(self, rows: Tensor) -> Tensor:
        """Return the windows around frames ``(*)`` → ``(*, W, D)``; the edges of sentences are repeated."""
        near = rows.unsqueeze(-1) + self.around
        near = near.clamp(self.first[rows].unsqueeze(-1), self.last[rows].unsqueeze(-1))
        return self.values.index_select(0, near.flatten()).view(*near.shape, -1)


class ByFrame(Samples):
    """A dataset whose samples are the target frames, for evaluation."""

    def __init__(self, frames: Frames) -> None:
        self.frames, self.device = frames, frames.values.device

    @cached_property
    def groups(self) -> Tensor | None:  # type: ignore[override]
        """The first frame of the sentence of each target frame ``(N,)``."""
        return self.frames.first[self.frames.numbers.to(self.device)]

    def __len__(self) -> int:
        return len(self.frames.numbers)

    def batch(self, position: Position) -> Batch:
        """Return windows ``(B, W, D)`` and labels ``(B,)``, both with a leading R in a stack."""
        rows = self.frames.numbers[position.index.cpu()].to(self.device)
        return self.frames.windows(rows), self.frames.targets[rows]


class BySentence(ByFrame):
    """A dataset whose samples are sentences: a batch holds all their target frames, one sentence after another.

    In a stack, runs may have batches of different numbers of frames. Shorter batches are padded at
    their end with frames labelled `PADDING`, so a run's own frames have the same positions as
    without a stack.
    """

    def __len__(self) -> int:
        return len(self.frames.sentences)

    def __getitems__(self, position: Position | Sequence[int]) -> Any:
        if isinstance(position, Position):
            return self.batch(position)
        return [self.batch(self.position_of([index])) for index in position]

    def batch(self, position: Position) -> Batch:
        """Return windows ``(F, W, D)`` and labels ``(F,)``; in a stack ``(R, F, …)`` with the largest F."""
        sentences = self.frames.sentences
        members = position.index.view(-1, position.index.shape[-1]).tolist()
        packed = [torch.cat([sentences[number] for number in numbers]) for numbers in members]
        rows = pad_sequence(packed, batch_first=True, padding_value=-1).to(self.device)
        labels = self.frames.targets[rows.clamp_min(0)].masked_fill(rows < 0, PADDING)
        batch = self.frames.windows(rows.clamp_min(0)), labels
        return batch if position.index.dim() > 1 else (batch[0][0], batch[1][0])
