"""How many samples a share was measured on, and the standard error that values have from the samples alone."""

from __future__ import annotations

import math

from actlab.analysis.columns import Column, read_where
from actlab.analysis.results import Results, scored
from actlab.analysis.statistics import is_share, median, sampling_error
from actlab.studies.groups import Setting


def number_of(results: Results, column: Column) -> int | None:
    """Return the number of samples of a share; None if unknown or not the same in all runs.

    A value counts as a share where that of each run is k/N: weighted samples, or a user's metric of
    this name such as a mean absolute error, give others.
    """
    runs = [run for run in results.runs if run.id in results.results]
    ended = [results.results[run.id] for run in runs]
    number = scored(ended, column, results.study)
    if not number or not any("scored" in result for result in ended):  # as of older runs
        return number
    for run in runs:
        value = results.recorded(run, column)
        if value is not None and not is_share(value, number):
            return None
    return number


def error_of(
    results: Results, column: Column, setting: Setting, value: float | None, samples: int | None
) -> float | None:
    """Return the standard error that a setting's value has from the samples alone; None if unknown.

    That of a mean after training is the median over the runs that recorded it; that of another
    share follows from the number of samples.
    """
    known = []
    if read_where(column.at, results.study) == "last" and not column.condition:
        for run in setting.runs:
            if run.id in results.results:
                errors = results.results[run.id].get("sampling_errors", {})
                if column.metric in errors:
                    known.append(errors[column.metric])
    if known and value is not None and math.isfinite(value):
        return median(known)
    return sampling_error(value, samples)
