"""The studies that train a user's activations on the tasks of the scoreboard, by its protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.scoreboard import definition
from actlab.scoreboard.definition import DataSet, Task
from actlab.storage.digests import digest_of
from actlab.studies.plan import SMOKE_SUFFIX, Stage, Study
from actlab.studies.reading import load
from actlab.studies.seeds import seed_list


@dataclass(frozen=True)
class PlannedTask:
    """The study of a task, and the data sets of its stages; the first stage selects settings."""

    study: Study
    data: tuple[str, ...]  # of the stages after the first


def named_tasks(names: str) -> dict[str, Task]:
    """Return the tasks of a list of names with commas."""
    tasks = definition.load().tasks
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
    """Return the tasks with data in a folder, and a line for each data set without.

    Tasks in a smoke run are trained on samples of their first data set. A task without its first
    data set, which selects settings, is left out with all its data.

    Raises:
        ActlabError: no task has data, or the content of a file is not the content that the
            scoreboard states; this reads whole files.
    """
    plans = {}
    left_out = []
    for name, task in tasks.items():
        first = next(iter(task.data))
        if smoke:
            plans[name] = planned_task(name, task, [first], activations, smoke=True)
            continue

        # Look for the data of each data set
        available = []
        for data, data_set in task.data.items():
            reason = reason_against(data_set, folder)
            if reason:
                left_out.append(f"left out: {name}, {data}: {reason}")
            else:
                available.append(data)

        if first in available:
            plans[name] = planned_task(name, task, available, activations, folder)

    # Without any task
    if not plans:
        guide = "docs/guide/scoreboard.md"
        raise ActlabError(
            f"--data: expected a folder with data of a task. See {guide}."
        )
    return plans, left_out


def reason_against(data_set: DataSet, folder: Path | None) -> str:
    """Return why a data set cannot be used; empty if it can.

    Raises:
        ActlabError: if the content of its file is not the content that the scoreboard states.
    """
    # Whether the file is there
    if not data_set.file:
        return ""
    if folder is None:
        return f"--data is missing, for {data_set.file}"
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
    """Return the study of a task on its first data set, and on others at the selected settings.

    Args:
        name: of the task.
        task: its definition.
        data: the names of data sets, the first of the task first.
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
        stage = further_name.replace(" ", "-").lower()
        stages.append(
            Stage(stage, seed_list(data_set.seeds), data_set.settings(folder))
        )

    title = f"{task.title.capitalize()}: {study.title}"
    if smoke:
        name += SMOKE_SUFFIX
    study = replace(study, name=name, title=title, stages=tuple(stages), more_seeds="")
    return PlannedTask(study, (first, *further))
