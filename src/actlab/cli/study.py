"""``actlab study plan | run | status | show | report | clean FILE``: the runs of a study file."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from actlab.analysis.comparison import table_of, too_few_seeds
from actlab.cli import study_new, study_output
from actlab.cli.loggers import NAMES, logger_factory, unlogged
from actlab.cli.parser import Parser
from actlab.cli.study_clean import clean
from actlab.cli.study_state import show_plan, show_status
from actlab.engines.jobs import Shard
from actlab.engines.running import Engine, check, ignored, run
from actlab.engines.workers import Worker
from actlab.errors import ActlabError
from actlab.stages import opening
from actlab.storage.resources import names_in
from actlab.studies import locks, schema
from actlab.studies.plan import MAX_STACK
from actlab.studies.reading import ACTIVATION_FORMS, activation, load
from actlab.studies.study_folder import StudyFolder

if TYPE_CHECKING:
    from actlab.analysis.results import Results
    from actlab.engines.cluster import Cluster

COMMANDS = {
    "new": "write a study file with a comment on each key",
    "plan": "list the runs; import no third-party code, except with --time or for a number in --set",
    "status": "count the runs by state, and say what to do next",
    "run": "train unfinished runs, then print the table; exit with 1 if runs or probes failed",
    "show": "print the table: medians over seeds, intervals, published values",
    "report": "draw the figures with the published curves",
    "clean": "list what the study's folder no longer needs: files of killed processes, runs that this plan "
    "lacks (other seeds, settings, data or code); delete it with --yes",
    "wandb": "create a Weights & Biases workspace and report of logged runs",
    "schema": "print the JSON schema of study files, for editors",
}
EXAMPLES = {
    "new": ["actlab study new mine.yaml", "actlab study new mine.yaml --like gelu_mnist_noise"],
    "plan": [
        "actlab study plan gelu_mnist_classifier",
        "actlab study plan mine.yaml --time --set data.dataset=FOLDER",
    ],
    "status": ["actlab study status demo", "actlab study status demo --smoke"],
    "run": [
        "actlab study run demo --report",
        "actlab study run demo --activation ./my_activation.py:MyActivation",
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
    "clean": ["actlab study clean demo", "actlab study clean demo --yes"],
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
    subs["new"].add_argument(
        "path", metavar="PATH", type=Path, help="the file to write; it is never overwritten"
    )
    subs["new"].add_argument(
        "--like",
        metavar="STUDY",
        choices=names_in(study_new.STUDIES),
        help="copy a study that ships with actlab; default: a small study on samples",
    )
    for name in ("plan", "status", "run", "show", "report", "clean", "wandb"):
        _add_study(subs[name])
        if name not in ("clean", "run"):  # the runs of all stages belong to the study
            _add_stage(subs[name])
    subs["plan"].add_argument(
        "--time", action="store_true", help="estimate the time from timed updates"
    )
    subs["plan"].add_argument(
        "--detect",
        type=float,
        metavar="SIZE",
        help="how many seeds a difference of this size needs, by the spread of the runs so far; in points if "
        "the table is in percent, else in the metric's unit",
    )
    add_run_options(subs["run"])
    form = subs["show"].add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_const", dest="form", const="json", help="machine-readable"
    )
    form.add_argument(
        "--csv", action="store_const", dest="form", const="csv", help="every run's values"
    )
    form.add_argument(
        "--latex", action="store_const", dest="form", const="latex", help="tables for a paper"
    )
    subs["clean"].add_argument("--all", action="store_true", help="the whole folder of the study")
    subs["clean"].add_argument("--yes", action="store_true", help="delete what is listed")
    subs["report"].add_argument(
        "--html", action="store_true", help="also write an HTML page, report.html"
    )
    study_output.add_paper_options(subs["report"])
    subs["wandb"].add_argument(
        "--entity", default="", help="user or team; default: the account's own"
    )
    project = os.environ.get("WANDB_PROJECT", "actlab")
    subs["wandb"].add_argument(
        "--project", default=project, help=f"where the runs are; default: {project}"
    )
    return top


def _add_study(sub: ArgumentParser) -> None:
    study_output.add_study_options(sub)
    sub.add_argument(
        "--activation",
        action="append",
        default=[],
        metavar="NAME",
        dest="activations",
        help=f"add an activation to the grid: {ACTIVATION_FORMS}",
    )
    sub.add_argument(
        "--reference",
        metavar="NAME",
        help="the activation to test against and to which costs are relative",
    )
    sub.add_argument(
        "--seeds",
        metavar="N",
        help="number of seeds, or a range such as 5-19; of the last stage, or by stage: choose=5,compare=5-19; "
        "finished runs of others stay",
    )


def _add_stage(sub: ArgumentParser) -> None:
    sub.add_argument(
        "--stage", metavar="NAME", help="only this stage of the study; default: all open stages"
    )


def add_run_options(sub: ArgumentParser) -> None:
    """Add the options of what is trained, how, and what is written afterwards."""
    _add_stage(sub)
    sub.add_argument("--report", action="store_true", help="also draw the figures")
    sub.add_argument(
        "--html", action="store_true", help="also draw the figures and write an HTML page"
    )
    sub.add_argument(
        "--logger",
        metavar="NAME",
        help=f"a logger for each run: {', '.join(NAMES)} or the import path of a Lightning logger class",
    )
    sub.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="number of training processes, one thread each; default: one per core, 1 in short studies",
    )
    sub.add_argument(
        "--graphs",
        action=BooleanOptionalAction,
        help="replay updates on a GPU as CUDA graphs, and store this with the study; default: only on devices "
        "that have shown them to be right, so far none",
    )
    sub.add_argument(
        "--wait",
        action="store_true",
        help="wait for runs that other processes train, and train them if these end: for several machines that "
        "share DIR",
    )
    sub.add_argument(
        "--max-stack",
        type=int,
        default=MAX_STACK,
        metavar="R",
        help=f"maximum number of runs in a stack; default: {MAX_STACK}",
    )
    sub.add_argument(
        "--cluster",
        metavar="HOST:PORT",
        help="train on the nodes of a Ray cluster; auto: that of this machine",
    )
    sub.add_argument(
        "--cpus", type=float, metavar="N", help="cores that a job reserves on a node; default: 1"
    )
    sub.add_argument(
        "--gpus",
        type=float,
        metavar="N",
        help="accelerators that a job reserves, such as 0.25; default: 0",
    )
    sub.add_argument(
        "--shard",
        type=shard,
        metavar="I/N",
        help="train jobs I, I+N, … only, without locks: for N starts on a folder where locks do not work",
    )


def shard(text: str) -> Shard:
    """Return a share of the jobs from ``I/N``."""
    index, slash, number = text.partition("/")
    if not (slash and index.isdecimal() and number.isdecimal() and int(index) < int(number)):
        raise ActlabError(
            f"--shard {text}: give I/N with whole numbers, I from 0 to N-1, such as 0/4"
        )
    return Shard(int(index), int(number))


def main(argv: Sequence[str]) -> int:
    """Run ``actlab study``; return 1 if ``run`` had failed runs or probes."""
    args = parser().parse_args(argv)
    if args.command == "schema":
        print(schema.json_schema(), end="")
    elif args.command == "new":
        study_new.write(args.path, args.like)
    else:
        return _run(args, argv)
    return 0


def _run(args: Namespace, argv: Sequence[str]) -> int:
    seeds = [] if args.seeds is None else [f"seeds={args.seeds}"]
    added, reference = (
        [*map(activation, args.activations)],
        args.reference and activation(args.reference),
    )
    study = load(args.file, args.smoke, [*args.overrides, *seeds], added, reference)
    folder = StudyFolder(study, args.runs_dir / study.name)
    if args.command == "plan":
        show_plan(folder, args.time, args.stage)
        with Worker() as worker:
            for line in check(study, worker):
                print(line)
        if line := too_few_seeds(opening.designed(folder)):
            print(line)
        for line in (
            () if args.detect is None else study_output.detection(folder, args.stage, args.detect)
        ):
            print(line)
    elif args.command == "status":
        show_status(folder, shlex.join(["actlab", "study", "run", *argv[1:]]), args.stage)
    elif args.command == "run":
        return run_and_show(folder, args, argv)
    elif args.command == "clean":
        clean(folder, args.all, args.yes, shlex.join(["actlab", "study", *argv]))
    elif args.command == "wandb":
        study_output.dashboards(loaded(folder, args.stage)[-1], args.entity, args.project)
    elif args.command == "report":
        opened, path = loaded(folder, args.stage), study_output.folder_of(folder, args.stage)
        paper = study_output.paper_of(args)
        table = table_of(opened[-1])
        study_output.record_look(opened[-1].folder, table)
        study_output.report(opened, table, path, args.html)
        if paper:
            study_output.draw_for_paper(opened[-1], path, paper)
    else:
        opened = loaded(folder, args.stage)
        if args.form == "csv":
            study_output.show_values(opened[-1])
        else:
            study_output.show(table_of(opened[-1]), args.form)
        if line := ignored([stage.folder for stage in opened]):
            print(f"note: {line}", file=sys.stderr)
    return 0


def loaded(folder: StudyFolder, stage: str | None) -> list[Results]:
    """Return the results of the open stages, of which the last is shown; trials of a search have no table."""
    if _searches(folder, stage):
        raise ActlabError(
            f"--stage {stage}: expected a stage that compares, got a search. A run prints its trials, and "
            "the page of the comparison lists them. Remove --stage."
        )
    opened = opening.load(folder, stage)
    if opened[-1].study.reference == "":  # as trials have it; 0.0 and False are references
        raise ActlabError(
            f"nothing is compared in {folder.path}: trials of the search have not ended, so run the study "
            "again, or all have failed or diverged, so search other values"
        )
    return opened


def _searches(folder: StudyFolder, stage: str | None) -> bool:
    return any(of.search is not None and of.name == stage for of in folder.study.stages)


def run_and_show(folder: StudyFolder, args: Namespace, argv: Sequence[str]) -> int:
    """Train unfinished runs, print the table and write reports; return 1 if runs or probes failed."""
    from actlab.reports import output  # imported lazily: loads templates and figures

    if args.max_stack < 1:
        raise ActlabError(f"--max-stack {args.max_stack}: give a whole number from 1")
    loggers = logger_factory(args.logger, folder)
    reserved = {
        name: value for name in ("cpus", "gpus") if (value := getattr(args, name)) is not None
    }
    machines: AbstractContextManager[Cluster | None] = nullcontext()
    if args.cluster is not None:
        from actlab.engines.cluster import Options, connected  # imported lazily: loads torch

        machines = connected(Options(args.cluster, **reserved))
    elif reserved:
        raise ActlabError(f"--{next(iter(reserved))} is an option of --cluster: give --cluster too")
    with machines as cluster:
        if args.wait or cluster:
            locks.check(folder.path)
        engine = Engine(
            *(args.max_stack, loggers, args.jobs, args.wait),
            cluster=cluster,
            shard=args.shard,
            graphs=args.graphs,
        )
        failed = run(folder, engine, args.stage)
    if _searches(folder, args.stage):  # whose trials have been printed
        print("the same command without --stage compares what the search selected")
        return int(failed > 0)
    if args.shard is not None:
        print("costs and tables: start the study without --shard when all shards have ended")
        return int(failed > 0)
    with locks.alone(folder.path, locks.WRITING):
        opened = loaded(folder, args.stage)
        table = table_of(opened[-1])
        study_output.record_look(opened[-1].folder, table)
        study_output.show(table)
        if loggers and (line := unlogged([stage.folder for stage in opened])):
            print(f"\nnote: {line}")
        path = study_output.folder_of(folder, args.stage)
        if args.report or args.html:
            written = study_output.report(opened, table, path, args.html)
            if loggers and loggers.path == NAMES["wandb"]:
                study_output.publish(opened[-1], table, path, written)
        else:
            output.keep(opened, table, path)
        if args.activations and args.seeds is None and not folder.study.stages and not failed:
            study_output.suggest(opened[-1], table, ["study", *argv], args.reference)
    return int(failed > 0)
