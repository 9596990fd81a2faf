"""Read the figures of a study file, `actlab.studies.schema.Figure`, into panels and captions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from actlab.analysis import curves, selection
from actlab.analysis.columns import Column, column, place, read_where
from actlab.analysis.curves import Curve
from actlab.analysis.notes import INTERVAL, spans
from actlab.analysis.results import Results
from actlab.analysis.statistics import median_band
from actlab.analysis.wording import plural
from actlab.config.metrics import HIGHEST, INITIAL, LEARNT, LOWEST, is_parameter
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.reports.panels import Line, Panel, Plot, read_curves
from actlab.storage.json_files import read_json
from actlab.studies.formats import Kept
from actlab.studies.groups import Group
from actlab.studies.plan import SMOKE_SUFFIX, Run
from actlab.studies.points import Point
from actlab.studies.run_folder import MATRICES, RunFolder

_READING_TEXTS = {
    "last": "at the last epoch",
    "best": "the best of each run",
    "best_epoch": "the epoch of the best of each run",
    "selected": "at the epoch of the best {metric}",
}
EPOCH = "epoch"
LEARNT_FIGURE = "learnt_activations"
_LEARNT_CAPTION = (
    "Activations with trainable parameters, in evaluation mode: f(x) after the last epoch minus "
    "f₀(x) before the first, in each layer, numbered from the input. If channels have parameters "
    "of their own, f and f₀ are means over channels that all have the input x. Runs that diverged "
    "are left out. "
)


def read(results: Results) -> list[Plot]:
    """Return a study's figures before drawing: the figures of its file, and learnt activations."""
    plots = []
    for entry in results.study.figures:
        plot = read_entry(results, entry)
        if plot:
            plots.append(plot)
    learnt = read_learnt(results)
    if learnt:
        plots.append(learnt)
    return plots


def read_entry(results: Results, entry: Mapping[str, Any]) -> Plot | None:
    """Return the figure of an entry; None if all runs diverged before they recorded the metrics."""
    figure = str(entry.get("name", "curves"))
    fixed = entry.get("fixed", {})

    # Leave out panels without a line
    panels = []
    for keys in checked(results, entry):
        lines = list(_lines(results, keys))
        if lines:
            panels.append(panel_of(results, keys, lines))

    # Without a line, the study has not been run
    if not panels:
        if results.results and not results.finished:
            return None
        raise _without_runs(results, figure, fixed)

    # Our caption, then the caption of the study's file
    text = caption(results, panels, fixed)
    if entry.get("caption"):
        text = f"{text} {entry['caption']}"
    return Plot(figure, panels, text)


def _without_runs(
    results: Results, figure: str, fixed: Mapping[str, Any]
) -> ActlabError:
    setting = ""
    if fixed:
        setting = f" with {_in_words(results, fixed)}"
    study = results.study.name.removesuffix(SMOKE_SUFFIX)
    return ActlabError(
        f"figure {figure!r}: no run{setting} under {results.root} has finished and recorded what "
        f"it shows. Run the study first: actlab study run {study}"
    )


def _in_words(results: Results, values: Mapping[str, Any]) -> str:
    return Point(values).in_words(results.study.compare, results.text)


