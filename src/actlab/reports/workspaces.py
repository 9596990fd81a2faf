"""A study in Weights & Biases: a workspace and a report over its runs; the only module for wandb-workspaces.

Runs come there by ``actlab study run FILE --logger actlab.reports.wandb.RunLogger``: the group is the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from actlab.config.keys import short
from actlab.studies.plan import Study

_SETTINGS = ("activation", "lr", "dropout", "seed")  # as `actlab.reports.wandb.compared` has them
SETTING = "setting"  # of a run's config: its place in the grid in words, which all its seeds share


def metrics_of(study: Study) -> list[str]:
    """The metrics that a study selects by, prints and draws over epochs, each once, as the runs log them.

    What its probes measure is not logged by runs.
    """
    drawn = [
        metric
        for figure in study.figures
        for part in [figure, *figure.get("panels", [])]
        if part.get("x", figure.get("x", "epoch")) == "epoch"
        for metric in part.get("y") or {}
    ]
    printed = [str(column["metric"]) for column in study.table if not column.get("condition")]
    probes = {probe.name for probe in study.probes}
    found = dict.fromkeys([study.select.metric, *printed, *drawn])
    return [metric for metric in found if metric.partition("/")[0] not in probes]


def workspace(study: Study, entity: str, project: str) -> ws.Workspace:
    """Curves and final values of each setting, settings side by side, and what differs between runs.

    Args:
        study: whose runs are shown; of one in stages the stage that is.
        entity: user or team.
        project: where the runs are.
    """
    return ws.Workspace(
        entity=entity,
        project=project,
        name=study.title,
        sections=[
            ws.Section(name="Curves", panels=curves(study), is_open=True),
            ws.Section(name="Final and best values", panels=bars(study), is_open=True),
            ws.Section(name="Settings", panels=settings(study), is_open=True),
            ws.Section(name="Runs", panels=[wr.RunComparer(diff_only=True)], is_open=False),
        ],
        runset_settings=ws.RunsetSettings(filters=runs_of(study), groupby=[ws.Config(SETTING)]),
    )


def runs_of(study: Study) -> str:
    """The filter that finds a study's runs: of its group, with its seeds, which an earlier stage has not."""
    return f"Metric('group') = '{study.name}' and Config('seed') in {list(study.seeds)}"


def report(study: Study, table: str, entity: str, project: str) -> wr.Report:
    """The study as a report: its table, notes, curves, settings and a comparer of runs.

    Args:
        study: whose runs are shown.
        table: as Markdown; empty before a run has ended.
        entity: user or team.
        project: where the runs are.
    """
    runset = wr.Runset(
        entity=entity,
        project=project,
        name=study.name,
        filters=runs_of(study),
        groupby=[SETTING],
    )
    blocks: list[Any] = [wr.H1(study.title)]
    blocks += [wr.H2("Table"), wr.MarkdownBlock(table)] if table else []
    blocks += [wr.UnorderedList(list(study.notes))] if study.notes else []
    for title, panels in (
        ("Curves", curves(study)),
        ("Final and best values", bars(study)),
        ("Settings", settings(study)),
        ("Runs", [wr.RunComparer(diff_only=True)]),
    ):
        blocks += [wr.H2(title), wr.PanelGrid(runsets=[runset], panels=panels)]
    return wr.Report(project=project, entity=entity, title=study.title, description=study.name, blocks=blocks)


def curves(study: Study) -> list[Any]:
    """A panel for each metric over epochs: a line for each setting, the median of its seeds, their range."""
    return [
        wr.LinePlot(
            title=metric,
            x="epoch",
            y=[metric],
            groupby=SETTING,
            groupby_aggfunc="median",
            groupby_rangefunc="minmax",
            smoothing_factor=0,
            max_runs_to_show=100,
        )
        for metric in metrics_of(study)
    ]


def bars(study: Study) -> list[Any]:
    """For each metric its last and its best value, by setting."""
    return [
        wr.BarPlot(
            title=f"{kind} {metric}",
            metrics=[wr.SummaryMetric(f"{kind}/{metric}")],
            groupby=SETTING,
            groupby_aggfunc="median",
            groupby_rangefunc="minmax",
        )
        for metric in metrics_of(study)
        for kind in ("last", "best")
    ]


def settings(study: Study) -> list[Any]:
    """Parallel coordinates over what runs are compared by, to the best value of what selects."""
    keys = [key for key in _SETTINGS if key in {"activation", "seed", *map(short, study.keys)}]
    columns = [wr.ParallelCoordinatesPlotColumn(metric=wr.Config(key)) for key in keys]
    aim = wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric(f"best/{study.select.metric}"))
    return [wr.ParallelCoordinatesPlot(title=f"best {study.select.metric}", columns=[*columns, aim])]


def description(study: Study, entity: str, project: str) -> str:
    """What would be created, in words."""
    metrics = ", ".join(metrics_of(study))
    where = f"{entity}/{project}" if entity else project
    return (
        f"A workspace and a report {study.title!r} in {where}, over the runs of the group {study.name!r}:\n"
        f"  curves by setting, medians over seeds: {metrics}\n"
        "  last and best values by setting\n"
        f"  parallel coordinates over settings to the best {study.select.metric}\n"
        "  a comparer of runs; in the report the study's table and notes"
    )


def create(study: Study, table: str, entity: str, project: str) -> Sequence[str]:
    """Create both, by the account that is logged in; their addresses."""
    shown, written = workspace(study, entity, project), report(study, table, entity, project)
    shown.save()
    written.save(draft=True)
    return [str(shown.url), str(written.url)]
