"""Metrics of torchmetrics in addition to a task's quantities.

``N``: samples, frames or tokens without padding.
"""

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

# Errors that metrics raise for predictions of another kind
_REJECTIONS = (ValueError, RuntimeError, TypeError, IndexError)


class Metrics:
    """The metrics of one task. Each evaluation has states of its own, which end with its result.

    The names of ``metrics`` must differ from ``reserved`` names and fit ``val/name``.
    """

    def __init__(
        self, metrics: Mapping[str, Metric] | None, reserved: Collection[str]
    ) -> None:
        # The metrics themselves, which are never updated
        self.templates = dict(metrics or {})
        # The copies by split, then by name
        self._running: dict[str, dict[str, Metric]] = {}

        # Names become parts of logged names.
        for name in self.templates:
            if not re.fullmatch(r"[\w-]+", name) or name in reserved:
                raise ActlabError(
                    f"{KEY}: expected names of letters, digits, _ and -, except "
                    f"{', '.join(reserved)}, got {name!r}. Rename the metric."
                )

    def __bool__(self) -> bool:
        return bool(self.templates)

    @property
    def numbers(self) -> list[str]:
        """Names of the metrics whose results are numbers."""
        return [name for name, metric in self.templates.items() if gives_number(metric)]

    @third_party.calling()
    def update(self, split: str, predictions: Tensor, targets: Tensor) -> None:
        """Add predictions and targets ``(N, *)`` to the evaluation of ``val`` or ``test``."""
        # A batch may consist of padding
        if not len(targets):
            return
        for name, metric in self._states(split, targets.device):
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
        # This device may have had no sample.
        no_update = ".*compute.* method of metric .* was called before the"
        results = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", no_update)
            for name, metric in self._states(split, device):
                results[name] = _computed(name, metric)
        # The next evaluation starts with fresh states
        del self._running[split]
        return results

    def _states(self, split: str, device: torch.device) -> Iterator[tuple[str, Metric]]:
        """Yield the metrics of an evaluation by name, on a device."""
        if split not in self._running:
            self._running[split] = {
                name: metric.clone() for name, metric in self.templates.items()
            }
        for name, metric in self._running[split].items():
            yield name, metric if metric.device == device else metric.to(device)


def _computed(name: str, metric: Metric) -> Any:
    try:
        return metric.compute()
    except _REJECTIONS as error:
        raise ActlabError(
            f"{KEY}.{name}: expected a result from the task's predictions, got an error: "
            f"{_with_remedy(error)}"
        ) from error


def _with_remedy(error: Exception) -> str:
    fault = one_line(error).rstrip(".")
    return (
        f"{fault}. Use a metric for the outputs of the task; for two classes, set task: multiclass "
        "and num_classes: 2."
    )


def as_plain(result: Any) -> Any:
    """Return a result as nested lists of numbers; mappings keep their keys."""
    if isinstance(result, Tensor):
        return result.tolist()
    if isinstance(result, Mapping):
        return {str(key): as_plain(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        # Lists of tensors, such as a curve by class
        return [as_plain(value) for value in result]
    return result


def log_table(logger: object, name: str, values: Any, step: int) -> None:
    """Pass a vector or matrix, as of `as_plain`, to a logger.

    W&B's logger gets it as a table, and TensorBoard's as text. Other loggers with a folder get the
    latest value in its file ``matrices.json``.
    """
    # A vector is a table of one row.
    rows = [values]
    if isinstance(values, list) and all(isinstance(row, list) for row in values):
        rows = values

    # Log a table.
    log = getattr(logger, "log_table", None)
    if callable(log) and _is_matrix(rows):
        columns = [str(number) for number in range(len(rows[0]))]
        log(name, columns=columns, data=rows, step=step)
        return

    # Log a block of Markdown.
    experiment = getattr(logger, "experiment", None)
    add_text = getattr(experiment, "add_text", None)
    if callable(add_text):
        # Indented by four, so that Markdown leaves it as it is
        block = "\n".join(f"    {row}" for row in rows)
        add_text(name, block, step)
        return

    # Write a file.
    folder = getattr(logger, "log_dir", None)
    if folder:
        update_json(Path(folder, "matrices.json"), {name: values}, "Delete it.")


def _is_matrix(rows: list[Any]) -> bool:
    """Whether the rows are lists of numbers, all of one length."""
    lengths = set()
    for row in rows:
        if not isinstance(row, list) or not all(
            isinstance(value, int | float) for value in row
        ):
            return False
        lengths.add(len(row))
    return len(lengths) == 1
