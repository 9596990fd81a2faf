"""Weights & Biases: the table and figures of a study, its workspace and its report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from actlab.analysis.comparison import table_of
from actlab.analysis.results import Results
from actlab.analysis.study_table import StudyTable
from actlab.config.labels import printer
from actlab.errors.imports import needing


def publish(
    results: Results, table: StudyTable, folder: Path, written: Iterable[Path]
) -> None:
    """Log the table of a study, its figures and curves of its activations to W&B.

    Args:
        results: the results of the study.
        table: its table.
        folder: folder of table and figures, of a stage or of the whole study.
        written: the files of the study, whose PNG figures are logged.
    """
    # Imported lazily: loads matplotlib and wandb
    from actlab.reports import activation_figures, style, tables, wandb

    # Draw the activations
    activations = [run.spelling for run in results.runs if run.spelling]
    write = printer(activations)
    figure = activation_figures.plot_compared(
        {write(activation): activation for activation in activations}
    )
    picture = style.write(
        figure, folder / "figures" / "units.png", dpi=activation_figures.DPI
    )

    # Log table and figures
    pictures = [path for path in written if path.suffix == ".png"]
    pictures.append(picture)
    # The names of an earlier stage get its name
    stage = "" if folder == results.root else folder.name
    head, body = tables.grid(table)
    wandb.publish(results.study, folder, pictures, head, body, stage=stage)


def dashboards(results: Results, entity: str, project: str) -> None:
    """Create a W&B workspace and report of a study; without an account, print what to do."""
    from actlab.reports import table_files
    from actlab.reports.wandb import default_entity, mode

    # The package comes with an extra
    with needing("wandb_workspaces", "workspaces", "`actlab study wandb`"):
        from actlab.reports import workspaces

    # Say what would be created, also without an account
    study = results.study
    root = results.root
    print(workspaces.description(study, entity, project))

    # Without an account, say how to set one up
    if mode() != "online":
        print(
            "Nothing was created, because no W&B account is set up: run `wandb login` and repeat "
            "the command."
        )
        if any(root.glob("wandb/offline-run-*")):
            print(
                f"Runs that were logged offline: `wandb sync {root}/wandb/offline-run-*` uploads "
                f"them, `wandb leet {root}/wandb` shows them in the terminal."
            )
        return

    # Create both, and print their addresses
    table = ""
    if results.results:
        table = table_files.to_markdown(table_of(results))
    for address in workspaces.create(study, table, entity or default_entity(), project):
        print(address)
