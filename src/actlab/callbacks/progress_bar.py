"""A progress bar of updates, also if a Trainer makes them in blocks."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar
from pytorch_lightning.callbacks.progress.rich_progress import RichProgressBarTheme
from rich.progress import BarColumn


class BlockProgressBar(RichProgressBar):
    """Lightning's progress bar with each metric on a line; it counts the updates in blocks."""

    blocks = True

    def __init__(self) -> None:
        # A line of 80 columns holds one metric.
        super().__init__(theme=RichProgressBarTheme(metrics_text_delimiter="\n"))

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Show the number of the update; in blocks, the number of the last update."""
        number = trainer.fit_loop.batch_idx
        super().on_train_batch_end(trainer, pl_module, outputs, batch, number)

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """Return Lightning's columns, with a bar that leaves room for the metrics."""
        columns: list[Any] = super().configure_columns(trainer)
        for column in columns:
            if isinstance(column, BarColumn):
                column.bar_width = 10  # characters
        return columns

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, Any]:
        """Return the metrics shown next to the bar."""
        metrics: dict[str, Any] = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)  # a part of the logger's id
        return metrics
