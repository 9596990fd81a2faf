"""A LightningModule that keeps the global generators, from which users' loaders draw, functions of its seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

from actlab.seeding import seed_epoch, seed_loader


class Seeded(pl.LightningModule):
    """Seeds the global generators before each epoch and after each batch.

    A user's loader takes from them the order of an epoch and what it draws for a batch. What a unit draws, or
    an evaluation in between, moves neither: two units of one seed see the same batches.

    Args:
        seed: of the run.
    """

    _resumed: int | None = None  # the epoch that is gone on with

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def on_train_epoch_start(self) -> None:
        """Seed the epoch."""
        if self._resumed != self.current_epoch:  # that one's loader has begun
            seed_epoch(self.seed, self.current_epoch)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Seed what a loader draws for the next batch."""
        self._seed_loader(batch_idx)

    def on_validation_end(self) -> None:
        """Seed it anew: the evaluation may have drawn."""
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            self._seed_loader(self.trainer.fit_loop.epoch_loop.batch_idx)

    def _seed_loader(self, batch_idx: int) -> None:
        if not type(self.trainer.datamodule).__module__.startswith("actlab."):  # type: ignore[attr-defined]
            seed_loader(self.seed, self.current_epoch, batch_idx)

    def resume(self, checkpoint: Mapping[str, Any]) -> None:
        """Seed the epoch that a checkpoint goes on with: its loader begins before the epoch does."""
        if loops := checkpoint.get("loops"):
            self._resumed = int(loops["fit_loop"]["epoch_progress"]["current"]["processed"])
            seed_epoch(self.seed, self._resumed)
