"""Metrics of torchmetrics besides a task's quantities. ``N``: samples, frames or tokens without padding."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from actlab.config.metric_classes import KEY, gives_number
from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.runtime import third_party
from actlab.storage.json_files import update_json

# Of metrics, for predictions of another kind
_REJECTIONS = (
    ValueError,
    RuntimeError,
    TypeError,
    IndexError,
)


class Metrics:
    """The metrics of one task. Each evaluation has states of its own, which end with its result.

    The ``given`` metrics are never updated themselves. Their names must differ from ``taken`` and
    fit ``val/name``.
    """

    def __init__(self, given: Mapping[str, Metric] | None, taken: Collection[str]) -> None:
        self.given = dict(given or {})
        self._running: dict[str, dict[str, Metric]] = {}  # by split
        for name in self.given:
            if not re.fullmatch(r"[\w-]+", name) or name in taken:
                raise ActlabError(
                    f"{KEY}.{name}: give the metric a name of letters, digits, _ and -, other than "
                    f"{', '.join(taken)}"
                )

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def numbers(self) -> list[str]:
        """Names of the metrics whose results are numbers."""
        return [name for name, metric in self.given.items() if gives_number(metric)]

    @third_party.calling()
    def update(self, split: str, predictions: Tensor, targets: Tensor) -> None:
        """Add a batch, predictions and targets ``(N, *)``, to the evaluation of ``val`` or ``test``."""
        for name, metric in self._states(split, targets.device) if len(targets) else ():
            try:
                metric.update(predictions, targets)
            except _REJECTIONS as error:
                raise ActlabError(
                    f"{KEY}.{name}: expected predictions and targets that the metric accepts, got "
                    f"{tuple(predictions.shape)} and {tuple(targets.shape)}: {_with_remedy(error)}"
                ) from error

    @third_party.calling()
    def take(self, split: str, device: torch.device) -> dict[str, Any]:
        """Return the results of an evaluation over all devices, by name, and end it."""
        with warnings.catch_warnings():  # this device may have had no sample
            warnings.filterwarnings(
                "ignore", ".*compute.* method of metric .* was called before the"
            )
            results = {
                name: _computed(name, metric) for name, metric in self._states(split, device)
            }
        del self._running[split]
        return results

    def _states(self, split: str, device: torch.device) -> Iterator[tuple[str, Metric]]:
        if split not in self._running:
            self._running[split] = {name: metric.clone() for name, metric in self.given.items()}
        for name, metric in self._running[split].items():
            yield name, metric if metric.device == device else metric.to(device)


def _computed(name: str, metric: Metric) -> Any:
    try:
        return metric.compute()
    except _REJECTIONS as error:
        raise ActlabError(
            f"{KEY}.{name}: expected a result from the task's predictions, got an error: {_with_remedy(error)}"
        ) from error


def _with_remedy(error: Exception) -> str:
    return (
        f"{one_line(error).rstrip('.')}. Use a metric for the outputs of the task; for two classes, set "
        "task: multiclass and num_classes: 2."
    )


def as_plain(result: Any) -> Any:
    """Return a result as nested lists of numbers; mappings keep their keys."""
    if isinstance(result, Tensor):
        return result.tolist()
    if isinstance(result, Mapping):
        return {str(key): as_plain(value) for key, value in result.items()}
    return [as_plain(value) for value in result] if isinstance(result, list | tuple) else result


def log_table(logger: object, name: str, values: Any, step: int) -> None:
    """Pass a vector or matrix, as of `as_plain`, to a logger: to W&B's as a table, to TensorBoard's as text.

    Other loggers with a folder get the latest one in its file ``matrices.json``.
    """
    rows = (
        values
        if isinstance(values, list) and all(isinstance(row, list) for row in values)
        else [values]
    )
    flat = all(
        isinstance(row, list) and all(isinstance(v, int | float) for v in row) for row in rows
    )
    if (
        callable(log := getattr(logger, "log_table", None))
        and flat
        and len({len(row) for row in rows}) == 1
    ):
        log(name, columns=[str(k) for k in range(len(rows[0]))], data=rows, step=step)
    elif callable(add := getattr(getattr(logger, "experiment", None), "add_text", None)):
        add(name, "\n".join(f"    {row}" for row in rows), step)  # a block of Markdown
    elif folder := getattr(logger, "log_dir", None):
        update_json(Path(folder, "matrices.json"), {name: values}, "delete it")
