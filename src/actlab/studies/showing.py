"""What a study shows: its table, figures, page, and what Weights & Biases gets of it."""

from __future__ import annotations

import sys
from pathlib import Path

from actlab.analysis import results
from actlab.studies import stages
from actlab.studies.keys import get_dotted, label
from actlab.studies.plan import Study


def show(study: Study, root: Path, form: str | None = None) -> None:
    """Print the table of the last stage that has opened: for people, or as ``json`` or ``csv``."""
    from actlab.reports import tables

    loaded = results.load(stages.opened(study, root)[-1], root)
    if form is None:
        tables.print_table(loaded, sys.stdout)
    else:
        print((tables.to_json if form == "json" else tables.to_csv)(loaded), end="")


def publish(study: Study, root: Path) -> None:
    """Log the table, the figures and the curves of the compared units to W&B."""
    from actlab.reports import tables, units, wandb

    loaded = results.load(stages.opened(study, root)[-1], root)
    compared = {
        label(unit): unit for run in study.runs() if (unit := get_dotted(run.config, "model.activation"))
    }
    units.plot_compared(compared, root / "figures" / "units.png")
    wandb.publish(study, root, *tables.grid(loaded))


def dashboards(study: Study, root: Path, entity: str, project: str) -> None:
    """Create a W&B workspace and report of a study; without an account say what they would be, and how to."""
    from actlab.reports import tables, workspaces
    from actlab.reports.wandb import default_entity, mode

    print(workspaces.description(study, entity, project))
    if mode() != "online":
        print(
            "Nothing was created: there is no W&B account here. `wandb login`, then the same command again.\n"
            f"Runs that were logged offline: `wandb sync {root}/wandb/offline-run-*` uploads them, "
            f"`wandb leet {root}/wandb` shows them in the terminal."
        )
        return
    loaded = results.load(stages.opened(study, root)[-1], root)
    table = tables.to_markdown(loaded) if loaded.results else ""
    for address in workspaces.create(study, table, entity or default_entity(), project):
        print(address)


def keep(study: Study, root: Path) -> None:
    """Write ``table.json``, by which ``actlab report`` knows the study and its values."""
    from actlab.reports import tables

    tables.write(results.load(stages.opened(study, root)[-1], root), root, ["table.json"])


def report(study: Study, root: Path, html: bool = False) -> None:
    """Write the table, the figures and, where asked for, the page into the study's folder and say where."""
    from actlab.reports import curve_table, figures, tables

    opened = [results.load(stage, root) for stage in stages.opened(study, root)]
    last = opened[-1]
    written = [*tables.write(last, root), curve_table.write(last, root), *figures.draw(last, root / "figures")]
    if html:
        from actlab.reports.pages import study as page

        written.append(page.write(opened, root))
    for path in written:
        print(path)
