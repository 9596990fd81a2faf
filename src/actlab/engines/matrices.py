"""Results that are not numbers, such as confusion matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from actlab.engines.run_records import of_run
from actlab.storage.files import update_json
from actlab.tasks.training import Training


class MatrixFile(Callback):
    """Writes the latest results that are not numbers to a JSON file, after each evaluation."""

    tested_by_steps = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file; test data may have been evaluated after the epoch."""
        matrices = take_matrices(trainer)
        if trainer.is_global_zero:
            update_json(self.path, of_run(matrices, 0), "delete it")

    on_validation_end = on_test_end = on_train_epoch_end


def take_matrices(trainer: pl.Trainer) -> dict[str, list[Any]]:
    """Return by name, for each run, the results since the last call that are not numbers."""
    task = trainer.lightning_module
    if not isinstance(task, Training):
        return {}
    matrices = task.matrices
    task.matrices = {}
    return matrices
