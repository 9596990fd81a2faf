"""Results that are not numbers, such as confusion matrices."""

from __future__ import annotations

from pathlib import Path

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from actlab.engines.run_records import of_run
from actlab.storage.json_files import update_json
from actlab.tasks.training import Training


class MatrixFile(Callback):
    """Writes the latest results that are not numbers to a JSON file, after each evaluation.

    Only for a run outside a study: in studies, `Recorder` writes them.
    """

    tested_by_steps = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the file; test data may have been evaluated after the epoch."""
        if isinstance(pl_module, Training):
            matrices = pl_module.take_matrices()
            if trainer.is_global_zero:
                update_json(self.path, of_run(matrices, 0), "Delete it.")

    on_validation_end = on_test_end = on_train_epoch_end
