"""Train the activations of the scoreboard on a task, and store the tables of its data sets.

    python results/scoreboard/train.py VERSION TASK FOLDER [RUNS]

FOLDER has the data sets, as docs/guide/scoreboard.md describes. ``RUNS/TASK`` keeps the runs, and
RUNS is ``runs/scoreboard`` by default. Repeat the command to continue. A user's activation is
trained in the same way by ``actlab scoreboard --activation NAME``.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from actlab.checks import configs
from actlab.cli.scoreboard import check_data, tables_of
from actlab.engines.running import Engine, run
from actlab.engines.workers import Worker
from actlab.scoreboard import definition, selections
from actlab.scoreboard.planning import planned_task
from actlab.studies.study_folder import StudyFolder

ROOT = Path(__file__).parents[2]
ACTIVATIONS = [
    "gelu",
    "relu",
    "silu",
    "relu_squared",
    "mish",
    "tanh",
    "elu",
    "leaky_relu",
    "sine",
    "identity",
]
FILES = ("table.json", "table.md", "values.csv")


def main(version: int, name: str, data: Path, runs: Path) -> None:
    """Train one task, and write the tables of its data sets to the folders that it states."""
    task = definition.load(version).tasks[name]
    for group in task.groups:
        plan = planned_task(name, task, group, ACTIVATIONS, data)
        # These activations are the scoreboard's, not a user's
        plan = replace(plan, study=replace(plan.study, added=()))
        with Worker() as worker:
            worker.call(configs.check, plan.study)
            check_data(plan, task, worker)

        # Train, and write the tables
        folder = StudyFolder(plan.study, runs / plan.study.name)
        if run(folder, Engine()):
            sys.exit("Runs failed. Repeat the command to try them again.")
        tables_of(plan, task, folder)

        # Store the tables, and the runs that selected settings
        for data_name, stage in zip(plan.data, plan.study.stages[1:], strict=True):
            target = ROOT / task.data[data_name].table
            target.mkdir(parents=True, exist_ok=True)
            for file in FILES:
                shutil.copy(folder.path / stage.name / file, target / file)
        selecting = ROOT / task.data[group[0]].table
        (selecting / selections.FILE).parent.mkdir(exist_ok=True)
        for file in (selections.FILE, "selection.json"):
            shutil.copy(folder.path / file, selecting / file)


if __name__ == "__main__":
    version, name, *folders = sys.argv[1:]
    data, runs = map(Path, [*folders, "runs/scoreboard"][:2])
    main(int(version), name, data, runs)
