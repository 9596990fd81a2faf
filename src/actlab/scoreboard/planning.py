"""The studies that train a user's activations on the tasks of the scoreboard, by its protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.scoreboard.definition import DataSet, Definition, Task
from actlab.scoreboard.statistic import FEWEST_TASKS
from actlab.storage.digests import digest_of
from actlab.studies.plan import SMOKE_SUFFIX, Stage, Study
from actlab.studies.reading import load
from actlab.studies.seeds import seed_list


@dataclass(frozen=True)
class PlannedTask:
    """A study of a task, and the data sets of its stages; the first stage selects settings.

    A task has a study for each of its groups of data sets.
    """

    task: str
    study: Study
    data: tuple[str, ...]  # of the stages after the first


def named_tasks(names: str, stated: Definition) -> dict[str, Task]:
    """Return the tasks of a list of names with commas; all tasks without names."""
    # Data without a stored table has nothing to compare with
    tasks = stated.with_tables
    if not names:
        return tasks

    selected = {}
    for name in map(str.strip, names.split(",")):
        if name not in tasks:
            raise unknown("task", name, tasks)
        selected[name] = tasks[name]
    return selected


def planned(
    tasks: Mapping[str, Task],
    activations: Sequence[Any],
    folder: Path | None,
    smoke: bool = False,
) -> tuple[dict[str, PlannedTask], list[str]]:
    """Return the studies of the tasks with data in a folder, and what the user should know.

    Tasks in a smoke run are trained on samples of their first data set. A group of data sets
    without its first one, which selects settings, is left out.

    Returns:
        The studies by name, and lines that name what is left out and say if there is no rank.

    Raises:
        ActlabError: no task has data, or the content of a file is not the content that the
            scoreboard states; this reads whole files.
    """
    # Without a folder, only tasks that need no data
    notes: list[str] = []
    if folder is None and not smoke:
        tasks, notes = _without_files(tasks)

    plans = {}
    for name, task in tasks.items():
        # A smoke run shows that the first data set works
        groups = task.groups
        if smoke:
            groups = [groups[0][:1]]
        for group in groups:
            # Look for the data of each data set
            available = group
            if not smoke:
                available, lines = _available(name, task, group, folder)
                notes += lines

            # Further groups have studies of their own
            if group[0] in available:
                plan = planned_task(name, task, available, activations, folder, smoke)
                plans[plan.study.name] = plan
                continue

            # Their settings are unknown
            for data in available:
                notes.append(
                    f"left out: {name}, {data}: its settings are selected on {group[0]}"
                )

    # Without any task
    if not plans:
        guide = "docs/guide/scoreboard.md"
        raise ActlabError(
            f"--data: expected a folder with data of a task. See {guide}."
        )
    if not smoke and len({plan.task for plan in plans.values()}) < FEWEST_TASKS:
        notes.append("one task gives no rank, because a rank needs two")
    return plans, notes


def _without_files(
    tasks: Mapping[str, Task],
) -> tuple[dict[str, Task], list[str]]:
    """Return the tasks that need no data, and lines that name the other tasks."""
    # Divide the tasks
    without_files = {}
    with_files = {}
    for name, task in tasks.items():
        if any(data_set.file for data_set in task.data.values()):
            with_files[name] = task
        else:
            without_files[name] = task

    # Say how to get data
    lines = []
    if with_files:
        lines.append(f"left out, because --data is missing: {', '.join(with_files)}")
    for name, task in with_files.items():
        if task.download:
            lines.append(f"one download has the data of {name}: {task.download}")
    return without_files, lines


def _available(
    name: str, task: Task, group: Iterable[str], folder: Path | None
) -> tuple[list[str], list[str]]:
    """Return the data sets of a group that can be used, and a line for each other one."""
    available = []
    lines = []
    for data in group:
        reason = reason_against(task.data[data], folder)
        if reason:
            lines.append(f"left out: {name}, {data}: {reason}")
        else:
            available.append(data)
    return available, lines


def reason_against(data_set: DataSet, folder: Path | None) -> str:
    """Return why a data set cannot be used; empty if it can.

    Raises:
        ActlabError: if the content of its file is not the content that the scoreboard states.
    """
    # Whether the file is there
    if not data_set.file or folder is None:
        return ""
    file = folder / data_set.file
    if not file.exists():
        return f"{data_set.file} is not in the folder of --data"

    # Whether its content is valid
    expected = data_set.sha256
    if expected:
        digest = digest_of(file)
        if digest != expected:
            raise ActlabError(
                f"{file}: expected the sha256 {expected[:12]}…, got {digest[:12]}…."
            )
    return ""


def planned_task(
    name: str,
    task: Task,
    data: Iterable[str],
    activations: Sequence[Any],
    folder: Path | None = None,
    smoke: bool = False,
) -> PlannedTask:
    """Return the study that selects settings on a data set, and uses them on others.

    Args:
        name: of the task.
        task: its definition.
        data: the names of data sets of a group, the one that selects settings first.
        activations: that the study trains.
        folder: with the data; None for samples, or for a task that needs none.
        smoke: train briefly on samples.
    """
    # The study on the first data set
    first, *further = data
    study = load(
        task.study,
        smoke,
        activations=activations,
        reference=activations[0],
        settings={
            "model.activation": [*activations],
            **task.data[first].settings(folder),
        },
    )

    # Add a stage for each further data set
    stages = list(study.stages)
    for further_name in further:
        data_set = task.data[further_name]
        seeds = seed_list(data_set.seeds)
        stages.append(Stage(_slug(further_name), seeds, data_set.settings(folder)))

    # A further group has its own folder of runs
    title = f"{task.title.capitalize()}: {study.title}"
    study_name = name
    if task.data[first].selects:
        study_name = f"{name}-{_slug(first)}"
    if smoke:
        study_name += SMOKE_SUFFIX
    study = replace(
        study, name=study_name, title=title, stages=tuple(stages), more_seeds=""
    )
    return PlannedTask(name, study, (first, *further))


def _slug(name: str) -> str:
    """Return the name of a data set as a part of names of folders."""
    return name.replace(" ", "-").lower()
