"""Costs of updates that a study's folder stores, and the runs that lack them."""

from __future__ import annotations

from collections import defaultdict

from actlab.storage.files import DamagedError
from actlab.studies.formats import Cost
from actlab.studies.plan import Run
from actlab.studies.points import Point
from actlab.studies.study_folder import StudyFolder, timed_together


def uncosted(folder: StudyFolder) -> list[Run]:
    """Return the finished runs unless the costs of all their grid points were measured together.

    Points that differ only in a learning rate have the same cost.
    """
    if not folder.study.reference:
        return []

    # Group the runs whose updates cost the same
    runs_by_cost: dict[tuple[int, Point], set[str]] = defaultdict(set)
    for number, group in enumerate(folder.groups):
        for setting in group.settings:
            names = runs_by_cost[number, setting.priced]
            names.update(run.id for run in setting.runs)

    # Take the groups with a finished run
    finished = {run.id: run.run for run in folder.runs if run.finished}
    groups = [names for names in runs_by_cost.values() if names & finished.keys()]
    if not groups:
        return []

    # Look for a measurement of all of them
    for entries in timed_together(stored_costs(folder)):
        timed = {entry["run"] for entry in entries}
        if all(names & timed for names in groups):
            return []
    return list(finished.values())


def stored_costs(folder: StudyFolder) -> list[Cost]:
    """Return the measured costs; empty if the file is damaged, so that costs are measured again."""
    try:
        return folder.costs
    except DamagedError:
        return []
