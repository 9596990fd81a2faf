"""Train one seed of a submitted activation on each task, and compare it with the submitted value.

    python results/scoreboard/rerun.py FOLDER NAME...

NAME is a folder of ``results/scoreboard/submitted``, and FOLDER has data of the scoreboard. On the
first data set of each task, the first fresh seed is trained at the submitted settings. Tasks
without data in FOLDER are left out and named. The exit status is 1 if a value differs.

Two processors give different values for one seed (processors.md). The tolerance is five standard
deviations of this difference on the equation and on the classifier, and 1 % on other tasks, where
the difference is below 0.1 %. On one processor, the kernels of torch with and without AVX2 were
compared, too, with five seeds. GELU's errors on MNIST differ by 7 %. The errors of GELU and sine on
letter, magic and the tweets are equal. As autoencoders, GELU's losses differ by less than 0.01 %
and ReLU's by 2.4 %, which gives the tolerance there. Convolutions were not compared on two
processors. Their tolerance is five standard deviations of the difference of two seeds.
"""

import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.analysis import study_table
from actlab.analysis.comparison import table_of
from actlab.analysis.study_table import StudyTable
from actlab.engines.running import Engine, run
from actlab.scoreboard import definition, planning
from actlab.scoreboard.definition import Task
from actlab.scoreboard.tables import SUBMITTED, comparable
from actlab.stages import opening
from actlab.storage.json_files import read_json
from actlab.storage.resources import resource
from actlab.studies.plan import BLOCK
from actlab.studies.study_folder import StudyFolder

# Relative, by task
TOLERANCES = {"equation": 0.1, "classifier": 0.3, "autoencoder": 0.12, "convolutions": 0.2}
TOLERANCE = 0.01  # on other tasks


def activation_of(submission: Path) -> Any:
    """Return a submitted activation with the path of its file."""
    activation = read_json(submission / "submission.json", dict[str, Any], "write it again")
    name = activation["activation"]
    if isinstance(name, dict):
        return {**name, "name": located(name["name"], submission)}
    return located(name, submission)


def located(name: str, submission: Path) -> str:
    """Return the name of an activation, with its folder if it is a file."""
    return str(submission / name) if ".py:" in name else name


def repeated(
    name: str, task: Task, submitted: StudyTable, activation: Any, data: Path
) -> StudyTable:
    """Train the first fresh seed of a task at the submitted settings; return its table."""
    first = task.groups[0][0]
    study = planning.planned_task(name, task, [first], [activation], data).study

    # One setting in each block
    blocks = []
    for row in submitted.rows:
        for block in study.blocks:
            if row.point.get(BLOCK, block.name) == block.name:
                settings = {key: [value] for key, value in row.chosen.items()}
                blocks.append(replace(block, grid=block.grid | settings))

    seeds = study.stages[1].seeds[:1]
    study = replace(study, blocks=tuple(blocks), stages=(), seeds=seeds)
    with tempfile.TemporaryDirectory() as runs:
        folder = StudyFolder(study, Path(runs) / study.name)
        run(folder, Engine())
        return table_of(opening.load(folder)[0])


def differences(name: str, submitted: StudyTable, table: StudyTable) -> list[str]:
    """Return a line for each value of a repeated run that is not the submitted one."""
    by_point = {row.point.without([table.compare]): row for row in comparable(table.rows, table)}
    tolerance = TOLERANCES.get(name, TOLERANCE)
    lines = []
    for row in comparable(submitted.rows, table):
        point = row.point.without([table.compare])
        for seed, value in by_point[point].primary.values.items():
            # A run that diverged has an infinite value
            stated = row.primary.values[seed]
            if not math.isclose(value, stated, rel_tol=tolerance):
                part = f", block {point[BLOCK]}" if BLOCK in point else ""
                lines.append(f"{name}{part}, seed {seed}: expected {stated}, got {value}")
    return lines


def main(data: Path, names: Sequence[str]) -> int:
    """Repeat runs of submissions; return 1 if a value differs."""
    found = []
    for name in names:
        submission = resource(SUBMITTED) / name
        for task_name, task in definition.load().with_tables.items():
            first = task.groups[0][0]
            reason = planning.reason_against(task.data[first], data)
            if reason:
                print(f"left out: {task_name}: {reason}")
                continue
            submitted = study_table.read(submission / task_name / first / study_table.NAME)
            table = repeated(task_name, task, submitted, activation_of(submission), data)
            found += [f"{name}: {line}" for line in differences(task_name, submitted, table)]
    print("\n".join(found) or "all repeated values are the submitted ones")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
