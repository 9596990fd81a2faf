"""A study in Weights & Biases: a workspace and a report over its runs; the only module for wandb-workspaces.

Runs are logged by ``actlab study run FILE --logger wandb``; their group is the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from actlab.config.metrics import is_parameter, logged
from actlab.config.paths import short
from actlab.studies.plan import Study

_SETTINGS = ("activation", "lr", "dropout", "seed")  # keys of `actlab.reports.wandb.compared`
SETTING = "setting"  # key in a run's config: its grid point in words, equal for all its seeds


def metrics_of(study: Study) -> list[str]:
    """Return the metrics, as runs log them, that a study selects by, prints or draws over epochs."""
    drawn = [
        (metric, part.get("condition", figure.get("condition", "")))
        for figure in study.figures
        for part in [figure, *figure.get("panels", [])]
        if part.get("x", figure.get("x", "epoch")) == "epoch"
        for metric in part.get("y") or {}
    ]
    printed = [(str(column["metric"]), column.get("condition", "")) for column in study.table]
    # Runs log no metric of a probe, and under a condition only learnt parameters.
    probes = {probe.name for probe in study.probes}
    metrics = dict.fromkeys([(study.select.metric, ""), *printed, *drawn])
    ours = [
        (metric, condition)
        for metric, condition in metrics
        if metric.partition("/")[0] not in probes
    ]
    return [logged(metric, where) for metric, where in ours if not where or is_parameter(metric)]


def workspace(study: Study, entity: str, project: str) -> ws.Workspace:
    """Return a workspace with curves and final values per setting, settings, and a comparison of runs."""
    return ws.Workspace(
        entity=entity,
        project=project,
        name=study.title,
        sections=[
            ws.Section(name=name, panels=p, is_open=name != "Runs")
            for name, p in _parts(study).items()
        ],
        runset_settings=ws.RunsetSettings(filters=runs_of(study), groupby=[ws.Config(SETTING)]),
    )


def runs_of(study: Study) -> str:
    """Return the filter for a study's runs: its group, and its seeds, which differ from an earlier stage's."""
    return f"Metric('group') = '{study.name}' and Config('seed') in {list(study.seeds)}"


def report(study: Study, table: str, entity: str, project: str) -> wr.Report:
    """Return a report: table in Markdown, empty before a run has ended, notes, curves, settings and runs."""
    runset = wr.Runset(
        entity=entity,
        project=project,
        name=study.name,
        filters=runs_of(study),
        groupby=[f"config.{SETTING}"],
    )
    blocks: list[Any] = [wr.H1(study.title)]
    blocks += [wr.H2("Table"), wr.MarkdownBlock(table)] if table else []
    blocks += [wr.UnorderedList(list(study.notes))] if study.notes else []
    for title, panels in _parts(study).items():
        blocks += [wr.H2(title), wr.PanelGrid(runsets=[runset], panels=panels)]
    return wr.Report(
        project=project, entity=entity, title=study.title, description=study.name, blocks=blocks
    )


def _parts(study: Study) -> dict[str, list[Any]]:
    over_seeds = {"groupby": SETTING, "groupby_aggfunc": "median", "groupby_rangefunc": "minmax"}
    curves = [
        wr.LinePlot(
            title=metric,
            x="epoch",
            y=[metric],
            smoothing_factor=0,
            max_runs_to_show=100,
            **over_seeds,
        )
        for metric in metrics_of(study)
    ]
    bars = [
        wr.BarPlot(
            title=f"{kind} {metric}", metrics=[wr.SummaryMetric(f"{kind}/{metric}")], **over_seeds
        )
        for metric in metrics_of(study)
        for kind in ("last", "best")
        if kind == "last" or not is_parameter(metric)
    ]
    chosen_by = f"{study.select.at}/{study.select.metric}"
    keys = [key for key in _SETTINGS if key in {"activation", "seed", *map(short, study.keys)}]
    shown = [*map(wr.Config, keys), wr.SummaryMetric(chosen_by)]
    axes = [wr.ParallelCoordinatesPlotColumn(metric=metric) for metric in shown]
    return {
        "Curves": curves,
        "Final and best values": bars,
        "Settings": [
            wr.ParallelCoordinatesPlot(title=chosen_by.replace("/", " ", 1), columns=axes)
        ],
        "Runs": [wr.RunComparer(diff_only=True)],
    }


def description(study: Study, entity: str, project: str) -> str:
    """Return a description of what `create` would create."""
    metrics = ", ".join(metrics_of(study))
    where = f"{entity}/{project}" if entity else project
    return (
        f"A workspace and a report {study.title!r} in {where}, over the runs of the group {study.name!r}:\n"
        f"  curves by setting, medians over seeds: {metrics}\n"
        "  last and best values by setting\n"
        f"  parallel coordinates over settings to the {study.select.value}\n"
        "  a comparer of runs; in the report the study's table and notes"
    )


def create(study: Study, table: str, entity: str, project: str) -> Sequence[str]:
    """Create workspace and report with the account that is logged in, and return their addresses."""
    shown, written = workspace(study, entity, project), report(study, table, entity, project)
    shown.save()
    written.save(draft=True)
    return [str(shown.url), str(written.url)]
