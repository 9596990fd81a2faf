"""How the effect of an activation depends on the seeds that selected its settings.

A selection is repeated on resamples of its seeds. Each setting has the mean logarithm of the scored
error over the runs that selected; its variance over resamples is the variance of the selection. It
is approximate, since few runs score each setting. It is too small where the seeds favour a setting
by chance, so intervals cover too little with three seeds (``benchmarks/over_tasks.py``).

On further data the settings were not tried, so their effects there have the variance on the first
data.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from actlab.analysis.choice import resamples
from actlab.analysis.columns import Column
from actlab.analysis.statistics import Array
from actlab.analysis.study_table import Row, StudyTable
from actlab.storage.files import regular
from actlab.studies.plan import Selection

FILE = "choose/values.csv"  # the runs that selected settings, in the folder of a task's study


class Trials(NamedTuple):
    """The runs at all settings of which one was selected, arrays ``[settings, seeds]``."""

    scores: Array  # of the metric that selects, infinite for a run without a score
    # Logarithms of the errors that are compared, infinite for a failed run
    errors: Array
    mode: str  # ``min`` or ``max`` of a score is good

    def variance(self) -> float:
        """Return the variance over selections of the mean logarithm of the error."""
        # Average the runs of each setting that succeeded
        succeeded = np.isfinite(self.errors)
        counts = succeeded.sum(1)
        sums = np.where(succeeded, self.errors, 0.0).sum(1)

        # Weigh each setting by how often it is selected
        shares = selected_shares(self.scores, self.mode)
        selected = (shares > 0) & (counts > 0)
        if not selected.any():
            return 0.0
        means = sums[selected] / counts[selected]
        weights = shares[selected] / shares[selected].sum()
        deviations = means - weights @ means
        return float(weights @ deviations**2)


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
        trials = self.trials(row, table)
        return trials.variance() if trials else 0.0

    def trials(self, row: Row, table: StudyTable) -> Trials | None:
        """Return the runs that selected the settings of a row; None for a single setting.

        Only settings with runs of the same seeds can be compared.
        """
        # Find the runs of each setting
        texts = {key: table.text(key, value) for key, value in row.point.items()}
        settings: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for run in self.rows:
            if all(run.get(key, text) == text for key, text in texts.items()):
                setting = tuple(run[key] for key in self.rule.tune)
                settings.setdefault(setting, []).append(run)
        if len(settings) < 2 or len(set(map(len, settings.values()))) > 1:
            return None

        # Read scores and errors
        worst = "-inf" if self.rule.mode == "max" else "inf"
        score = f"{self.rule.metric}@{self.rule.at}"
        column = row.primary
        scores = []
        errors = []
        for runs in settings.values():
            scores.append([float(run[score] or worst) for run in runs])
            values = [float(run[column.key] or "inf") for run in runs]
            errors.append([error_of(column, value, column.samples) for value in values])
        return Trials(np.array(scores), np.log(errors), self.rule.mode)


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
