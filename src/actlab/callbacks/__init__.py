"""Callbacks: test metrics and seeds of every epoch, a progress bar and statistics of units."""

from actlab.callbacks.progress_bar import BlockProgressBar
from actlab.callbacks.seeding import SeedEveryEpoch
from actlab.callbacks.testing import TestEveryEpoch
from actlab.callbacks.unit_statistics import UnitStatistics, UnitValues

__all__ = [
    "BlockProgressBar",
    "SeedEveryEpoch",
    "TestEveryEpoch",
    "UnitStatistics",
    "UnitValues",
]
