"""``actlab study plan | run | show | report | wandb FILE``: plan, run and compare the runs of a study file."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from actlab.cli import estimates, study_output
from actlab.cli.loggers import logger_factory
from actlab.engines import stages
from actlab.engines.checking import check
from actlab.engines.preparation import helper_for
from actlab.engines.running import Engine, ignored, run
from actlab.errors import ActlabError, Parser
from actlab.studies import schema
from actlab.studies.folders import RunFolder
from actlab.studies.groups import groups
from actlab.studies.plan import MAX_STACK, Run, Study
from actlab.studies.reading import load
from actlab.studies.renaming import former_in

ENGINES = ("auto", "sequential")
W_AND_B = "actlab.reports.wandb.RunLogger"


COMMANDS = {
    "plan": "list the runs; import nothing that the study names, except with --time",
    "run": "train unfinished runs, then print the table; exit with 1 if runs or probes failed",
    "show": "print the table: medians over seeds, intervals, published values",
    "report": "draw the figures with the published curves",
    "wandb": "create a Weights & Biases workspace and report of logged runs",
    "schema": "print the JSON schema of study files, for editors",
}


EXAMPLES = {
    "plan": [
        "actlab study plan gelu_mnist_classifier",
        "actlab study plan mine.yaml --time --set data.dataset=FOLDER",
    ],
    "run": [
        "actlab study run demo --report",
        "actlab study run demo --activation ./my_unit.py:MyUnit",
        "actlab study run gelu_mnist_classifier --smoke",
        "actlab study run gelu_mnist_classifier --set data.dataset=FOLDER",
        "actlab study run mine.yaml --set 'model.optimizer.lr=[1e-3, 1e-4]' --set seeds=3",
    ],
    "show": [
        "actlab study show demo",
        "actlab study show demo --csv > values.csv",
        "actlab study show demo --latex",
    ],
    "report": [
        "actlab study report demo --html",
        "actlab study report demo --paper 1 --font serif",
        "actlab study report gelu_mnist_classifier --set data.dataset=FOLDER --stage choose",
    ],
    "wandb": ["actlab study wandb demo --entity ME --project actlab"],
    "schema": ["actlab study schema > schema.json"],
}


def parser() -> Parser:
    """Return the argument parser of ``actlab study``."""
    top = Parser(prog="actlab study", description="Plan, run and compare the runs of a study file.")
    commands = top.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    subs = {
        name: commands.add_parser(name, help=text, description=text, examples=EXAMPLES[name])
        for name, text in COMMANDS.items()
    }
    for name in ("plan", "run", "show", "report", "wandb"):
        _add_study(subs[name])
    subs["plan"].add_argument("--time", action="store_true", help="estimate the time from timed updates")
    subs["plan"].add_argument(
        "--detect",
        type=float,
        metavar="SIZE",
        help="how many seeds a difference of this size needs, by the spread of the runs so far; in points if "
        "the table is in percent, else in the metric's unit",
    )
    _add_run_options(subs["run"])
    form = subs["show"].add_mutually_exclusive_group()
    form.add_argument("--json", action="store_const", dest="form", const="json", help="machine-readable")
    form.add_argument("--csv", action="store_const", dest="form", const="csv", help="every run's values")
    form.add_argument("--latex", action="store_const", dest="form", const="latex", help="tables for a paper")
    subs["report"].add_argument("--html", action="store_true", help="also write an HTML page, report.html")
    study_output.add_paper_options(subs["report"])
    subs["wandb"].add_argument("--entity", default="", help="user or team; default: the account's own")
    subs["wandb"].add_argument("--project", default="actlab", help="where the runs are; default: actlab")
    return top


def _add_study(sub: ArgumentParser) -> None:
    """Add the arguments that select a study and its runs."""
    sub.add_argument("file", metavar="FILE", help="a study file, or the name of a study that ships with actlab")
    sub.add_argument("--smoke", action="store_true", help="run on samples, in seconds; writes runs/FILE-smoke")
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a config key, a grid key (one value or a list) or seeds",
    )
    sub.add_argument(
        "--activation",
        action="append",
        default=[],
        metavar="NAME",
        dest="activations",
        help="add an activation to the grid: a name, package.module:Unit, ./file.py:Unit, "
        "'{name: elu, alpha: 0.5}'",
    )
    sub.add_argument(
        "--reference", metavar="NAME", help="the activation to test against and to which costs are relative"
    )
    sub.add_argument(
        "--seeds", metavar="N", help="number of seeds, or a range such as 5-19; finished runs of others stay"
    )
    sub.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    sub.add_argument("--stage", metavar="NAME", help="only this stage of the study; default: all open stages")


def _add_run_options(sub: ArgumentParser) -> None:
    sub.add_argument("--report", action="store_true", help="also draw the figures")
    sub.add_argument("--html", action="store_true", help="also draw the figures and write an HTML page")
    sub.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="auto: stack compatible runs, report the others",
    )
    sub.add_argument("--logger", metavar="CLASS", help="a Lightning logger for each run")
    sub.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="number of training processes, one thread each; default: one per core, 1 in short studies",
    )
    sub.add_argument(
        "--max-stack",
        type=int,
        default=MAX_STACK,
        metavar="R",
        help=f"maximum number of runs in a stack; default: {MAX_STACK}",
    )


def main(argv: Sequence[str]) -> int:
    """Run ``actlab study``.

    Returns:
        0, or 1 if ``run`` had failed runs or probes.

    Raises:
        ActlabError: for bad input.
    """
    args = parser().parse_args(argv)
    if args.command == "schema":
        print(schema.json_schema(), end="")
        return 0
    seeds = [] if args.seeds is None else [f"seeds={args.seeds}"]
    study = load(args.file, args.smoke, [*args.overrides, *seeds], args.activations, args.reference)
    for line in check(study) if args.command in ("plan", "run") else ():
        print(line)
    root = args.runs_dir / study.name
    check_names(root, args.command)
    if args.command == "plan":
        show_plan(study, root, args.time, args.stage)
        for line in () if args.detect is None else study_output.detection(study, root, args.stage, args.detect):
            print(line)
    elif args.command == "run":
        return run_and_show(study, root, args)
    elif args.command == "show":
        opened = study_output.load(study, root, args.stage)
        study_output.show(opened[-1], args.form)
        if line := ignored([run for one in opened for run in one.runs], root):
            print(f"note: {line}", file=sys.stderr)
    elif args.command == "wandb":
        study_output.dashboards(study_output.load(study, root, args.stage)[-1], args.entity, args.project)
    else:
        folder = study_output.folder_of(study, root, args.stage)
        paper = study_output.paper_of(args)
        opened = study_output.load(study, root, args.stage)
        study_output.report(opened, folder, args.html)
        if paper:
            study_output.draw_for_paper(opened[-1], folder, paper)
    return 0


def check_names(root: Path, command: str) -> None:
    """Print a note if finished runs have old names.

    Raises:
        ActlabError: if the command is ``run``, which would train them again under new names.
    """
    if former := former_in(root):
        remedy = f"rename them with `python -m actlab.studies.renaming {root}`"
        line = f"{len(former)} finished runs in {root} have names from before November 2026: {remedy}"
        if command == "run":
            raise ActlabError(f"{line}, or use another --runs-dir")
        print(f"note: {line}", file=sys.stderr)


def run_and_show(study: Study, root: Path, args: Namespace) -> int:
    """Train unfinished runs, print the table and write reports; return 1 if runs or probes failed."""
    if args.max_stack < 1:
        raise ActlabError(f"--max-stack {args.max_stack}: give a whole number from 1")
    loggers = logger_factory(args.logger, study, root)
    failed = run(study, root, Engine(args.engine == "auto", args.max_stack, loggers, args.jobs), args.stage)
    opened = study_output.load(study, root, args.stage)
    study_output.show(opened[-1])
    folder = study_output.folder_of(study, root, args.stage)
    if not (args.report or args.html):
        study_output.keep(opened, folder)
        return int(failed > 0)
    written = study_output.report(opened, folder, args.html)
    if args.logger == W_AND_B:
        study_output.publish(opened[-1], folder, written)
    return int(failed > 0)


def show_plan(study: Study, root: Path, timed: bool, only: str | None = None) -> None:
    """Print the runs with their states and the remaining work.

    Args:
        study: the study.
        root: the study's folder.
        timed: whether to time updates and estimate the remaining time.
        only: name of the only stage to list; None for all open stages.
    """
    ready = stages.opened(study, root) if only is None else stages.until(study, root, only)[-1:]
    runs = [r for stage in ready for r in stage.runs()]
    states = {r.id: state(RunFolder(root, r)) for r in runs}
    widest = max(map(len, states.values()))
    for r in runs:
        print(f"{states[r.id]:<{widest}}  {r.id}")
    todo = [r for r in runs if states[r.id] != "finished"]
    left = sum(r.epochs or 1 for r in todo)
    print(f"{study.name}: {len(runs)} runs, {len(todo)} not finished, {left} epochs of training left")
    for stage in study.stages[len(ready) :] if only is None else ():
        points = len(groups(ready[0]))
        print(f"then stage {stage.name}: {points} grid points at selected settings × {len(stage.seeds)} seeds")
    if only is None and (line := stages.unopened(study, root, ready)):
        print(line)
    if todo and timed:
        print(costs(ready[-1], todo))


def state(folder: RunFolder) -> str:
    """Return the state of a run: ``finished``, ``failed``, ``epoch 9 of 25`` or ``to run``."""
    if folder.finished:
        return "finished"
    if folder.failure:
        return "failed"
    last = folder.run.epochs
    return f"epoch {done}{f' of {last}' if last else ''}" if (done := folder.epochs) else "to run"


def costs(study: Study, todo: Sequence[Run]) -> str:
    """Time updates and return an estimate of the remaining time as text."""
    from actlab.engines.settings import quiet
    from actlab.reports.notes import duration

    try:
        with quiet(), helper_for(study) as helper:
            timing = estimates.measure(study, todo, helper, rounds=8)
    except estimates.NoEstimateError as reason:
        return str(reason)
    said = f"for updates only ({timing.updates} updates per epoch, timed just now)"
    return f"about {duration(timing.of(todo))} one by one, {said}"
