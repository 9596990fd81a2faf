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

PROBABILITY = (
    "probability"  # a model's attribute `prediction`, if it predicts probabilities of classes
)


class PredictionTable(BasePredictionWriter):
    """Callback that writes predictions to a parquet file, one row per sample.

    Columns, where they exist:

    - ``index``: the sample's number in the dataset; ``file``: the path of its file.
    - ``label``: the sample's label; ``label_class``: the name of this class.
    - ``predicted``: the number of the most probable class; ``predicted_class``: its name;
      ``probability``: its probability.
    - the predictions: ``probability_NAME`` of each class, or of other models ``output_0`` …, named
      after the model's attribute ``prediction``.

    Class names are the datamodule's ``class_names`` or the dataset's ``classes``. File names are
    the dataset's ``file_names``, or the ``samples`` of torchvision's ``ImageFolder``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__("batch")
        self.path = path

    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Reset the table."""
        if trainer.world_size > 1:
            raise ActlabError(
                f"predict on one device, not {trainer.world_size}: give --trainer.devices 1"
            )
        self.parts: list[pd.DataFrame] = []
        dataset = getattr(trainer.predict_dataloaders, "dataset", None)
        module_names = getattr(trainer.datamodule, "class_names", None)  # type: ignore[attr-defined]
        classes = module_names or getattr(dataset, "classes", None)
        self.classes = classes if isinstance(classes, Sequence) else None
        self.files = files_of(dataset)

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
            raise ActlabError(
                "predictions of several dataloaders do not fit one table: give one dataloader"
            )
        name = str(getattr(pl_module, "prediction", "output"))
        # Of actlab's datamodules; others give a list or None
        if isinstance(batch_indices, Position):
            batch_indices = batch_indices.index.tolist()
        before = sum(map(len, self.parts))
        found = rows(prediction, batch, name, batch_indices or before, self.classes)
        if self.files is not None and batch_indices:
            found.insert(1, "file", [self.files[number] for number in found["index"]])
        self.parts.append(found)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the file and print its path."""
        with replacing(self.path) as partial:
            pd.concat(self.parts, ignore_index=True).to_parquet(partial, index=False)
        print(f"predictions: {self.path}")


def files_of(dataset: Any) -> Sequence[str] | None:
    """Return the path of each sample's file, None where samples are not files."""
    names: Sequence[str] | None = getattr(dataset, "file_names", None)
    if names is None and hasattr(dataset, "imgs"):  # torchvision's ImageFolder
        names = [path for path, _ in dataset.imgs]
    return names


def rows(
    prediction: Any,
    batch: Any,
    name: str,
    index: Sequence[int] | int,
    classes: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the rows of a batch of ``B`` samples; see `PredictionTable` for the columns.

    The prediction has shape ``(B, …)``, or maps names to such tensors. A second item of the batch
    that is a tensor of ``B`` rows is the label. ``index`` is that of each sample in the dataset, or
    of the first one. ``classes`` are the names of the K classes, if they have any.
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
    of_classes = name == PROBABILITY and first is prediction and first.dim() == 2
    names = (
        classes if of_classes and classes is not None and len(classes) == first.shape[1] else None
    )

    labels = batch[1] if isinstance(batch, list | tuple) and len(batch) > 1 else None
    if isinstance(labels, Tensor) and labels.shape[:1] == (size,):
        cells |= columns("label", labels)
        if names and labels.dim() == 1:
            numbered = dict(enumerate(names))  # a label of padding has no name
            cells["label_class"] = [numbered.get(number) for number in labels.tolist()]

    if of_classes:
        cells |= columns("predicted", first.argmax(1))
        if names:
            cells["predicted_class"] = [names[number] for number in first.argmax(1).tolist()]
        cells |= columns(PROBABILITY, first.amax(1))
    for key, part in parts.items():
        cells |= columns(str(key), part, names)
    return pd.DataFrame(cells)


def columns(name: str, values: Tensor, names: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Return a tensor ``(B, …)`` as columns ``name_0``, ``name_1`` …; a tensor ``(B,)`` as column ``name``.

    ``names`` replace the numbers in the names of the columns.
    """
    flat = values.detach().cpu()
    flat = flat.float() if flat.dtype == torch.bfloat16 else flat  # which NumPy lacks
    if flat.dim() == 1:
        return {name: flat.numpy()}
    parts = flat.flatten(1).unbind(1)
    ends = names or range(len(parts))
    return {f"{name}_{end}": column.numpy() for end, column in zip(ends, parts, strict=True)}
