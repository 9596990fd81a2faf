"""A progress bar of updates, also if a Trainer makes them in blocks."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar


class BlockProgressBar(RichProgressBar):
    """Lightning's progress bar; it counts the updates in blocks."""

    blocks = True

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Show the number of the update, of a block that of its last."""
        number = trainer.fit_loop.batch_idx
        super().on_train_batch_end(trainer, pl_module, outputs, batch, number)
