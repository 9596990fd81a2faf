"""Frames with their neighbours, by the frame or by the sentence; a batch is one gather.

Every frame is stored once; the window around it, edge frames of its sentence repeated, is an index.

Shapes: ``T`` frames of all sentences, ``D`` features, ``W`` frames of a window, ``N`` sentences, ``F`` target
frames of a batch, ``B`` batch, ``R`` runs of a stack.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from actlab.datamodules.base import Batch
from actlab.random.positions import Position

PADDING = -100  # the label of what only fills a batch up, as torch's cross-entropy has it


class Frames:
    """The frames of some sentences, one sentence after another.

    Args:
        values: normalised features ``(T, D)``; they give the device.
        targets: class of each frame ``(T,)`` int64, below 0 where it is no target but stays context.
        lengths: frames of each sentence ``(N,)`` int64.
        reach: frames to each side that belong to a window, (W − 1) / 2.
    """

    def __init__(self, values: Tensor, targets: Tensor, lengths: Tensor, reach: int = 5) -> None:
        ends = lengths.cumsum(0)
        self.values, self.targets = values, targets.to(values.device)
        self.first = (ends - lengths).repeat_interleave(lengths).to(values.device)
        self.last = (ends - 1).repeat_interleave(lengths).to(values.device)
        self.around = torch.arange(-reach, reach + 1, device=values.device)
        is_target = targets.cpu() >= 0
        self.numbers = is_target.nonzero().flatten()  # of the target frames; on the CPU, as indices are
        before = torch.cat((torch.zeros(1, dtype=torch.int64), is_target.cumsum(0)))
        self.starts, stops = before[(ends - lengths).cpu()], before[ends.cpu()]  # in `numbers`, by sentence
        self.counts = stops - self.starts

    @property
    def device(self) -> torch.device:
        """Where the frames lie."""
        return self.values.device

    def windows(self, rows: Tensor) -> Tensor:
        """The windows around some frames: ``(*)`` → ``(*, W, D)``."""
        near = rows.unsqueeze(-1) + self.around
        near = near.clamp(self.first[rows].unsqueeze(-1), self.last[rows].unsqueeze(-1))
        return self.values.index_select(0, near.flatten()).view(*near.shape, -1)


class ByFrame:
    """Samples are the frames that are targets: for evaluation, where nothing need be together."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames

    @property
    def device(self) -> torch.device:
        """Where the frames lie."""
        return self.frames.device

    def __len__(self) -> int:
        return len(self.frames.numbers)

    def __getitems__(self, position: Position) -> Batch:
        """Windows ``(B, W, D)`` and labels ``(B,)``; both lead with R in a stack."""
        rows = self.frames.numbers[position.index.cpu()].to(self.device)
        return self.frames.windows(rows), self.frames.targets[rows]


class BySentence:
    """Samples are sentences: a batch is all frames of some sentences that are targets, one after another.

    In a stack a member's batch may have fewer frames than another's; it is filled up at its end with frames
    whose label is `PADDING`, so its own frames stand where they stand alone.
    """

    def __init__(self, frames: Frames) -> None:
        self.frames = frames

    @property
    def device(self) -> torch.device:
        """Where the frames lie."""
        return self.frames.device

    def __len__(self) -> int:
        return len(self.frames.counts)

    def __getitems__(self, position: Position) -> Batch:
        """Windows ``(F, W, D)`` and labels ``(F,)``; in a stack ``(R, F, …)``, F the largest of a member."""
        index = position.index.cpu()
        if index.dim() == 1:
            rows = self.rows(index).to(self.device)
            return self.frames.windows(rows), self.frames.targets[rows]
        packed = [self.rows(of_member) for of_member in index]
        rows = pad_sequence(packed, batch_first=True, padding_value=-1).to(self.device)
        filled = rows < 0
        rows = rows.clamp_min(0)
        return self.frames.windows(rows), self.frames.targets[rows].masked_fill(filled, PADDING)

    def rows(self, index: Tensor) -> Tensor:
        """The numbers of all target frames of some sentences: ``(B,)`` → ``(F,)``."""
        counts = self.frames.counts[index]
        total = counts.cumsum(0)
        skip = (self.frames.starts[index] - (total - counts)).repeat_interleave(counts)
        return self.frames.numbers[torch.arange(len(skip)) + skip]


def standardised(values: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Features with a mean of 0 and a variance of 1 each over the frames that the statistics are of.

    Args:
        values: ``(T, D)``.
        mean: ``(D,)`` float64.
        deviation: ``(D,)`` float64; a feature that never changes has none and is only centred.
    """
    scale = torch.where(deviation > 0, deviation, 1.0)
    return (values - mean.to(values.dtype)) / scale.to(values.dtype)


def statistics(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature ``(T, D)``, float64 ``(D,)``."""
    return values.mean(0, dtype=torch.float64), values.double().std(0, correction=0)