def checked(results: Results, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of an entry, each with defaults and shared keys, after checking all names.

    Raises:
        ActlabError: for an unknown grid key, metric, condition or published curve.
    """
    # Published curves of the whole figure
    figure = str(entry.get("name", "curves"))
    published = read_curves(entry.get("published") or {}, figure)

    panels = []
    for number, keys in enumerate(entry.get("panels") or [{}], 1):
        # A panel's own keys come before the figure's keys
        panel = {"lines": results.study.compare, "x": EPOCH, **entry, **keys}
        panel["name"] = figure
        panel["number"] = number
        # Only of the panel itself: the figure's entry of this name is the file
        panel["published"] = keys.get("published")
        panel["curves"] = published
        panel["over_epochs"] = panel["x"] == EPOCH
        if not panel.get("y"):
            panel["y"] = {results.study.select.metric: None}

        # Check names
        _check_names(results, panel)
        list(_line_groups(results, panel))  # raises if a line is at several grid points
        panels.append(panel)
    return panels


def _check_names(results: Results, panel: Mapping[str, Any]) -> None:
    study = results.study
    location = f"In figure {panel['name']!r} of {study.name}."

    # Grid keys
    for key in (panel["lines"], *panel.get("where", {}), *panel.get("fixed", {})):
        if key not in study.keys:
            raise unknown("grid key", str(key), study.keys, location)

    # Over epochs, no single epoch is read
    if panel["over_epochs"] and "at" in panel:
        raise ActlabError(
            f"'at' is allowed only with an 'x' of conditions, not of epochs. {location}"
        )

    # Metrics, and the published curve of each
    for metric, curve in panel["y"].items():
        if panel["published"]:
            panel["curves"].check(panel["published"], curve)
        condition = _column(results, panel, metric).condition
        if not panel["over_epochs"] and metric in results.metrics.conditions:
            curves.along(results.metrics.conditions[metric], panel["x"], condition)
            continue
        if not condition and not panel["over_epochs"]:
            # Values over conditions have the condition that the x axis is about
            condition = panel["x"]
        results.metrics.check(metric, condition)


def _column(results: Results, panel: Mapping[str, Any], metric: str) -> Column:
    entry = {"metric": metric}
    for key in ("at", "condition", "percent"):
        if key in panel:
            entry[key] = panel[key]
    return column(entry, results.study)


def panel_of(results: Results, panel: Mapping[str, Any], lines: list[Line]) -> Panel:
    """Return a panel from `checked` with some lines, at least one."""
    metric = lines[0].metric

    # Axis of values
    label = str(panel.get("label") or metric.replace("/", " ").replace("_", " "))
    scale = 1.0
    if _column(results, panel, metric).in_percent:
        label = f"{label} (%)"
        scale = 100.0
    ylim = panel.get("ylim")
    if ylim:
        # matplotlib would ignore such a limit with a warning
        if panel.get("log") and not ylim[0] > 0:
            raise ActlabError(
                f"'ylim' of figure {panel['name']!r}: expected limits above 0 on a logarithmic "
                f"axis, got {ylim}"
            )
        ylim = (float(ylim[0]), float(ylim[1]))

    # Labels without a run, and selected tuned values of the other labels
    absent = []
    selected = {}
    for value, group, fixed in _line_groups(results, panel):
        text = results.text(panel["lines"], value)
        if not curves.fitting(group, fixed):
            absent.append(text)
        setting = curves.setting(results, group, fixed)
        if setting:
            tuned = setting.tuned.without(fixed)
            if tuned:
                selected[text] = tuned.in_words(text=results.text)

    # Labels and limits of the file, or their defaults
    return Panel(
        number=panel["number"],
        title=str(panel.get("title", "")),
        xlabel=str(panel.get("xlabel") or panel["x"]),
        ylabel=label,
        over_epochs=panel["over_epochs"],
        scale=scale,
        ylim=ylim or None,
        lines=lines,
        read=_reading_text(results, panel),
        selected=selected,
        absent=tuple(absent),
        log=bool(panel.get("log", False)),
    )


def _lines(results: Results, panel: Mapping[str, Any]) -> Iterator[Line]:
    for value, group, fixed in _line_groups(results, panel):
        text = results.text(panel["lines"], value)
        by_user = results.study.is_own(panel["lines"], value)
        for metric, published_name in panel["y"].items():
            # Our curve
            quantity = _column(results, panel, metric)
            if panel["over_epochs"]:
                curve = curves.over_epochs(results, group, quantity, fixed)
            else:
                curve = curves.over_conditions(
                    results, group, quantity, panel["x"], fixed
                )
            if not curve:
                continue

            # The published curve, for runs on all data
            published = None
            if not results.study.samples:
                published = panel["curves"].get(
                    panel["published"], value, published_name
                )
            yield Line(text, metric, curve, published, by_user)


def _line_groups(
    results: Results, panel: Mapping[str, Any]
) -> Iterator[tuple[Any, Group, dict[str, Any]]]:
    """Yield grid value, group and fixed tuned values of each line of a panel."""
    key = panel["lines"]
    tune = results.study.select.tune

    # Tell apart tuned keys, which settings have, and keys of grid points
    fixed = {}
    compared = {}
    for name, value in {**panel.get("fixed", {}), **panel.get("where", {})}.items():
        if name in tune:
            fixed[name] = value
        else:
            compared[name] = value

    # A line has a single group
    groups: dict[str, Group] = {}
    for group in results.groups:
        if not group.point.matches(compared):
            continue
        if key in tune:
            # A tuned key has several values in one group, so each is a line
            values = [setting.tuned[key] for setting in group.settings]
        else:
            values = [group.point[key]]
        value_by_text = {results.text(key, value): value for value in values}

        # Fix the tuned value of the line
        for text, value in value_by_text.items():
            earlier = groups.setdefault(text, group)
            if earlier is not group:
                raise _at_several_points(panel, text, group.point, earlier.point)
            if key in tune:
                yield value, group, {**fixed, key: value}
            else:
                yield value, group, fixed


def _at_several_points(
    panel: Mapping[str, Any], text: str, point: Point, earlier: Point
) -> ActlabError:
    # The keys whose value the user has to state
    open_keys = [key for key in point if point[key] != earlier[key]]
    return ActlabError(
        f"figure {panel['name']!r}: {text} is at several grid points. Set a value of "
        f"{' and '.join(open_keys)} in 'where' or 'fixed'."
    )


def _reading_text(results: Results, panel: Mapping[str, Any]) -> str:
    """Return where the values of runs are read, and under which condition."""
    parts = []
    if not panel["over_epochs"]:
        # Which epoch is read
        at = str(read_where(panel.get("at", "last"), results.study))
        text = place(at)
        # ``epoch 5``, ``at the end``, ``best value``
        if text.startswith("epoch"):
            text = f"at {text}"
        elif not text.startswith("at "):
            text = f"the {text}"
        parts.append(
            _READING_TEXTS.get(at, text).format(metric=results.study.select.metric)
        )
    if panel.get("condition"):
        parts.append(f"under {panel['condition']}")
    return ", ".join(parts)


def caption(results: Results, panels: Sequence[Panel], fixed: Mapping[str, Any]) -> str:
    """Return the caption as a paragraph; all panels are drawn at the grid values ``fixed``."""
    # The numbers of runs and the seeds come first
    study = results.study
    lines = _lines_of(panels)
    sentences = [medians(lines, study.seeds)]

    # Where values are read
    titles = [panel.title for panel in panels]
    readings = _with_titles(titles, [panel.read for panel in panels])
    if readings:
        sentences.append(f"Values: {'; '.join(readings)}.")
    if fixed:
        sentences.append(f"Drawn at {_in_words(results, fixed)}.")

    # Lines that are absent or end early
    absent = _with_titles(titles, [", ".join(panel.absent) for panel in panels])
    if absent:
        sentences.append(f"Without a run there, so not drawn: {'; '.join(absent)}.")
    cut = _cut_labels(panels)
    if cut:
        sentences.append(
            f"A line ends where the first of its runs has ended: {', '.join(cut)}."
        )

    # Tuned values, and published curves
    selected = _selected_texts(panels)
    if selected:
        sentences.append(
            f"Tuned values chosen by {study.select.metric}: {'; '.join(selected)}."
        )
    if any(line.published for line in lines):
        source = study.published.get("source", "")
        sentences.append(
            f"Dotted: published, {source}." if source else "Dotted: published."
        )

    # Runs without results
    if results.diverged:
        sentences.append(
            f"{results.diverged} of the study's runs diverged and count as the worst value "
            "from there on."
        )
    if results.missing:
        sentences.append(
            f"Unfinished: {len(results.results)} of {len(results.runs)} runs."
        )
    return " ".join(sentences)


def _lines_of(panels: Iterable[Panel]) -> list[Line]:
    lines: list[Line] = []
    for panel in panels:
        lines += panel.lines
    return lines


def _cut_labels(panels: Iterable[Panel]) -> list[str]:
    """Return the labels of lines over epochs that end early."""
    labels: dict[str, None] = {}
    for panel in panels:
        for line in panel.lines:
            if panel.over_epochs and line.curve.cut:
                labels[line.label] = None
    return list(labels)


def _selected_texts(panels: Iterable[Panel]) -> list[str]:
    """Return the selected tuned values of each label, with panel titles where they differ."""
    titles_by_label = defaultdict(list)
    texts_by_label = defaultdict(list)
    for panel in panels:
        for label, text in panel.selected.items():
            # Panels may be at different selected settings
            titles_by_label[label].append(panel.title)
            texts_by_label[label].append(text)

    selected = []
    for label, texts in texts_by_label.items():
        unique = _with_titles(titles_by_label[label], texts)
        selected.append(f"{label}: {' and '.join(unique)}")
    return selected


def medians(lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """Return a sentence on the number of runs behind each median, and one on what is shaded."""
    # The numbers of runs
    counts = sorted({line.curve.n for line in lines})
    runs = plural(counts[-1], "run")
    if len(counts) > 1:
        runs = f"{counts[0]} to {runs}"
    text = f"Lines: median of {runs} (seeds {spans(seeds)})."

    # Bands over runs, or over channels
    kinds = set()
    over_channels = False
    for line in lines:
        if line.curve.over_channels:
            over_channels = True
        elif line.curve.shaded:
            kinds.add(line.curve.band.kind)
    names = {"interval": INTERVAL, "range": "their range"}
    shaded = [names[kind] for kind in sorted(kinds)]
    if over_channels:
        shaded.append("the lowest to the highest channel (medians over runs)")
    if shaded:
        text = f"{text} Shaded: {' or '.join(shaded)}."
    return text


def _with_titles(titles: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return each text once, with its title if the texts differ."""
    differ = len(set(texts)) > 1

    unique = []
    for title, text in zip(titles, texts, strict=True):
        if text and title and differ:
            text = f"{text} ({title})"
        if text and text not in unique:
            unique.append(text)
    return unique


def read_learnt(results: Results) -> Plot | None:
    """Return the figure of learnt activations, a panel for each grid point; None without curves.

    The curves are in ``matrices.json`` of each run: the figure needs neither checkpoints nor the
    code of an activation.
    """
    if not any(map(is_parameter, results.metrics.conditions)):
        return None

    # A panel for each grid point, at its selected setting
    panels: list[Panel] = []
    for group in results.groups:
        setting = selection.selected_setting(results, group)
        if not setting:
            continue

        # Runs that stored curves
        stored = []
        for run in setting.runs:
            matrices = _stored(results, run)
            if LEARNT in matrices and INITIAL in matrices:
                stored.append(matrices)
        lines = list(_learnt_lines(stored))
        if lines:
            title = group.point.in_words(results.study.compare, results.text)
            panels.append(
                Panel(len(panels) + 1, title, lines, xlabel="x", ylabel="f(x) − f₀(x)")
            )

    # The caption
    if not panels:
        return None
    medians_text = medians(_lines_of(panels), results.study.seeds)
    return Plot(LEARNT_FIGURE, panels, _LEARNT_CAPTION + medians_text)


def _stored(results: Results, run: Run) -> Kept:
    """Return ``matrices.json`` of a finished run; empty for a run without it, or that diverged."""
    if run.id not in results.results or results.has_diverged(run):
        return {}
    folder = RunFolder(results.root, run)
    file = folder.path / MATRICES
    if not file.exists():
        return {}
    return read_json(file, Kept, folder.remedy)


def _learnt_lines(runs: Sequence[Kept]) -> Iterator[Line]:
    """Yield a line for each layer: the change of f, and its spread over channels if they differ."""
    layers: set[int] = set()
    for run in runs:
        for name in run[LEARNT]:
            # All other names are numbers of layers
            if name != "x":
                layers.add(int(name))

    for layer in map(str, sorted(layers)):
        with_layer = [
            run for run in runs if layer in run[LEARNT] and layer in run[INITIAL]
        ]
        if not with_layer:
            continue
        start = _values(with_layer, INITIAL, layer)
        end = _values(with_layer, LEARNT, layer)
        # Differences run by run, because each run has its own initial curve
        band = median_band(end - start)

        # Put the lowest and highest channel in place of the interval over seeds
        lowest = _values(with_layer, LOWEST, layer)
        highest = _values(with_layer, HIGHEST, layer)
        over_channels = len(lowest) == len(highest) == len(with_layer)
        if over_channels:
            low = np.median(lowest - start, axis=0)
            high = np.median(highest - start, axis=0)
            band = band._replace(low=low, high=high)

        # The line of the layer
        x = np.array(with_layer[0][LEARNT]["x"])
        curve = Curve(x, band, len(with_layer), over_channels=over_channels)
        yield Line(f"layer {layer}", LEARNT, curve, None)


def _values(runs: Iterable[Mapping[str, Any]], name: str, layer: str) -> Any:
    """Return the values of a layer in the curves of a name, from each run that stored them."""
    values = []
    for run in runs:
        curves_by_layer = run.get(name, {})
        if layer in curves_by_layer:
            values.append(curves_by_layer[layer])
    return np.array(values)
