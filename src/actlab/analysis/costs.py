"""The time and memory of an update of each group, as ``cost.json`` has them, relative to the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actlab.storage.files import DamagedError
from actlab.studies.formats import Cost, Timed
from actlab.studies.groups import Group, Setting
from actlab.studies.study_folder import StudyFolder, timed_together


def read(folder: StudyFolder) -> tuple[list[Cost], str]:
    """Return the entries measured together, of most settings, and a line on a damaged file, or an empty one."""
    try:
        ids = {run.id for run in folder.runs}
        together = timed_together(cost for cost in folder.costs if cost["run"] in ids)
        return max(together, key=len, default=[]), ""
    except DamagedError as error:
        return [], str(error)


def timed(costs: Sequence[Cost]) -> list[Timed]:
    """Return the entries of settings that could be timed."""
    return [cost for cost in costs if "seconds_per_update" in cost]


def of_setting(costs: Sequence[Timed], group: Group, setting: Setting) -> Timed | None:
    """Return the cost measured at a setting of a group, or at one with another learning rate."""
    alike = [other for other in group.settings if other.priced == setting.priced]
    names = {run.id for other in alike for run in other.runs}
    return next((cost for cost in costs if cost["run"] in names), None)


def relative(mine: Mapping[str, Any], reference: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a cost, with its ratios to the cost of the reference."""
    if reference is None:
        return mine
    ratios: dict[str, Any] = {
        "relative_to_reference": mine["seconds_per_update"] / reference["seconds_per_update"],
        "bytes_relative": mine["bytes_kept"] / reference["bytes_kept"],
    }
    if mine is not reference:
        parts = zip(mine["seconds_in_parts"], reference["seconds_in_parts"], strict=False)
        ratios["relative_in_parts"] = [a / b for a, b in parts]
    return {**mine, **ratios}
