"""Results of metrics that are not numbers, such as confusion matrices, and the file of a fit's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from actlab.storage.files import update_json
from actlab.tasks.training import Training


def taken_matrices(trainer: pl.Trainer, runs: int) -> list[dict[str, Any]]:
    """Return for each run, by name, the results since the last call that are not numbers."""
    task = trainer.lightning_module
    found = dict(task.matrices) if isinstance(task, Training) else {}
    if isinstance(task, Training):
        task.matrices.clear()
    return [{name: of_runs[r] for name, of_runs in found.items()} for r in range(runs)]


class MatrixFile(Callback):
    """Writes the latest results that are not numbers to a JSON file, after each evaluation."""

    tested_by_steps = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file; test data may have been evaluated after the epoch."""
        (found,) = taken_matrices(trainer, 1)
        if trainer.is_global_zero:
            update_json(self.path, found, "delete it")

    on_validation_end = on_test_end = on_train_epoch_end
