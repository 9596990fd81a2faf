"""How the effect of an activation depends on the seeds that selected its settings.

A selection is repeated on resamples of its seeds. Each setting has the mean logarithm of the scored
error over the runs that selected; its variance over resamples is the variance of the selection. It
is approximate, since few runs score each setting. On further data the settings were not tried, so
their effects there have the variance on the first data.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from actlab.analysis.choice import resamples
from actlab.analysis.columns import Column
from actlab.analysis.statistics import Array
from actlab.analysis.study_table import Cell, Row, StudyTable
from actlab.storage.files import regular
from actlab.studies.plan import Selection

FILE = "choose/values.csv"  # the runs that selected settings, in the folder of a task's study


@dataclass(frozen=True)
class SelectingRuns:
    """The runs that selected the settings of a task, and the rule of the selection."""

    rows: list[dict[str, str]]  # the file's rows, as texts by column
    rule: Selection

    def variance(self, row: Row, table: StudyTable) -> float:
        """Return the variance of the effect of an activation over selections of its settings.

        Args:
            row: of the activation, at its selected settings.
            table: its table.
        """
        # Find the runs of each setting
        texts = {key: table.text(key, value) for key, value in row.point.items()}
        settings: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for run in self.rows:
            if all(run.get(key, text) == text for key, text in texts.items()):
                setting = tuple(run[key] for key in self.rule.tune)
                settings.setdefault(setting, []).append(run)
        if len(settings) < 2 or len(set(map(len, settings.values()))) > 1:
            return 0.0  # only settings with runs of the same seeds can be compared

        # Read scores and effects
        worst = "-inf" if self.rule.mode == "max" else "inf"  # of a run without a score
        score = f"{self.rule.metric}@{self.rule.at}"
        scores = []
        effects = []
        for runs in settings.values():
            scores.append([float(run[score] or worst) for run in runs])
            effects.append(_log_mean(row.primary, runs))

        # Weigh the effect of each setting by how often it is selected
        shares = selected_shares(np.array(scores), self.rule.mode)
        means = np.array(effects)
        selected = (shares > 0) & np.isfinite(means)
        if not selected.any():
            return 0.0
        weights = shares[selected] / shares[selected].sum()
        deviations = means[selected] - weights @ means[selected]
        return float(weights @ deviations**2)


def read(file: Path, rule: Selection) -> SelectingRuns:
    """Read the runs of a file that selected settings by a rule."""
    with regular(file).open(encoding="utf-8", newline="") as stream:
        return SelectingRuns([*csv.DictReader(stream)], rule)


def error_of(column: Column, value: float, samples: int | None = None) -> float:
    """Return the error that a value stands for; infinite for a run that failed.

    It is a mean squared error for decibels, and the inverse where large values are good.
    """
    if column.failed(value, samples):
        return math.inf
    unit = 1.0
    if column.scale == "decibels":
        unit = 0.0
    return column.divided(value, unit)


def errors_of(
    column: Column, values: Iterable[float], samples: int | None = None
) -> list[float]:
    """Return the errors of the runs that succeeded."""
    errors = [error_of(column, value, samples) for value in values]
    return [error for error in errors if math.isfinite(error)]


def _log_mean(cell: Cell, runs: Iterable[Mapping[str, str]]) -> float:
    """Return the mean logarithm of the errors of the runs that succeeded; nan without any."""
    values = [float(run[cell.key] or "inf") for run in runs]
    logs = [math.log(error) for error in errors_of(cell, values, cell.samples)]
    return sum(logs) / len(logs) if logs else math.nan


def selected_shares(scores: Array, mode: str) -> Array:
    """Return the share of resamples of the seeds that selects each setting, ``[settings]``.

    Args:
        scores: of the metric that selects, ``[settings, seeds]``.
        mode: ``min`` or ``max`` of it is good.
    """
    losses = scores
    if mode == "max":
        losses = -scores
    settings, seeds = losses.shape

    # A resample shares its seeds between settings, as they were trained
    drawn, weights = resamples(seeds)
    selected = np.median(losses[:, drawn], axis=2).argmin(0)
    return np.asarray(np.bincount(selected, weights, settings), float)
