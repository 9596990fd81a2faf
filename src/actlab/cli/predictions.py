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

# A model's attribute `prediction`, if it predicts probabilities of classes.
PROBABILITY = "probability"


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

    def on_predict_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        """Reset the table."""
        # Each device would see a part of the samples
        if trainer.world_size > 1:
            raise ActlabError(
                f"--trainer.devices: expected 1 to predict, got {trainer.world_size}. Use one "
                "device."
            )
        self.parts: list[pd.DataFrame] = []

        # Find the names of classes and files
        dataset = getattr(trainer.predict_dataloaders, "dataset", None)
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        class_names = getattr(datamodule, "class_names", None)
        classes = class_names or getattr(dataset, "classes", None)
        if not isinstance(classes, Sequence):
            classes = None
        self.classes: Sequence[str] | None = classes
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
        # Lightning calls this hook for every loader
        if dataloader_idx > 0:
            raise ActlabError(
                "predictions of several data loaders do not fit in one table. Return one loader "
                "from predict_dataloader."
            )

        # Number the samples: actlab's datamodules do, others give a list or None
        if isinstance(batch_indices, Position):
            batch_indices = batch_indices.index.tolist()
        # Without numbers, count on from the rows so far
        previous = sum(map(len, self.parts))

        name = str(getattr(pl_module, "prediction", "output"))
        table = rows(prediction, batch, name, batch_indices or previous, self.classes)
        if self.files is not None and batch_indices:
            files = [self.files[number] for number in table["index"]]
            table.insert(1, "file", files)
        # In memory: a parquet file is written as a whole
        self.parts.append(table)

    def on_predict_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
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

    Args:
        prediction: tensor of shape ``(B, …)``, or a mapping of names to such tensors.
        batch: a batch of the datamodule; a second item that is a tensor of ``B`` rows is the label.
        name: name of the prediction.
        index: number of each sample in the dataset, or of the first sample.
        classes: names of the K classes, if they have any.

    Raises:
        ActlabError: the prediction is not a tensor, or tensors of one length.
    """
    # A single tensor has the name of the prediction
    parts: Mapping[str, Any] = {name: prediction}
    if isinstance(prediction, Mapping) and prediction:
        parts = prediction
    # All parts must be as long as the first one
    leading = next(iter(parts.values()))
    for part in parts.values():
        _check_part(part, leading)

    # Number the samples
    size = len(leading)
    if isinstance(index, int):
        index = range(index, index + size)
    cells: dict[str, Any] = {"index": list(index)}

    # Find the names of classes, which belong to a table of probabilities (B, K)
    has_classes = name == PROBABILITY and leading is prediction and leading.dim() == 2
    class_names = None
    if has_classes and classes is not None and len(classes) == leading.shape[1]:
        class_names = classes

    # Add the labels
    if isinstance(batch, list | tuple) and len(batch) > 1:
        label = batch[1]
        if isinstance(label, Tensor) and label.shape[:1] == (size,):
            cells |= _label_columns(label, class_names)

    # Add the most probable class
    if has_classes:
        predicted = leading.argmax(1)
        cells |= columns("predicted", predicted)
        if class_names:
            cells["predicted_class"] = [
                class_names[number] for number in predicted.tolist()
            ]
        cells |= columns(PROBABILITY, leading.amax(1))

    # Add the predictions
    for key, part in parts.items():
        cells |= columns(str(key), part, class_names)
    return pd.DataFrame(cells)


def _check_part(part: Any, leading: Any) -> None:
    """Raise an ActlabError if a part of a prediction is not a tensor as long as the leading one."""
    if not isinstance(part, Tensor) or part.dim() == 0 or len(part) != len(leading):
        raise ActlabError(
            f"a prediction of type {type(part).__name__} does not fit in a table. Return a tensor "
            "from predict_step whose first dimension is the batch, or a dictionary of such tensors."
        )


def _label_columns(label: Tensor, class_names: Sequence[str] | None) -> dict[str, Any]:
    """Return labels ``(B, …)`` as columns, and the names of their classes where they have any."""
    cells = dict(columns("label", label))
    if class_names and label.dim() == 1:
        name_by_number = dict(enumerate(class_names))  # a label of padding has no name
        cells["label_class"] = [name_by_number.get(number) for number in label.tolist()]
    return cells


def columns(
    name: str, values: Tensor, names: Sequence[str] | None = None
) -> Mapping[str, Any]:
    """Return a tensor ``(B, …)`` as columns ``name_0``, ``name_1`` …; ``(B,)`` as column ``name``.

    ``names`` replace the numbers in the names of the columns.
    """
    values = values.detach().cpu()
    if values.dtype == torch.bfloat16:  # which NumPy lacks
        values = values.float()
    # One number per sample
    if values.dim() == 1:
        return {name: values.numpy()}

    # Several numbers per sample, each in its own column
    parts = values.flatten(1).unbind(1)
    endings = names or range(len(parts))
    table = {}
    for ending, part in zip(endings, parts, strict=True):
        table[f"{name}_{ending}"] = part.numpy()
    return table
