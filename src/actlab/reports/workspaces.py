"""A study in Weights & Biases: a workspace and a report over its runs.

Runs are logged by ``actlab study run FILE --logger wandb``; their group is the study. Only this
module imports wandb-workspaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from actlab.config.metrics import is_parameter, logged
from actlab.config.paths import short
from actlab.studies.plan import Study

# Keys of `actlab.reports.wandb.compared`.
_SETTINGS = (
    "activation",
    "lr",
    "dropout",
    "seed",
)
# Key in a run's config: its grid point in words, equal for all its seeds.
SETTING = "setting"


def metrics_of(study: Study) -> list[str]:
    """Return the logged metrics that a study selects by, prints or draws over epochs."""
    # Metric and condition: of the selection, of the table, then of the figures
    pairs = [(study.select.metric, "")]
    for column in study.table:
        pairs.append((str(column["metric"]), column.get("condition", "")))
    for figure in study.figures:
        pairs += _drawn_over_epochs(figure)

    # Runs log no metric of a probe, and under a condition only learnt parameters
    probes = {probe.name for probe in study.probes}
    names = []
    for metric, condition in dict.fromkeys(pairs):
        if metric.partition("/")[0] in probes:
            continue
        if not condition or is_parameter(metric):
            names.append(logged(metric, condition))
    return names


def _drawn_over_epochs(figure: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return metric and condition of each line that a figure draws over epochs."""
    pairs = []
    for keys in [figure, *figure.get("panels", [])]:
        # A panel may override each key of its figure
        panel = {**figure, **keys}
        if panel.get("x", "epoch") == "epoch":
            for metric in keys.get("y") or {}:
                pairs.append((metric, panel.get("condition", "")))
    return pairs


def workspace(study: Study, entity: str, project: str) -> ws.Workspace:
    """Return a workspace: curves and final values by setting, settings, and a comparer of runs."""
    # A section for each kind of panels
    sections = []
    for name, panels in _sections(study).items():
        sections.append(ws.Section(name=name, panels=panels, is_open=name != "Runs"))
    return ws.Workspace(
        entity=entity,
        project=project,
        name=study.title,
        sections=sections,
        runset_settings=ws.RunsetSettings(
            filters=runs_of(study), groupby=[ws.Config(SETTING)]
        ),
    )


def runs_of(study: Study) -> str:
    """Return the filter for a study's runs: its group, and the seeds of its stage."""
    return f"Metric('group') = '{study.name}' and Config('seed') in {list(study.seeds)}"


def report(study: Study, table: str, entity: str, project: str) -> wr.Report:
    """Return a report: table, notes, curves, settings and runs.

    Args:
        study: the study whose runs are shown.
        table: its table in Markdown; empty before a run has ended.
        entity: user or team.
        project: project of the runs.
    """
    # Texts
    blocks: list[Any] = [wr.H1(study.title)]
    if table:
        blocks += [wr.H2("Table"), wr.MarkdownBlock(table)]
    if study.notes:
        blocks.append(wr.UnorderedList(list(study.notes)))

    # Panels over all runs, grouped by setting
    runset = wr.Runset(
        entity=entity,
        project=project,
        name=study.name,
        filters=runs_of(study),
        groupby=[f"config.{SETTING}"],
    )
    for title, panels in _sections(study).items():
        blocks.append(wr.H2(title))
        blocks.append(wr.PanelGrid(runsets=[runset], panels=panels))
    return wr.Report(
        project=project,
        entity=entity,
        title=study.title,
        description=study.name,
        blocks=blocks,
    )


def _sections(study: Study) -> dict[str, list[Any]]:
    """Return the panels of each section by its title."""
    # As in our figures: the median of all seeds, and their range
    over_seeds = {
        "groupby": SETTING,
        "groupby_aggfunc": "median",
        "groupby_rangefunc": "minmax",
    }

    # A curve of each metric, and bars of its last and best values
    curves = []
    bars = []
    for metric in metrics_of(study):
        curves.append(
            wr.LinePlot(
                title=metric,
                x="epoch",
                y=[metric],
                smoothing_factor=0,
                max_runs_to_show=100,
                **over_seeds,
            )
        )
        # A learnt parameter has no best value
        kinds = ["last"] if is_parameter(metric) else ["last", "best"]
        for kind in kinds:
            value = wr.SummaryMetric(f"{kind}/{metric}")
            bars.append(
                wr.BarPlot(title=f"{kind} {metric}", metrics=[value], **over_seeds)
            )

    # Parallel coordinates over the keys that runs differ in
    varied = {"activation", "seed", *map(short, study.keys)}
    metrics: list[Any] = [wr.Config(key) for key in _SETTINGS if key in varied]
    selected_by = f"{study.select.at}/{study.select.metric}"
    metrics.append(wr.SummaryMetric(selected_by))
    coordinates = wr.ParallelCoordinatesPlot(
        title=selected_by.replace("/", " ", 1),
        columns=[wr.ParallelCoordinatesPlotColumn(metric=metric) for metric in metrics],
    )
    return {
        "Curves": curves,
        "Final and best values": bars,
        "Settings": [coordinates],
        "Runs": [wr.RunComparer(diff_only=True)],
    }


def description(study: Study, entity: str, project: str) -> str:
    """Return a description of what `create` would create."""
    metrics = ", ".join(metrics_of(study))
    location = f"{entity}/{project}" if entity else project
    return (
        f"A workspace and a report {study.title!r} in {location}, "
        f"over the runs of the group {study.name!r}:\n"
        f"  curves by setting, medians over seeds: {metrics}\n"
        "  last and best values by setting\n"
        f"  parallel coordinates over settings to the {study.select.value}\n"
        "  a comparer of runs; in the report the study's table and notes"
    )


def create(study: Study, table: str, entity: str, project: str) -> Sequence[str]:
    """Create workspace and report with the current account, and return their addresses."""
    new_workspace = workspace(study, entity, project)
    new_report = report(study, table, entity, project)
    new_workspace.save()
    # A draft, which only its author sees until it is published
    new_report.save(draft=True)
    return [str(new_workspace.url), str(new_report.url)]
