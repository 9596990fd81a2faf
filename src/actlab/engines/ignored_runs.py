"""Finished runs in a study's folder that the study no longer plans, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from actlab.analysis.wording import few, plural
from actlab.studies import changes
from actlab.studies.groups import by_key
from actlab.studies.plan import Run
from actlab.studies.study_folder import StudyFolder


def ignored(stages: Sequence[StudyFolder]) -> str:
    """Return a line about finished runs that share names with planned runs but differ, or "".

    It names the files that have changed since, and which settings differ in the first 20 of the
    other runs. ``stages`` are the stages of one study, whose runs are planned.
    """
    # Collect the planned runs of all stages
    root = stages[0].path
    planned: list[Run] = []
    for stage in stages:
        planned += [folder.run for folder in stage.runs]

    # Find the runs of planned names that differ in the digest
    ids = {run.id for run in planned}
    planned_by_name = by_key((_name(run.id), run) for run in planned)
    unplanned = []
    for run_id in stages[0].finished():
        if run_id not in ids and _name(run_id) in planned_by_name:
            unplanned.append(run_id)
    if not unplanned:
        return ""

    # Separate the runs that use a changed file
    digests = changes.digests(planned)
    files: dict[str, None] = {}  # in order
    unedited = []
    for run_id in unplanned:
        changed_files = changes.changed(root / run_id, digests)
        files |= dict.fromkeys(changed_files)
        if not changed_files:
            unedited.append(run_id)
    reasons = []
    if files:
        number = plural(len(unplanned) - len(unedited), "finished run")
        reasons.append(f"{number}, because {few([*files])} has been changed since")

    # Compare the settings of all unedited
    if unedited:
        settings = _other_settings(root, unedited[:20], planned_by_name)
        reason = "of other settings, data or code, or of an earlier version of actlab"
        if settings:
            reason = f"with other settings: {few(settings)}"
        reasons.append(f"{plural(len(unedited), 'finished run')} {reason}")

    return f"ignored in {root}: {'; '.join(reasons)}"


def _other_settings(
    root: Path, run_ids: Sequence[str], planned_by_name: Mapping[str, Sequence[Run]]
) -> list[str]:
    """Return how the settings of runs differ from the planned runs of their names, each once."""
    differences: dict[str, None] = {}
    for run_id in run_ids:
        planned = planned_by_name[_name(run_id)]
        differences |= dict.fromkeys(changes.other_settings(root / run_id, planned))
    return list(differences)


def _name(run_id: str) -> str:
    """Return the id of a run without its digest."""
    name, _, _ = run_id.rpartition("-")
    return name
