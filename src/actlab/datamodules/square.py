"""Points of the square [−1, 1]², on which a network solves a differential equation."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge

from actlab.datamodules.base import Batch, Draws, TensorDataModule, TensorDataset
from actlab.random.positions import Position, uniform_at
from actlab.validation import Count, validated

SIDES = 4


def points(position: Position) -> Batch:
    """Draw uniform points in the square and as many on its sides: ``(B, 2)``, or ``(R, B, 2)`` in a stack."""
    inside = 2 * uniform_at(position, "points", (2,)) - 1
    side, group = position.index % SIDES, position.index // SIDES
    # Four neighbours share their place along the four sides.
    along = 2 * uniform_at(position._replace(index=group), "sides") - 1
    edge = (side % 2 * 2 - 1).to(along.dtype)  # −1 or 1
    upright = (side < 2).unsqueeze(-1)
    return inside, torch.where(
        upright, torch.stack([edge, along], -1), torch.stack([along, edge], -1)
    )


class SquareDataModule(TensorDataModule):
    """Fresh uniform points of the square [−1, 1]² and of its sides for training, grids for evaluation.

    Batches of training: points inside and points on the sides, each ``(B, 2)`` float32. Each four
    neighbours of the points on the sides share one place on all sides. Batches of validation: ``(B,
    2)``, the grid of ``side``² points with the ends −1 and 1; of test: the (``side`` − 1)²
    midpoints of its cells.

    Args:
        batch_size: number of points inside the square, and of those on its sides.
        updates_per_epoch: number of updates in an epoch.
        side: number of grid points along each side, at least 2.
        eval_batch_size: batch size for validation, test and prediction.
        seed: determines the points.

    Raises:
        ActlabError: for a number that is too small.
    """

    num_outputs = 1
    input_shape = (2,)

    @validated
    def __init__(
        self,
        batch_size: int = 256,
        updates_per_epoch: Count = 500,
        side: Annotated[int, Ge(2)] = 100,
        eval_batch_size: int = 10_000,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        self.updates_per_epoch, self.side = updates_per_epoch, side

    def load(self, device: torch.device) -> None:
        """Make the grids; points for training are drawn when they are needed."""
        places = torch.linspace(-1, 1, self.side, dtype=torch.float64)
        midpoints = (places[1:] + places[:-1]) / 2
        self.train = Draws(points, self.updates_per_epoch, self.batch_size, device)
        grids = (torch.cartesian_prod(values, values).float() for values in (places, midpoints))
        self.val, self.test = (TensorDataset(grid.to(device)) for grid in grids)
