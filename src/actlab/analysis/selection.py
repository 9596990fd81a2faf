"""The settings selected on validation data, and how far the choice depends on the seeds that chose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from actlab.analysis.choice import Choice, choice
from actlab.analysis.columns import Column
from actlab.analysis.results import Results
from actlab.analysis.statistics import median
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Run, Study


def selected_by(study: Study) -> Column:
    """Return the column whose median over seeds selects the settings of a study that tunes any."""
    return Column(study.select.metric, study.select.at, mode=study.select.mode)


def check_selection(results: Results) -> None:
    """Raise an ActlabError unless the metric that selects settings is a recorded one of validation."""
    metric = results.study.select.metric
    results.metrics.check_validation(metric, f"'select: metric: {metric}'")
    results.metrics.check(metric)


def scores(results: Results, settings: Iterable[Setting]) -> list[float]:
    """Return the median of the selection metric at each setting; its worst value where no run has one."""
    column = selected_by(results.study)
    check_selection(results)
    return [median(results.values(setting, column).values(), column.worst) for setting in settings]


def chosen(results: Results, place: Group) -> Setting | None:
    """Return the setting with the best median of the selection metric; None if no run has ended."""
    begun = []
    for setting in place.settings:
        if any(run.id in results.results for run in setting.runs):
            begun.append(setting)
    if not begun:
        return None
    if len(place.settings) == 1:
        return begun[0]
    values = np.array(scores(results, begun))
    is_max = results.study.select.mode == "max"
    return begun[int(values.argmax() if is_max else values.argmin())]


def ended(results: Results) -> Iterator[tuple[Run, bool]]:
    """Yield the runs that have ended, by group, and whether each has the selected setting."""
    for group in results.groups:
        selected = chosen(results, group)
        for setting in group.settings:
            for run in setting.runs:
                if run.id in results.results:
                    yield run, setting is selected


def missing_at(results: Results, place: Group) -> int:
    """Return the number of runs at a place that have not ended."""
    return sum(run.id not in results.results for setting in place.settings for run in setting.runs)


def choice_at(results: Results, place: Group) -> Choice | None:
    """Return how far the choice at a place depends on its seeds; None without one, or without its runs."""
    if results.chosen_in:
        return _earlier_choice(results, results.chosen_in, place)
    if len(place.settings) < 2:
        return None
    column = selected_by(results.study)
    values = [results.values(setting, column) for setting in place.settings]
    if len({*map(tuple, values)}) > 1 or not values[0] or missing_at(results, place):
        return None
    return choice(np.array([[*of.values()] for of in values], float), results.study.select.mode)


def _earlier_choice(results: Results, before: Results, place: Group) -> Choice | None:
    """Return the choice of an earlier stage, with the median over fresh seeds."""
    group = next((group for group in before.groups if group.point == place.point), None)
    setting = group and chosen(before, group)
    if not group or not setting or setting.tuned != place.settings[0].tuned:
        return None  # other runs chose
    stability = choice_at(before, group)
    if not stability:
        return None

    # Their median over fresh seeds
    here = chosen(results, place)
    fresh = results.values(here, selected_by(results.study)) if here else {}
    elsewhere = median(fresh.values()) if fresh else None
    return stability._replace(elsewhere=elsewhere)
