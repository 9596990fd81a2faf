"""Write predictions to a table with one row per sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BasePredictionWriter
from torch import Tensor

from actlab.errors import ActlabError
from actlab.random.positions import Position
from actlab.storage.files import replacing


class PredictionTable(BasePredictionWriter):
    """Callback that writes sample index, predictions and labels, if any, to a parquet file.

    The columns are ``index``, predictions and ``label``. Prediction columns are named after the model's
    attribute ``prediction``, such as ``probability_0`` …, or ``output`` if it has none.
    """

    def __init__(self, path: Path) -> None:
        super().__init__("batch")
        self.path = path

    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Reset the table."""
        if trainer.world_size > 1:
            raise ActlabError(f"predict on one device, not {trainer.world_size}: give --trainer.devices 1")
        self.parts: list[pd.DataFrame] = []

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
        """Append the rows of a batch."""
        if dataloader_idx > 0:
            raise ActlabError("predictions of several dataloaders do not fit one table: give one dataloader")
        name = str(getattr(pl_module, "prediction", "output"))
        if isinstance(batch_indices, Position):  # of actlab's datamodules; others give a list or None
            batch_indices = batch_indices.index.tolist()
        before = sum(map(len, self.parts))
        self.parts.append(rows(prediction, batch, name, batch_indices or before))

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file and print its path."""
        with replacing(self.path) as partial:
            pd.concat(self.parts, ignore_index=True).to_parquet(partial, index=False)
        print(f"predictions: {self.path}")


def rows(prediction: Any, batch: Any, name: str, index: Sequence[int] | int) -> pd.DataFrame:
    """Return the rows of a batch of ``B`` samples.

    The prediction has shape ``(B, …)``, or maps names to such tensors. A second item of the batch that is a
    tensor of ``B`` rows is the label. ``index`` is that of each sample in the dataset, or of the first one.
    """
    parts = prediction if isinstance(prediction, Mapping) and prediction else {name: prediction}
    first = next(iter(parts.values()))
    for part in parts.values():
        if not isinstance(part, Tensor) or part.dim() == 0 or len(part) != len(first):
            raise ActlabError(
                f"a prediction of type {type(part).__name__} does not fit a table: let predict_step return a "
                "tensor whose first dimension is the batch, or a dictionary of such tensors"
            )
    size = len(first)
    positions = list(range(index, index + size)) if isinstance(index, int) else list(index)
    cells: dict[str, Any] = {"index": positions}
    for key, part in parts.items():
        cells |= columns(str(key), part)
    labels = batch[1] if isinstance(batch, list | tuple) and len(batch) > 1 else None
    if isinstance(labels, Tensor) and labels.shape[:1] == (size,):
        cells |= columns("label", labels)
    return pd.DataFrame(cells)


def columns(name: str, values: Tensor) -> Mapping[str, Any]:
    """Return a tensor ``(B, …)`` as columns ``name_0``, ``name_1`` …; a tensor ``(B,)`` as column ``name``."""
    flat = values.detach().cpu()
    flat = flat.float() if flat.dtype == torch.bfloat16 else flat  # which NumPy lacks
    if flat.dim() == 1:
        return {name: flat.numpy()}
    return {f"{name}_{k}": column.numpy() for k, column in enumerate(flat.flatten(1).unbind(1))}
