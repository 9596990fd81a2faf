"""``actlab study plan | run | status | show | report | clean FILE``: the runs of a study file."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from actlab.analysis.comparison import table_of, too_few_seeds
from actlab.cli import (
    study_new,
    study_options,
    study_output,
    study_verdicts,
    study_wandb,
)
from actlab.cli.loggers import NAMES, logger_factory, unlogged
from actlab.cli.parser import Parser
from actlab.cli.study_clean import clean
from actlab.cli.study_state import show_plan, show_status
from actlab.engines.ignored_runs import ignored
from actlab.engines.running import Engine, check, run
from actlab.engines.workers import Worker
from actlab.errors import ActlabError
from actlab.stages import opening
from actlab.storage.resources import names_in
from actlab.studies import locks, schema
from actlab.studies.reading import activation, load
from actlab.studies.study_folder import StudyFolder

if TYPE_CHECKING:
    from actlab.analysis.results import Results
    from actlab.engines.cluster import Cluster

COMMANDS = {
    "new": "Write a study file with a comment on each key.",
    "plan": "List the runs of a study and check its settings, without training. The command "
    "imports third-party code only with --time, or for a number in --set.",
    "status": "Count the runs by state, and print the next command.",
    "run": "Train the unfinished runs of a study, then print the verdict and the table. Repeat the "
    "command to resume it. The exit code is 1 if runs or probes failed.",
    "show": "Print the table of a study: medians over seeds, intervals, verdicts and published "
    "values.",
    "report": "Draw the figures of a study, with the published curves.",
    "clean": "List the files that the folder of a study no longer needs, and delete them with "
    "--yes. These are files of killed processes, and runs of other seeds, settings, data or code.",
    "wandb": "Create a Weights & Biases workspace and report of logged runs.",
    "schema": "Print the JSON schema of study files, for editors.",
}
EXAMPLES = {
    "new": [
        "actlab study new mine.yaml",
        "actlab study new mine.yaml --like gelu_mnist_noise",
    ],
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
    top = Parser(
        prog="actlab study",
        description="Plan, train and compare the many runs that one study file describes.",
    )
    commands = top.add_subparsers(
        title="commands", dest="command", required=True, metavar="|".join(COMMANDS)
    )
    subs = {}
    for name, text in COMMANDS.items():
        # The help shows the first sentence
        summary, _, _ = text.partition(". ")
        subs[name] = commands.add_parser(
            name, help=summary.rstrip("."), description=text, examples=EXAMPLES[name]
        )

    # What is read
    subs["new"].add_argument(
        "path",
        metavar="PATH",
        type=Path,
        help="the file to write; it is never overwritten",
    )
    subs["new"].add_argument(
        "--like",
        metavar="STUDY",
        choices=names_in(study_new.STUDIES),
        help="bundled study to copy; default: a small study on samples",
    )
    for name in ("plan", "status", "run", "show", "report", "clean", "wandb"):
        comparison = study_options.add_comparison_options(subs[name])
        if name != "clean":  # the runs of all stages belong to the study
            study_options.add_stage_option(comparison)
        if name != "run":
            study_options.add_folder_option(subs[name])

    # What is done
    subs["plan"].add_argument(
        "--time",
        action="store_true",
        help="also time some updates, and estimate the training time",
    )
    subs["plan"].add_argument(
        "--detect",
        type=float,
        metavar="SIZE",
        help="print the number of seeds that detect a difference of this size, from the spread of "
        "the finished runs; in points if the table is in percent, else in the metric's unit",
    )
    study_options.add_run_options(subs["run"])
    form = subs["show"].add_mutually_exclusive_group()
    form.add_argument(
        "--json",
        action="store_const",
        dest="form",
        const="json",
        help="print the table as JSON",
    )
    form.add_argument(
        "--csv",
        action="store_const",
        dest="form",
        const="csv",
        help="print the values of each run as CSV",
    )
    form.add_argument(
        "--latex",
        action="store_const",
        dest="form",
        const="latex",
        help="print the table as LaTeX",
    )
    subs["clean"].add_argument(
        "--all", action="store_true", help="include the whole folder of the study"
    )
    subs["clean"].add_argument(
        "--yes", action="store_true", help="delete the listed files"
    )
    subs["report"].add_argument(
        "--html", action="store_true", help="also write an HTML page, report.html"
    )
    study_options.add_paper_options(subs["report"])
    subs["wandb"].add_argument(
        "--entity", default="", help="W&B user or team; default: the account's own"
    )
    project = os.environ.get("WANDB_PROJECT", "actlab")
    subs["wandb"].add_argument(
        "--project",
        default=project,
        help=f"W&B project of the runs; default: {project}",
    )
    return top


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
    """Run a command that reads a study file; return its exit code."""
    # Only `run` has an exit code of its own
    folder = _folder_of(args)
    if args.command == "plan":
        _plan(folder, args)
    elif args.command == "status":
        show_status(
            folder, shlex.join(["actlab", "study", "run", *argv[1:]]), args.stage
        )
    elif args.command == "run":
        return run_and_show(folder, args, argv)
    elif args.command == "clean":
        clean(folder, args.all, args.yes, shlex.join(["actlab", "study", *argv]))
    elif args.command == "wandb":
        results = loaded(folder, args.stage)[-1]
        study_wandb.dashboards(results, args.entity, args.project)
    elif args.command == "report":
        _report(folder, args)
    else:
        _show(folder, args)
    return 0


def _folder_of(args: Namespace) -> StudyFolder:
    """Return the study that the arguments name and change, with its folder."""
    # Read the changes
    settings = [*args.overrides]
    if args.seeds is not None:
        # As the last item, so that --seeds overrides --set seeds=…
        settings.append(f"seeds={args.seeds}")

    # A word may be YAML, a path or a name
    added = [activation(text) for text in args.activations]
    reference = args.reference and activation(args.reference)

    # Read the study
    study = load(args.file, args.smoke, settings, added, reference)
    return StudyFolder(study, args.runs_dir / study.name)


def _plan(folder: StudyFolder, args: Namespace) -> None:
    """Print the plan of a study, what its check finds, and the seeds that it needs."""
    # Print the runs, and what would go wrong
    show_plan(folder, args.time, args.stage)
    with Worker() as worker:
        for line in check(folder.study, worker):
            print(line)

    # Print how many seeds are needed
    warning = too_few_seeds(opening.designed(folder))
    if warning:
        print(warning)
    if args.detect is not None:
        for line in study_verdicts.detection(folder, args.stage, args.detect):
            print(line)


def _report(folder: StudyFolder, args: Namespace) -> None:
    """Write the figures of a study."""
    # Read the results
    stages = loaded(folder, args.stage)
    path = study_output.folder_of(folder, args.stage)
    paper = study_options.paper_of(args)
    results = stages[-1]
    table = table_of(results)

    # Write table, figures and page
    study_verdicts.record_look(results.folder, table)
    for written in study_output.report(stages, table, path, args.html):
        print(written)
    if paper:
        study_output.draw_for_paper(results, path, paper)


def _show(folder: StudyFolder, args: Namespace) -> None:
    """Print the table of a study."""
    stages = loaded(folder, args.stage)
    if args.form == "csv":
        study_output.show_values(stages[-1])
    else:
        study_output.show(table_of(stages[-1]), args.form)

    # On standard error, because the table may be piped into a file
    ignored_runs = ignored([stage.folder for stage in stages])
    if ignored_runs:
        print(f"note: {ignored_runs}", file=sys.stderr)


def loaded(folder: StudyFolder, stage: str | None) -> list[Results]:
    """Return the results of the open stages, of which the last is shown.

    Raises:
        ActlabError: the stage is a search, whose trials have no table, or nothing is compared.
    """
    # Trials compare nothing
    if _searches(folder, stage):
        raise ActlabError(
            f"--stage: expected a stage that compares, got the search {stage!r}, whose trials a "
            "run prints. Remove --stage."
        )
    stages = opening.load(folder, stage)
    if stages[-1].study.reference == "":
        # As trials have it; 0.0 and False are references.
        raise ActlabError(
            f"there are no results to compare in {folder.path}. Run the study again if trials have "
            "not ended. Search other values if all trials failed or diverged."
        )
    return stages


def _searches(folder: StudyFolder, name: str | None) -> bool:
    """Return whether a stage of a name is a search."""
    return any(
        stage.name == name and stage.search is not None for stage in folder.study.stages
    )


def run_and_show(folder: StudyFolder, args: Namespace, argv: Sequence[str]) -> int:
    """Train unfinished runs, print the table and write reports.

    Returns:
        1 if runs or probes failed, else 0.
    """
    # Reject mistakes before the first run
    if args.max_stack < 1:
        raise ActlabError(
            f"--max-stack: expected a positive whole number, got {args.max_stack}."
        )
    loggers = logger_factory(args.logger, folder)

    # Train the unfinished runs
    with _machines(args) as cluster:
        # Several machines need locks that work between them
        if args.wait or cluster:
            locks.check(folder.path)
        engine = Engine(
            max_stack=args.max_stack,
            logger=loggers,
            jobs=args.jobs,
            wait=args.wait,
            cluster=cluster,
            shard=args.shard,
            graphs=args.graphs,
            verbose=args.verbose,
        )
        failed = run(folder, engine, args.stage)
    exit_code = 1 if failed else 0

    # A search has no table, and its trials have been printed; a shard has a part of the
    # runs
    if _searches(folder, args.stage):
        print("the same command without --stage compares what the search selected")
        return exit_code
    if args.shard is not None:
        print(
            "when all shards have ended, start the study without --shard for costs and tables"
        )
        return exit_code

    # Processes of one study may end at the same time: one writes, the others wait
    with locks.alone(folder.path, locks.WRITING):
        # Print the verdict and the table
        stages = loaded(folder, args.stage)
        results = stages[-1]
        table = table_of(results)
        # Recorded before it is printed, so that no verdict is seen without a record
        study_verdicts.record_look(results.folder, table)
        study_output.show_summary(table, results)
        # Runs of an earlier start may have no log
        if loggers:
            note = unlogged([stage.folder for stage in stages])
            if note:
                print(f"\nnote: {note}")

        # Write table and figures
        path = study_output.folder_of(folder, args.stage)
        if args.report or args.html:
            written = study_output.report(stages, table, path, args.html)
            # W&B shows the figures, too
            if loggers and loggers.path == NAMES["wandb"]:
                study_wandb.publish(results, table, path, written)
        else:
            study_output.store(stages, table, path)
        study_output.show_files(path)

        # Suggest a number of seeds for activations of the command line, if the user did
        # not state seeds, in a study whose seeds are not divided between stages, and if
        # no run failed
        if (
            args.activations
            and args.seeds is None
            and not folder.study.stages
            and not failed
        ):
            study_verdicts.suggest(results, table, ["study", *argv], args.reference)
    return exit_code


def _machines(args: Namespace) -> AbstractContextManager[Cluster | None]:
    """Return a block in which a Ray cluster is connected, if the arguments name one."""
    # Only stated options, so that `Options` has the defaults
    reserved = {}
    for name in ("cpus", "gpus"):
        value = getattr(args, name)
        if value is not None:
            reserved[name] = value

    # Without a cluster, this machine trains
    if args.cluster is None:
        if reserved:
            option = next(iter(reserved))
            raise ActlabError(
                f"--{option} requires --cluster. Add --cluster HOST:PORT."
            )
        return nullcontext()

    # Imported lazily, because it loads torch.
    from actlab.engines.cluster import (
        Options,
        connected,
    )

    return connected(Options(args.cluster, **reserved))
