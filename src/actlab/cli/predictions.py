"""Predictions as a table: one row a sample.

Shapes: ``B`` batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytorch_lightning as pl
from pytorch_lightning.callbacks import BasePredictionWriter
from torch import Tensor

from actlab.errors import ActlabError
from actlab.random.positions import Position
from actlab.storage.files import replacing


class PredictionTable(BasePredictionWriter):
    """Writes ``index``, what the model has predicted, and ``label`` where a batch has one, as a parquet file.

    Predicted columns are named by the model's attribute ``prediction``, such as ``probability_0`` …; ``output``
    without it.

    Args:
        path: of the file; a former one is replaced.
    """

    def __init__(self, path: Path) -> None:
        super().__init__("batch")
        self.path = path
        self.parts: list[pd.DataFrame] = []

    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse what one table cannot hold.

        Raises:
            ActlabError: for several devices.
        """
        if trainer.world_size > 1:
            raise ActlabError(f"predict on one device, not {trainer.world_size}: give --trainer.devices 1")
        self.parts = []

    def write_on_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        prediction: Any,
        batch_indices: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Take the rows of one batch."""
        if dataloader_idx > 0:
            raise ActlabError("predictions of several dataloaders do not fit one table: give one dataloader")
        name = str(getattr(pl_module, "prediction", "output"))
        if isinstance(batch_indices, Position):  # from our own data; from others' a list, or nothing
            batch_indices = batch_indices.index.tolist()
        before = sum(map(len, self.parts))
        self.parts.append(rows(prediction, batch, name, batch_indices or before))

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file and say where."""
        with replacing(self.path) as partial:
            pd.concat(self.parts, ignore_index=True).to_parquet(partial, index=False)
        print(f"predictions: {self.path}")


def rows(prediction: Any, batch: Any, name: str, index: Sequence[int] | int) -> pd.DataFrame:
    """The rows of a batch.

    Args:
        prediction: a tensor ``(B, …)``.
        batch: a tuple whose second tensor ``(B, …)``, if there is one, is the label.
        name: of what is predicted.
        index: the position of each sample in the data, or of the first one.

    Raises:
        ActlabError: for a prediction that is no such tensor.
    """
    if not isinstance(prediction, Tensor) or prediction.dim() == 0:
        raise ActlabError(
            f"a prediction of type {type(prediction).__name__} does not fit a table: "
            "let predict_step return a tensor whose first axis is the samples"
        )
    size = len(prediction)
    positions = list(range(index, index + size)) if isinstance(index, int) else list(index)
    found = {"index": positions, **columns(name, prediction)}
    labels = batch[1] if isinstance(batch, list | tuple) and len(batch) > 1 else None
    if isinstance(labels, Tensor) and labels.shape[:1] == (size,):
        found |= columns("label", labels)
    return pd.DataFrame(found)


def columns(name: str, values: Tensor) -> Mapping[str, Any]:
    """A tensor ``(B, …)`` as columns ``name_0``, ``name_1`` …; as ``name`` if it has one value a sample."""
    flat = values.detach().cpu()
    if flat.dim() == 1:
        return {name: flat.numpy()}
    return {f"{name}_{k}": column.numpy() for k, column in enumerate(flat.flatten(1).unbind(1))}
