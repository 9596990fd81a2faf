"""The number of samples of a share, and the standard error that values have from samples alone."""

from __future__ import annotations

import math

from actlab.analysis.columns import Column, read_where
from actlab.analysis.results import Results, scored
from actlab.analysis.statistics import is_share, median, sampling_error
from actlab.studies.groups import Setting


def number_of(results: Results, column: Column) -> int | None:
    """Return the number of samples of a share; None if unknown or not the same in all runs.

    A value counts as a share if it is k/N in each run. Weighted samples give other values, and so
    does a user's metric of this name such as a mean absolute error.
    """
    runs = [run for run in results.runs if run.id in results.results]
    ended = [results.results[run.id] for run in runs]
    number = scored(ended, column, results.study)
    if not number or not any("scored" in result for result in ended):  # of older runs
        return number

    for run in runs:
        value = results.recorded(run, column)
        if value is not None and not is_share(value, number):
            return None
    return number


def error_of(
    results: Results,
    column: Column,
    setting: Setting,
    value: float | None,
    samples: int | None,
) -> float | None:
    """Return the standard error that a setting's value has from samples alone; None if unknown.

    For a mean after training, it is the median over the runs that recorded an error. For another
    share, it follows from the number of samples.
    """
    errors = []
    if read_where(column.at, results.study) == "last" and not column.condition:
        for run in setting.runs:
            if run.id in results.results:
                recorded = results.results[run.id].get("sampling_errors", {})
                if column.metric in recorded:
                    errors.append(recorded[column.metric])

    if errors and value is not None and math.isfinite(value):
        return median(errors)
    return sampling_error(value, samples)
