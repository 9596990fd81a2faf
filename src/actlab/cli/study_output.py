"""Output of a study: table, figures, HTML page, and uploads to Weights & Biases."""

from __future__ import annotations

import math
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from actlab.analysis import looks, verdict
from actlab.analysis.comparison import table_of
from actlab.analysis.results import Results
from actlab.analysis.study_table import StudyTable
from actlab.analysis.wording import duration
from actlab.config.labels import printer
from actlab.errors import ActlabError
from actlab.errors.imports import needing
from actlab.stages import opening
from actlab.studies.study_folder import StudyFolder

if TYPE_CHECKING:
    from actlab.reports.style import Paper


def detection(folder: StudyFolder, stage: str | None, size: float) -> list[str]:
    """Return how many pairs a difference needs, a line for each verdict; see `verdict.needs`."""
    if not 0 < size < math.inf:
        raise ActlabError(f"--detect {size}: give a size above 0, such as 0.2")
    lines = verdict.needs(table_of(opening.load(folder, stage)[-1]), size)
    if not lines:
        raise ActlabError(
            "--detect needs two finished pairs of runs with the reference, and a ranked test quantity: run the "
            "study with a few seeds first"
        )
    return lines


def suggest(
    results: Results, table: StudyTable, words: Sequence[str], reference: str | None
) -> None:
    """Print the command that trains enough seeds for a verdict, with its time, where there are too few."""
    if not table.ended or not any(
        comparison.outcome == "too few pairs" for comparison in table.verdicts
    ):
        return
    if (needed := verdict.advised(table)) is None:
        return

    # Without a --reference, GELU is suggested if the study compares it.
    compared = {run.spelling for run in results.runs if isinstance(run.spelling, str)}
    usual = [] if reference is not None or "gelu" not in compared else ["--reference", "gelu"]
    seconds = sum(result.get("seconds", 0.0) for result in results.results.values()) / table.ended
    missing = table.planned / len(table.seeds) * needed - table.ended
    command = shlex.join(["actlab", *words, "--seeds", str(needed), *usual])
    print(
        f"\nSeeds that show the margin, about {duration(seconds * missing)} of training:\n  {command}"
    )


def record_look(folder: StudyFolder, table: StudyTable) -> None:
    """Record the verdicts that are about to be shown; see `actlab.analysis.looks`."""
    looks.record(folder, [comparison.outcome for comparison in table.verdicts])


def show(table: StudyTable, form: str | None = None) -> None:
    """Print the table as text (default), ``json`` or ``latex``."""
    from actlab.reports import table_files, terminal

    if form is None:
        terminal.print_table(table, sys.stdout)
    elif form == "json":
        print(table.to_json(), end="")
    else:
        print(table_files.to_latex(table), end="")


def show_values(results: Results) -> None:
    """Print the values of every run as CSV."""
    from actlab.reports import table_files

    print(table_files.to_csv(results), end="")


def add_study_options(sub: ArgumentParser) -> None:
    """Add the options that name a study and change it."""
    sub.add_argument(
        "file", metavar="FILE", help="a study file, or the name of a study that ships with actlab"
    )
    sub.add_argument(
        "--smoke", action="store_true", help="run on samples, in seconds; writes runs/FILE-smoke"
    )
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a config key, a grid key (one value or a list) or seeds",
    )
    sub.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs"
    )


def add_paper_options(sub: ArgumentParser) -> None:
    """Add the options for figures that are ready for a paper."""
    sub.add_argument(
        "--paper",
        type=int,
        choices=(1, 2),
        help="also write figures as PDF for a paper, 1 or 2 columns wide (3.25 or 6.75 inches), without title",
    )
    sub.add_argument("--font", choices=("sans", "serif"), help="of --paper; default: sans")


def paper_of(args: Namespace) -> Paper | None:
    """Return the width and font that the options of `add_paper_options` give; None without ``--paper``."""
    if args.paper is None:
        if args.font:
            raise ActlabError(
                f"--font {args.font} is of figures for a paper: give --paper 1 or --paper 2 too"
            )
        return None
    from actlab.reports.style import Paper

    return Paper(args.paper, "serif" if args.font == "serif" else "sans")


def draw_for_paper(shown: Results, folder: Path, paper: Paper) -> None:
    """Write each figure of a study as PDF for a paper; print its path and its caption, which is not drawn."""
    from actlab.reports import figures, plots, style

    captions = {plot.name: plot.caption for plot in plots.read(shown)}
    for name, figure in figures.draw(shown.with_rows(), paper).items():
        for path in style.save(figure, folder / "figures" / name, paper):
            print(path)
        print(f"  caption: {captions[name]}")


def publish(shown: Results, table: StudyTable, folder: Path, written: Iterable[Path]) -> None:
    """Log the table, the PNG figures among the written files, and curves of the activations to W&B."""
    from actlab.reports import style, tables, units, wandb

    activations = [run.spelling for run in shown.runs if run.spelling]
    text = printer(activations)
    figure = units.plot_compared({text(unit): unit for unit in activations})
    picture = style.write(figure, folder / "figures" / "units.png", dpi=units.DPI)
    pictures = [*(path for path in written if path.suffix == ".png"), picture]
    stage = "" if folder == shown.root else folder.name
    wandb.publish(shown.study, folder, pictures, *tables.grid(table), stage=stage)


def dashboards(shown: Results, entity: str, project: str) -> None:
    """Create a W&B workspace and report of a study; without an account, print what to do."""
    from actlab.reports import table_files
    from actlab.reports.wandb import default_entity, mode

    with needing("wandb_workspaces", "workspaces", "`actlab study wandb`"):
        from actlab.reports import workspaces

    study = shown.study
    print(workspaces.description(study, entity, project))
    if mode() != "online":
        print(
            "Nothing was created, because no W&B account is set up: run `wandb login` and repeat the command."
        )
        if any(shown.root.glob("wandb/offline-run-*")):
            print(
                f"Runs that were logged offline: `wandb sync {shown.root}/wandb/offline-run-*` uploads them, "
                f"`wandb leet {shown.root}/wandb` shows them in the terminal."
            )
        return
    table = table_files.to_markdown(table_of(shown)) if shown.results else ""
    for address in workspaces.create(study, table, entity or default_entity(), project):
        print(address)


def folder_of(folder: StudyFolder, stage: str | None) -> Path:
    """Return the folder for table, figures and page; an earlier stage has its own subfolder."""
    stages = folder.study.stages
    last = stages[-1].name if stages else None
    return folder.path if stage in (None, last) else folder.path / str(stage)


def report(
    opened: Sequence[Results], table: StudyTable, folder: Path, html: bool = False
) -> list[Path]:
    """Write the table, the figures and, if ``html``, the page to a folder; print and return their paths."""
    from actlab.reports import output  # imported lazily: loads templates and figures

    written = output.write(opened, table, folder, html)
    for path in written:
        print(path)
    return written
