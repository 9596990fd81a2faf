"""``actlab scoreboard``: train an activation on several tasks, and compare it over tasks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from actlab.analysis.comparison import table_of
from actlab.analysis.study_table import StudyTable
from actlab.analysis.wording import duration, plural
from actlab.checks import configs
from actlab.cli import estimates
from actlab.cli.parser import Parser
from actlab.cli.study_options import add_folder_option
from actlab.config.paths import get_dotted
from actlab.engines.running import Engine, run
from actlab.engines.workers import Worker
from actlab.errors import ActlabError
from actlab.scoreboard import definition, page_file, scores, selections, sentences
from actlab.scoreboard.definition import Definition, Task
from actlab.scoreboard.planning import PlannedTask, named_tasks, planned
from actlab.scoreboard.scores import Scoreboard
from actlab.scoreboard.tables import DataName
from actlab.stages import opening
from actlab.studies.plan import Study
from actlab.studies.reading import ACTIVATION_FORMS, activation
from actlab.studies.study_folder import StudyFolder

_SLACK = 1.2  # of the minutes that are advised, because the next estimate differs


def parser() -> Parser:
    """Return the argument parser of ``actlab scoreboard``."""
    command = Parser(
        prog="actlab scoreboard",
        description="Rank your activation on the scoreboard, over several tasks. Only your "
        "activation is trained, with the same protocol; the results of the others are bundled. "
        "Settings are selected on the first data set of a task and used on its others. The command "
        "skips tasks without data and tasks that do not fit into --minutes, and names them. "
        "docs/guide/scoreboard.md explains how to get the data.",
        examples=[
            "actlab scoreboard --activation ./my_activation.py:MyActivation --data FOLDER",
            "actlab scoreboard --activation ./my_activation.py:MyActivation --tasks equation",
        ],
    )

    # What is trained
    command.add_argument(
        "--activation",
        action="append",
        default=[],
        dest="activations",
        metavar="NAME",
        help=f"your activation: {ACTIVATION_FORMS}; repeatable; without it, print and write the "
        "stored scoreboard",
    )
    command.add_argument(
        "--tasks",
        default="",
        metavar="NAMES",
        help="tasks, separated by commas; default: all",
    )
    command.add_argument(
        "--version",
        type=int,
        choices=[*definition.FILES],
        default=definition.CURRENT,
        help="version of the scoreboard; default: %(default)s",
    )
    command.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="folder with the data of the scoreboard",
    )

    # How long, and where
    command.add_argument(
        "--minutes",
        type=float,
        default=60,
        metavar="N",
        help="time limit on idle cores; 0 prints only the estimate; default: %(default)s",
    )
    command.add_argument(
        "--smoke",
        action="store_true",
        help="train a little on samples, without a comparison",
    )
    add_folder_option(command, default="runs/scoreboard")
    return command


def main(argv: Sequence[str]) -> int:
    """Run ``actlab scoreboard``; return 1 if runs failed."""
    args = parser().parse_args(argv)
    activations = [activation(text) for text in args.activations]
    stated = definition.load(args.version)
    reference = stated.reference
    # The reference is on the scoreboard already
    if reference in activations:
        raise ActlabError(
            f"--activation {reference}: expected another activation than the reference of the "
            "scoreboard. Use another one."
        )

    # The page of all studies has the same name
    folder = _folder_of(args.version, args.runs_dir)
    page_file.check_folder(folder)

    # Without an activation nothing is trained
    if not activations:
        show({}, {}, args.version, folder)
        return 0

    # Plan the studies
    plans, notes = planned(
        named_tasks(args.tasks, stated), activations, args.data, args.smoke
    )
    for line in notes:
        print(line)

    # Compare an estimate of their time with the limit
    start = time.monotonic()
    limit = args.minutes * 60
    seconds = _estimate(plans, stated, args.runs_dir)
    cores = os.cpu_count() or 1
    total = sum(seconds.values())
    idle = f"{duration(total / cores)} on {plural(cores, 'idle core')}"
    estimate = f"all tasks: about {duration(total)} one by one, {idle}"
    print(
        f"{estimate}; --minutes {args.minutes:g} allows {duration(limit)}", flush=True
    )
    if limit == 0:  # the estimate was all that was asked for
        return 0
    # A study uses all cores. The time of the estimate itself counts, too
    needed = {name: seconds[name] / cores for name in plans}
    elapsed = time.monotonic() - start
    check_minutes(limit, elapsed, _shortest_studies(plans, needed))

    # Train what fits into the minutes
    failed = 0
    late = []
    tables: dict[DataName, StudyTable] = {}
    selecting: dict[DataName, Path] = {}
    for name, plan in plans.items():
        # A later task may be shorter and still fit
        if time.monotonic() - start + needed[name] > limit:
            late.append(f"{name} (about {duration(needed[name])})")
            continue
        runs = StudyFolder(plan.study, args.runs_dir / plan.study.name)
        failed += run(runs, Engine())
        tables |= tables_of(plan, stated.tasks[plan.task], runs)
        # Runs of the first data set, which selected the settings
        selecting[plan.task, plan.data[0]] = runs.path / selections.FILE

    # Show the results
    if late:
        print(
            f"left out, because they do not fit into {duration(limit)}: {', '.join(late)}"
        )
    if args.smoke:
        print(*sentences.smoke_lines(tables, args.version), sep="\n")
    elif tables:
        show(tables, selecting, args.version, folder)
    return 1 if failed else 0


def _folder_of(version: int, runs: Path) -> Path:
    """Return the folder of the files of a version; an earlier one has a folder of its own."""
    return runs if version == definition.CURRENT else runs / f"version_{version}"


def _estimate(
    plans: Mapping[str, PlannedTask], stated: Definition, folder: Path
) -> dict[str, float]:
    """Check the configs and data of studies, and return the seconds that each takes, by name."""
    studies = [plan.study for plan in plans.values()]
    with Worker() as worker:  # one for all studies, which have the same activations
        for study in studies:
            worker.call(configs.check, study)
        for plan in plans.values():
            check_data(plan, stated.tasks[plan.task], worker)
        return estimates.timed(studies, folder, worker)


def check_data(plan: PlannedTask, task: Task, worker: Worker) -> None:
    """Raise an ActlabError if the data of a task is not the data that the scoreboard states."""
    stages = plan.study.stages[1:]
    for data, stage in zip(plan.data, stages, strict=True):
        expected = task.data[data].content
        # Smoke runs read samples instead
        if not expected or plan.study.smoke:
            continue

        # A run of one seed reads the same file as all runs of the stage
        with_one_seed = replace(stage, seeds=stage.seeds[:1])
        config = opening.grid_of(plan.study, with_one_seed).runs()[0].config
        digest = worker.call("actlab.checks.data_digests:digest_of", config)
        if digest != expected:
            raise ActlabError(
                f"{get_dotted(config, 'data.dataset')}: expected data with the digest "
                f"{expected[:12]}…, got {digest[:12]}…. See docs/guide/scoreboard.md."
            )


def _shortest_studies(
    plans: Mapping[str, PlannedTask], seconds: Mapping[str, float]
) -> dict[str, float]:
    """Return the seconds of the shortest study of each task."""
    shortest: dict[str, float] = {}
    for name, plan in plans.items():
        so_far = shortest.get(plan.task, math.inf)
        shortest[plan.task] = min(so_far, seconds[name])
    return shortest


def check_minutes(limit: float, elapsed: float, seconds: Mapping[str, float]) -> None:
    """Raise an ActlabError if no task fits into a limit.

    Args:
        limit: in seconds.
        elapsed: seconds since the start.
        seconds: that each task needs, by name.
    """
    # Of equally long tasks, the first by name
    needed, shortest = min((elapsed + needed, name) for name, needed in seconds.items())
    if needed <= limit:
        return

    least = math.ceil(needed / 60)
    # Advise more than the estimate, because the next one differs
    advised = math.ceil(_SLACK * needed / 60)
    raise ActlabError(
        f"--minutes: expected at least {least}, for the shortest task alone, got {limit / 60:g}. "
        f"Use --minutes {advised} --tasks {shortest}."
    )


def tables_of(
    plan: PlannedTask, task: Task, folder: StudyFolder
) -> dict[DataName, StudyTable]:
    """Write the reports on the data sets of a task that have results, and return their tables."""
    from actlab.reports import output, table_files

    tables = {}
    loaded = opening.load(folder)
    for number, data in enumerate(plan.data, 1):  # the first stage selects settings
        if number >= len(loaded) or not loaded[number].results:
            continue
        # The first data set has fresh values of the selected settings; others are other data
        selecting = loaded[0] if number == 1 else None
        study = _with_chance(loaded[number].study, task.data[data].chance)
        in_folder = loaded[number].folder.with_study(study)
        stage = replace(loaded[number], folder=in_folder, chosen_in=selecting)
        table = table_of(stage)
        path = folder.path / plan.study.stages[number].name
        output.write([*loaded[:number], stage], table, path, html=True)
        tables[plan.task, data] = table
    if tables:
        table_files.write_text(
            folder.path / selections.FILE, table_files.to_csv(loaded[0])
        )
    return tables


def _with_chance(study: Study, chance: float | None) -> Study:
    """Return a study whose columns with a chance level have that of a data set."""
    if chance is None:
        return study
    columns = []
    for column in study.table:
        has_chance = column.get("chance") is not None
        columns.append({**column, "chance": chance} if has_chance else column)
    return replace(study, table=tuple(columns))


def show(
    tables: Mapping[DataName, StudyTable],
    selecting: Mapping[DataName, Path],
    version: int,
    folder: Path,
) -> None:
    """Print how the user's activations compare, or all without any, and write the scoreboard.

    Args:
        tables: of the user's runs.
        selecting: files of the user's runs that selected settings, by the data set they used.
        version: of the scoreboard.
        folder: of the files.
    """
    from actlab.reports import activation_figures
    from actlab.scoreboard import page

    scoreboard = scores.load(tables, selecting, version)
    print(*sentences.lines(scoreboard), sep="\n")
    curves = activation_figures.sampled(_named(scoreboard, tables))
    print(*page.write(scoreboard, folder, curves), sep="\n")


def _named(scoreboard: Scoreboard, tables: Mapping[DataName, StudyTable]) -> list[str]:
    """Return the labels that are names; a file of the user may label another activation so."""
    user_values = []
    for table in tables.values():
        user_values += table.values
    return [
        standing.label
        for standing in scoreboard.standings
        if not standing.own or standing.label in user_values
    ]
