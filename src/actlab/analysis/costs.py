"""Time and memory of an update of each group, from ``cost.json``, and ratios to the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actlab.storage.files import DamagedError
from actlab.studies.formats import Cost, Timed
from actlab.studies.groups import Group, Setting
from actlab.studies.study_folder import StudyFolder, timed_together


def read(folder: StudyFolder) -> tuple[list[Cost], str]:
    """Return the largest set of entries measured together, and a line if a file is damaged."""
    ids = {run.id for run in folder.runs}
    try:
        costs = [cost for cost in folder.costs if cost["run"] in ids]
    except DamagedError as error:
        return [], str(error)
    return max(timed_together(costs), key=len, default=[]), ""


def timed(costs: Sequence[Cost]) -> list[Timed]:
    """Return the entries of settings that could be timed."""
    return [cost for cost in costs if "seconds_per_update" in cost]


def of_setting(costs: Sequence[Timed], group: Group, setting: Setting) -> Timed | None:
    """Return the cost measured at a setting of a group; learning rates may differ."""
    ids: set[str] = set()
    for candidate in group.settings:
        if candidate.priced == setting.priced:
            ids.update(run.id for run in candidate.runs)

    for cost in costs:
        if cost["run"] in ids:
            return cost
    return None


def relative(
    cost: Mapping[str, Any], reference: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return a cost, with its ratios to the cost of the reference."""
    if reference is None:
        return cost

    # Ratios above 1 mean slower, or more memory
    ratios: dict[str, Any] = {
        "relative_to_reference": cost["seconds_per_update"]
        / reference["seconds_per_update"],
        "bytes_relative": cost["bytes_kept"] / reference["bytes_kept"],
    }

    # The reference itself has no ratios in parts.
    if cost is not reference:
        parts = zip(
            cost["seconds_in_parts"], reference["seconds_in_parts"], strict=False
        )
        ratios["relative_in_parts"] = [seconds / base for seconds, base in parts]
    return {**cost, **ratios}
