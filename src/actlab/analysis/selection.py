"""The settings selected on validation data, and how far a selection depends on its seeds."""

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
    """Return the column whose median over seeds selects the settings of a study that tunes."""
    return Column(study.select.metric, study.select.at, mode=study.select.mode)


def check_selection(results: Results) -> None:
    """Raise an ActlabError unless runs recorded the metric that selects settings in validation."""
    metric = results.study.select.metric
    results.metrics.check_validation(metric, f"'select: metric: {metric}'")
    results.metrics.check(metric)


def scores(results: Results, settings: Iterable[Setting]) -> list[float]:
    """Return the median of the selection metric at each setting; the worst value without runs."""
    column = selected_by(results.study)
    check_selection(results)
    medians = []
    for setting in settings:
        values = results.values(setting, column).values()
        medians.append(median(values, default=column.worst))
    return medians


def selected_setting(results: Results, group: Group) -> Setting | None:
    """Return the setting with the best median of the selection metric; None if no run ended."""
    # Collect the settings with a run that has ended
    begun = []
    for setting in group.settings:
        if any(run.id in results.results for run in setting.runs):
            begun.append(setting)

    # A single setting needs no metric.
    if not begun:
        return None
    if len(group.settings) == 1:
        return begun[0]

    # The first of equally good settings is selected
    values = np.array(scores(results, begun))
    if results.study.select.mode == "max":
        return begun[int(values.argmax())]
    return begun[int(values.argmin())]


def ended(results: Results) -> Iterator[tuple[Run, bool]]:
    """Yield the runs that have ended, by group, and whether each has the selected setting."""
    for group in results.groups:
        selected = selected_setting(results, group)
        for setting in group.settings:
            for run in setting.runs:
                if run.id in results.results:
                    yield run, setting is selected


def missing_at(results: Results, group: Group) -> int:
    """Return the number of runs of a group that have not ended."""
    missing = 0
    for setting in group.settings:
        missing += sum(run.id not in results.results for run in setting.runs)
    return missing


def choice_at(results: Results, group: Group) -> Choice | None:
    """Return how far the selection of a group depends on its seeds.

    None if the group has a single setting, or while its runs are missing.
    """
    if results.chosen_in:
        return _earlier_choice(results, results.chosen_in, group)
    if len(group.settings) < 2:
        return None

    # Only settings with values of the same seeds can be compared.
    column = selected_by(results.study)
    values = [results.values(setting, column) for setting in group.settings]
    seeds = {tuple(by_seed) for by_seed in values}
    if len(seeds) > 1 or not values[0] or missing_at(results, group):
        return None

    table = np.array([list(by_seed.values()) for by_seed in values], float)
    return choice(table, results.study.select.mode)


def _earlier_choice(results: Results, before: Results, group: Group) -> Choice | None:
    """Return the selection of an earlier stage, with the median over fresh seeds."""
    # Find the group in the earlier stage.
    earlier = None
    for candidate in before.groups:
        if candidate.point == group.point:
            earlier = candidate
            break
    if earlier is None:
        return None

    # Other runs may have selected the setting.
    selected = selected_setting(before, earlier)
    if not selected or selected.tuned != group.settings[0].tuned:
        return None
    stability = choice_at(before, earlier)
    if not stability:
        return None

    # Its median over fresh seeds replaces the estimate from the seeds that selected.
    elsewhere = None
    setting = selected_setting(results, group)
    if setting:
        fresh = results.values(setting, selected_by(results.study))
        if fresh:
            elsewhere = median(fresh.values())
    return stability._replace(elsewhere=elsewhere)
