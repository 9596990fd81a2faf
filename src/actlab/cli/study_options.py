"""Options of the commands that read or run a study file."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from actlab.cli.loggers import NAMES
from actlab.engines.jobs import Shard
from actlab.errors import ActlabError
from actlab.studies.plan import MAX_STACK
from actlab.studies.reading import ACTIVATION_FORMS

if TYPE_CHECKING:
    from argparse import _ActionsContainer

    from actlab.reports.style import Paper


def add_study_options(sub: ArgumentParser) -> _ActionsContainer:
    """Add the options that name a study and change it; return their group."""
    sub.add_argument(
        "file", metavar="FILE", help="a study file, or the name of a bundled study"
    )
    comparison = sub.add_argument_group("what to compare")
    comparison.add_argument(
        "--smoke",
        action="store_true",
        help="run on samples, in seconds; writes DIR/FILE-smoke",
    )
    comparison.add_argument(
        # One option for every key, so that a command can repeat any difference from the
        # file
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="set a config key, a grid key (one value or a list) or seeds; repeatable",
    )
    return comparison


def add_comparison_options(sub: ArgumentParser) -> _ActionsContainer:
    """Add the options that name a study, change it, and change what it compares.

    Returns:
        their group.
    """
    # One group in the help: the study and its comparison
    comparison = add_study_options(sub)
    comparison.add_argument(
        "--activation",
        action="append",
        default=[],
        metavar="NAME",
        dest="activations",
        help=f"add an activation: {ACTIVATION_FORMS}; repeatable",
    )
    comparison.add_argument(
        "--reference",
        metavar="NAME",
        help="compare with this activation; default: the reference of the study",
    )
    comparison.add_argument(
        "--seeds",
        metavar="N",
        help="number of seeds, a range (5-19), or seeds per stage (choose=5,compare=5-19); default "
        "stage: the last. Finished runs of other seeds stay",
    )
    return comparison


def add_stage_option(group: _ActionsContainer) -> None:
    """Add the option that names a stage of the study."""
    group.add_argument(
        "--stage",
        metavar="NAME",
        help="use only this stage of the study; default: all open stages",
    )


def add_folder_option(group: _ActionsContainer, default: str = "runs") -> None:
    """Add the option that names the folder of studies."""
    group.add_argument(
        "--runs-dir",
        type=Path,
        default=Path(default),
        metavar="DIR",
        help=f"folder of the studies; default: {default}",
    )


def add_run_options(sub: ArgumentParser) -> None:
    """Add the options of how runs are trained, and of what is written and printed."""
    # Training on this machine
    training = sub.add_argument_group("training")
    training.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="number of training processes, one thread each; default: one per core, 1 in short "
        "studies",
    )
    training.add_argument(
        "--graphs",
        action=BooleanOptionalAction,
        help="replay updates on a GPU as CUDA graphs, and store this with the study; default: only "
        "on devices with proven graphs, so far none",
    )
    training.add_argument(
        "--max-stack",
        type=int,
        default=MAX_STACK,
        metavar="R",
        help=f"maximum number of runs in a stack; default: {MAX_STACK}",
    )

    # Training on several machines
    machines = sub.add_argument_group("several machines")
    machines.add_argument(
        "--wait",
        action="store_true",
        help="wait for runs of other processes, and train them if these end; for several machines "
        "that share DIR",
    )
    machines.add_argument(
        "--cluster",
        metavar="HOST:PORT",
        help="train on the nodes of a Ray cluster; auto: the cluster of this machine",
    )
    machines.add_argument(
        "--cpus",
        type=float,
        metavar="N",
        help="number of cores that a job reserves on a node; default: 1",
    )
    machines.add_argument(
        "--gpus",
        type=float,
        metavar="N",
        help="number of accelerators that a job reserves, such as 0.25; default: 0",
    )
    machines.add_argument(
        "--shard",
        type=shard,  # an error of it is one line
        metavar="I/N",
        help="train only jobs I, I+N, …, without locks; for N starts in a folder without locks",
    )

    # What is written and printed
    output = sub.add_argument_group("output")
    add_folder_option(output)
    output.add_argument("--report", action="store_true", help="also draw the figures")
    output.add_argument(
        "--html",
        action="store_true",
        help="also draw the figures, and write an HTML page",
    )
    output.add_argument(
        "--logger",
        metavar="NAME",
        help=f"log each run: {', '.join(NAMES)}, or the import path of a Lightning logger class",
    )
    output.add_argument(
        "--verbose",
        action="store_true",
        help="also print the best value so far and the latest run with its epoch",
    )


def shard(text: str) -> Shard:
    """Return a share of the jobs from ``I/N``."""
    index, slash, number = text.partition("/")

    # Shards count from 0
    if not (
        slash and index.isdecimal() and number.isdecimal() and int(index) < int(number)
    ):
        raise ActlabError(
            f"--shard: expected I/N with whole numbers, I from 0 to N-1, such as 0/4, got {text!r}."
        )
    return Shard(int(index), int(number))


def add_paper_options(sub: ArgumentParser) -> None:
    """Add the options for figures that are ready for a paper."""
    sub.add_argument(
        "--paper",
        type=int,
        choices=(1, 2),
        help="also write figures for a paper as PDF, 1 or 2 columns wide (3.25 or 6.75 inches), "
        "without title",
    )
    sub.add_argument(
        "--font",
        choices=("sans", "serif"),
        help="font of the figures of --paper; default: sans",
    )


def paper_of(args: Namespace) -> Paper | None:
    """Return the width and font of figures for a paper; None without ``--paper``."""
    if args.paper is None:
        # --font alone would change nothing
        if args.font:
            raise ActlabError(
                "--font requires --paper, because it is the font of paper figures. Add --paper 1 "
                "or --paper 2."
            )
        return None

    # Imported lazily: loads matplotlib
    from actlab.reports.style import Paper

    return Paper(args.paper, args.font or "sans")
