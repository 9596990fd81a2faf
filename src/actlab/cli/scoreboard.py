"""``actlab scoreboard``: train an activation on the tasks of the board, and say where it stands."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.analysis import board, study_table
from actlab.analysis.board import BoardTask, DataSet
from actlab.analysis.comparison import table_of
from actlab.analysis.study_table import StudyTable
from actlab.analysis.wording import duration, plural
from actlab.checks import configs
from actlab.cli import estimates
from actlab.engines.running import Engine, run
from actlab.engines.workers import Inline, Worker
from actlab.errors import ActlabError, Parser, unknown
from actlab.stages import opening
from actlab.storage.files import digest_of
from actlab.studies.folders import StudyFolder
from actlab.studies.plan import SMOKE_SUFFIX, Stage, Study
from actlab.studies.reading import ACTIVATION_FORMS, activation, load

COMPARED = "model.activation"
MINUTES = 45
_ROUNDS = 2  # of timed updates before the start
_SLACK = 1.2  # of the minutes that are advised, because the next estimate differs


def parser() -> Parser:
    """Return the argument parser of ``actlab scoreboard``."""
    tasks = board.board_file()["tasks"]
    command = Parser(
        prog="actlab scoreboard",
        description="Say where your activation stands on the board. It alone is trained, by the same "
        f"protocol, on the tasks {', '.join(tasks)}; the others come with actlab. Settings are chosen on the "
        "first data of a task and kept on its other data. What has no data or does not fit into the minutes is "
        "left out by name; docs/guide/board.md says how to get the data.",
        examples=[
            "actlab scoreboard --activation ./my_activation.py:MyActivation --data FOLDER",
            "actlab scoreboard --activation ./my_activation.py:MyActivation --tasks equation",
        ],
    )
    command.add_argument(
        "--activation",
        action="append",
        default=[],
        dest="activations",
        metavar="NAME",
        help=f"your activation: {ACTIVATION_FORMS}; without any the board is written as it comes with actlab",
    )
    command.add_argument("--tasks", default=",".join(tasks), metavar="NAMES", help="default: %(default)s")
    command.add_argument("--data", type=Path, metavar="FOLDER", help="folder with the data of the board")
    command.add_argument(
        "--minutes", type=float, default=MINUTES, help="that it may take; default: %(default)s"
    )
    command.add_argument("--smoke", action="store_true", help="train a little on samples; decides nothing")
    command.add_argument("--runs-dir", type=Path, default=Path("runs/scoreboard"), metavar="DIR")
    return command


def main(argv: Sequence[str]) -> int:
    """Run ``actlab scoreboard``; return 1 if runs failed."""
    args = parser().parse_args(argv)
    units, runs = [*map(activation, args.activations)], args.runs_dir
    if (reference := board.board_file()["reference"]) in units:
        raise ActlabError(f"--activation {reference}: it is what the board compares with; give another one")
    if not units:
        return show({}, runs)
    studies, left = planned(chosen(args.tasks), units, args.data, args.smoke)
    for line in left:
        print(line)
    start, limit = time.monotonic(), args.minutes * 60
    with Worker() as worker:  # one for all studies, which have the same activations
        for study in studies.values():
            worker.call(configs.check, study)
        seconds = timed([*studies.values()], runs, worker)
    cores, total = os.cpu_count() or 1, sum(seconds.values())
    idle = f"{duration(total / cores)} on {plural(cores, 'idle core')}"
    said = f"all tasks: about {duration(total)} one by one, {idle}"
    print(f"{said}; --minutes {args.minutes:g} allows {duration(limit)}", flush=True)
    if limit == 0:  # the estimate was all that was asked for
        return 0
    elapsed = time.monotonic() - start
    check_minutes(limit, {name: elapsed + seconds[of.name] / cores for name, of in studies.items()})
    from actlab.reports import output

    failed, late, tables = 0, list[str](), dict[tuple[str, str], StudyTable]()
    for name, study in studies.items():
        if time.monotonic() - start + seconds[study.name] / cores > limit:
            late.append(name)
            continue
        folder = StudyFolder(study, runs / study.name)
        failed += run(folder, Engine())
        loaded = opening.load(folder)
        for number, data in enumerate(_named(study, board.board_file()["tasks"][name]), 1):
            if number < len(loaded) and loaded[number].results:
                at = folder.path / study.stages[number].name
                output.write(loaded[: number + 1], table_of(loaded[number]), at, html=True)
                tables[name, data] = study_table.read(at / study_table.NAME, "start the same command again")
    if late:
        print(f"left out, because they do not fit into {duration(limit)}: {', '.join(late)}")
    if args.smoke:
        print(*board.smoke_lines(tables), sep="\n")
    elif tables:
        show(tables, runs)
    return int(failed > 0)


def check_minutes(limit: float, seconds: Mapping[str, float]) -> None:
    """Raise an ActlabError if none of the tasks, which take some ``seconds`` each, fits into a limit."""
    shortest = min(seconds, key=lambda name: seconds[name])
    if seconds[shortest] <= limit:
        return
    least = math.ceil(seconds[shortest] / 60)
    advised = math.ceil(_SLACK * seconds[shortest] / 60)
    raise ActlabError(
        f"--minutes {limit / 60:g}: expected at least {least}, for the shortest task alone. "
        f"Use --minutes {advised} --tasks {shortest}."
    )


def show(tables: Mapping[tuple[str, str], StudyTable], folder: Path) -> int:
    """Print where one's own activations stand, or all, and write the board; return 0."""
    from actlab.reports import board as report

    scores = board.scores(tables)
    print(*board.lines(scores), sep="\n")
    print(*report.write(scores, folder), sep="\n")
    return 0


