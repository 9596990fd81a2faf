"""What a study shows: its table, figures, page, and what Weights & Biases gets of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from actlab.analysis import results
from actlab.analysis.points import printer
from actlab.analysis.results import Results
from actlab.engines import stages
from actlab.storage.files import regular
from actlab.studies.plan import Study
from actlab.studies.probe_files import file_of


def load(study: Study, root: Path, stage: str | None = None) -> list[Results]:
    """The results of each stage that has opened, up to the one of a name where one is given; the last is shown.

    Raises:
        ActlabError: for an unknown stage, or one that has not opened.
    """
    opened = stages.opened(study, root) if stage is None else stages.until(study, root, stage)
    *before, last = [results.load(one, root) for one in opened]
    if stage is None and (line := stages.unopened(study, root, opened)):
        last = replace(last, left_out=(*last.left_out, line))
    return [*before, last]


def show(shown: Results, form: str | None = None) -> None:
    """Print the table: for people, or as ``json`` or ``csv``."""
    from actlab.reports import table_files, terminal

    if form is None:
        terminal.print_table(shown, sys.stdout)
    else:
        print((table_files.to_json if form == "json" else table_files.to_csv)(shown), end="")


def publish(shown: Results, folder: Path, written: Iterable[Path]) -> None:
    """Log the table, the figures among the files ``written`` to ``folder``, and the units' curves to W&B."""
    from actlab.reports import tables, units, wandb

    found = [run.unit for run in shown.runs if run.unit]
    text = printer(found)
    picture = units.plot_compared({text(unit): unit for unit in found}, folder / "figures" / "units.png")
    pictures = [*(path for path in written if path.suffix == ".png"), picture]
    stage = "" if folder == shown.root else folder.name
    wandb.publish(shown.study, folder, pictures, *tables.grid(shown), stage=stage)


def dashboards(shown: Results, entity: str, project: str) -> None:
    """Create a W&B workspace and report of a study; without an account say what they would be, and how to."""
    from actlab.reports import table_files, workspaces
    from actlab.reports.wandb import default_entity, mode

    study = shown.study
    print(workspaces.description(study, entity, project))
    if mode() != "online":
        print(
            "Nothing was created: there is no W&B account here. `wandb login`, then the same command again.\n"
            f"Runs that were logged offline: `wandb sync {shown.root}/wandb/offline-run-*` uploads them, "
            f"`wandb leet {shown.root}/wandb` shows them in the terminal."
        )
        return
    table = table_files.to_markdown(shown) if shown.results else ""
    for address in workspaces.create(study, table, entity or default_entity(), project):
        print(address)


def folder_of(study: Study, root: Path, stage: str | None) -> Path:
    """Where a study's table, figures and page go: those of an earlier stage alone into a folder of its name."""
    last = study.stages[-1].name if study.stages else None
    return root if stage in (None, last) else root / str(stage)


def keep(opened: Sequence[Results], folder: Path) -> None:
    """Write ``table.json``, by which ``actlab report`` knows the study and its values.

    Where it is another than before, figures and a page that are there are written anew: they show older values.
    """
    from actlab.reports import curve_table, table_files

    before = folder / "table.json"
    if (
        before.is_file()
        and regular(before).read_bytes() == table_files.to_json(opened[-1]).encode()
        and not _probed_since(opened[-1], folder / curve_table.NAME)
    ):
        return
    if opened[-1].results and (folder / "values.csv").exists():
        from actlab.reports.pages.study import NAME

        write(opened, folder, html=(folder / NAME).exists())
    else:
        table_files.write(opened[-1], folder, ["table.json"])


def _probed_since(shown: Results, file: Path) -> bool:
    """Whether a probe was evaluated after a file was written: what it shows may be in no table."""
    written = file.stat().st_mtime if file.exists() else math.inf
    probes = [probe.name for probe in shown.study.probes]
    files = (file_of(shown.root / run.id, name) for run in shown.runs for name in probes)
    return any(probed.stat().st_mtime > written for probed in files if probed.exists())


def report(opened: Sequence[Results], folder: Path, html: bool = False) -> list[Path]:
    """Write the table, the figures and, where asked for, the page into a folder, say where and return it."""
    written = write(opened, folder, html)
    for path in written:
        print(path)
    return written


def write(opened: Sequence[Results], folder: Path, html: bool = False) -> list[Path]:
    """Write the table, the figures and, where asked for, the page into a folder."""
    from actlab.reports import curve_table, figures, table_files

    last = opened[-1]
    written = [
        *table_files.write(last, folder),
        curve_table.write(last, folder),
        *figures.draw(last, folder / "figures"),
    ]
    if html:
        from actlab.reports.pages import study as page

        written.append(page.write(opened, folder))
    return written
