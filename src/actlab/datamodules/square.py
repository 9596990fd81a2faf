"""Points of the square [−1, 1]², on which a network solves a differential equation."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from actlab.datamodules.base import Batch, Draws, TensorDataModule, TensorDataset
from actlab.random.positions import Position, uniform_at
from actlab.validation import Count, validated

SIDES = 4


def points(position: Position) -> Batch:
    """Draw uniform points in the square and as many on its sides, each ``(B, 2)``.

    In a stack, the points are ``(R, B, 2)``.
    """
    inside = 2 * uniform_at(position, "points", (2,)) - 1

    # Four neighbours have one coordinate along the four sides in common.
    side = position.index % SIDES
    group = position.index // SIDES
    along = 2 * uniform_at(position._replace(index=group), "sides") - 1

    # The other coordinate is −1 or 1: x on upright sides, y on level sides.
    across = (side % 2 * 2 - 1).to(along.dtype)
    is_upright = (side < 2).unsqueeze(-1)
    upright = torch.stack([across, along], -1)
    level = torch.stack([along, across], -1)
    return inside, torch.where(is_upright, upright, level)


class SquareDataModule(TensorDataModule):
    """Fresh uniform points of the square [−1, 1]² and of its sides for training, else grids.

    A training batch has points inside and points on the sides, each ``(B, 2)`` float32. Each four
    neighbours of the points on the sides have the same coordinate along the side. A batch of
    validation or test has points ``(B, 2)``: for validation the grid of ``side``² points with the
    ends −1 and 1, for test the (``side`` − 1)² midpoints of its cells.

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
        self.updates_per_epoch = updates_per_epoch
        self.side = side

    def load(self, device: torch.device) -> None:
        """Make the grids; points for training are drawn when they are needed."""
        self.train = Draws(points, self.updates_per_epoch, self.batch_size, device)

        # Points for validation, and points between them for test
        coordinates = torch.linspace(-1, 1, self.side, dtype=torch.float64)
        midpoints = (coordinates[1:] + coordinates[:-1]) / 2
        self.val = _grid(coordinates, device)
        self.test = _grid(midpoints, device)


def _grid(coordinates: Tensor, device: torch.device) -> TensorDataset:
    """Return all points of the square whose two coordinates are among the ``coordinates (n,)``."""
    grid = torch.cartesian_prod(coordinates, coordinates)
    return TensorDataset(grid.float().to(device))