def chosen(names: str) -> dict[str, BoardTask]:
    """Return the tasks that a value of ``--tasks`` names."""
    tasks = board.board_file()["tasks"]
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in tasks:
            raise unknown("task", name, tasks)
    return {name: tasks[name] for name in tasks if name in wanted}


def planned(
    tasks: Mapping[str, BoardTask], units: Sequence[Any], data: Path | None, smoke: bool = False
) -> tuple[dict[str, Study], list[str]]:
    """Return the studies of tasks whose data is there, and a line for each task or data set left out."""
    studies, left = {}, []
    for name, task in tasks.items():
        if smoke:  # on samples, and without further data
            studies[name] = planned_task(name, task, {}, units, data, smoke)
            continue
        missing = {of: line for of, d in board.data_of(task).items() if (line := lacking(d, data))}
        left += [f"left out: {name}, {of}: {line}" for of, line in missing.items()]
        if missing.keys().isdisjoint(task["data"]):
            further = {of: d for of, d in task.get("further", {}).items() if of not in missing}
            studies[name] = planned_task(name, task, further, units, data, smoke)
    if not studies:
        raise ActlabError("no task has its data: give the folder of the board's data with --data")
    return studies, left


def lacking(data: DataSet, folder: Path | None) -> str:
    """Return why a data set cannot be used; empty if it can."""
    if (name := data.get("file")) is None:
        return ""
    if folder is None or not (file := folder / name).exists():
        return f"{name} is not in the folder of --data" if folder else f"--data is missing, for {name}"
    if (right := data.get("sha256")) and (digest := digest_of(file)) != right:
        raise ActlabError(f"{file} is not the board's: its sha256 is {digest[:12]}…, not {right[:12]}…")
    return ""


def planned_task(
    name: str,
    task: BoardTask,
    further: Mapping[str, DataSet],
    units: Sequence[Any],
    data: Path | None,
    smoke: bool,
) -> Study:
    """Return the study of a task; further data sets are stages, at the settings chosen on the first."""

    def dataset(of: DataSet) -> dict[str, Any]:
        return {"data.dataset": str(data / of["file"])} if data and "file" in of and not smoke else {}

    (first,) = task["data"].values()
    settings = {COMPARED: [*units], **dataset(first)}
    study = load(task["study"], settings=settings, activations=units, reference=units[0], smoke=smoke)
    later = [
        Stage(stage_of(of), board.seeds_of(task, of), {**d.get("set", {}), **dataset(d)})
        for of, d in further.items()
    ]
    title = f"{task['title'].capitalize()}: {study.title}"
    named = f"{name}{SMOKE_SUFFIX}" if smoke else name
    return replace(study, name=named, title=title, stages=(*study.stages, *later), more_seeds="")


def stage_of(data: str) -> str:
    """Return the stage of a further data set."""
    return data.replace(" ", "-").lower()


def _named(study: Study, task: BoardTask) -> Iterator[str]:
    """Yield the names of the data sets of a study's stages after the first, in their order."""
    yield from task["data"]
    stages = {stage.name for stage in study.stages}
    yield from (of for of in task.get("further", {}) if stage_of(of) in stages)


def processor_time(worker: Worker | Inline) -> float:
    """Return the seconds of processor time that a worker has used, which other programs do not add to."""
    seconds: float = worker.call("time:process_time")
    return seconds


def timed(studies: Sequence[Study], runs: Path, worker: Worker | Inline) -> dict[str, float]:
    """Print and return how many seconds each study will take on an idle machine, from updates timed now."""
    times = dict[str, float]()
    for study in studies:
        begun = processor_time(worker)
        try:
            updates = estimates.remaining(StudyFolder(study, runs / study.name), worker, _ROUNDS)
        except estimates.NoEstimateError as reason:
            print(f"{study.name}: {reason}")
        else:
            # All else takes about twice as long as trying and timing the updates here.
            taken = max(0.0, processor_time(worker) - begun)  # a worker that ended begins from 0
            times[study.name] = updates + 2 * taken
            print(f"{study.name}: about {duration(times[study.name])}")
    mean = sum(times.values()) / max(1, len(times))
    if unknown := [study.name for study in studies if study.name not in times]:
        print(f"not timed, counted as the mean of the others: {', '.join(unknown)}")
    return {study.name: times.get(study.name, mean) for study in studies}
