"""Pass what is recorded to the loggers of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning.loggers import Logger

from actlab.config.metrics import logged
from actlab.storage import series
from actlab.studies.rows import Row
from actlab.tasks.metrics import log_table


def log_epoch(logger: Logger, rows: Sequence[Row], matrices: Mapping[str, Any]) -> None:
    """Pass the rows and matrices of an epoch to a logger."""
    # Collect the metrics of each step
    steps: dict[int, dict[str, float]] = {}
    for row in rows:
        metrics = steps.setdefault(row.step, {"epoch": row.epoch})
        metrics[row.logged] = row.value

    # Log them
    for step, metrics in steps.items():
        logger.log_metrics(metrics, step)
    for name, values in matrices.items():
        last_step = rows[-1].step
        log_table(logger, name, values, last_step)


def summarise(logger: object, rows: Sequence[Row], diverged: bool) -> None:
    """Call a logger's ``log_summary(values, diverged)``, if it has one, with all rows."""
    log_summary = getattr(logger, "log_summary", None)
    if not callable(log_summary):
        return

    # Collect the values of each metric
    names = series.names(row.logs for row in rows)
    values: dict[str, list[float]] = {}
    for row in rows:
        name = logged(names[row.logs], row.condition)
        values.setdefault(name, []).append(row.value)
    log_summary(values, diverged)
