"""Read the figures of a study file, `actlab.studies.schema.Figure`, into panels, lines and captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from actlab.studies.groups import Group, by_key
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


def read(results: Results) -> list[Plot]:
    """Return the figures of a study, before they are drawn: those of its file, and learnt activations."""
    plots = [*(read_entry(results, entry) for entry in results.study.figures), read_learnt(results)]
    return [plot for plot in plots if plot is not None]


def read_entry(results: Results, entry: Mapping[str, Any]) -> Plot | None:
    """Return the figure of an entry; None if all runs diverged before they recorded the metrics."""
    figure = str(entry.get("name", "curves"))
    planned = checked(results, entry)
    panels = [
        panel_of(results, panel, lines) for panel in planned if (lines := [*_lines(results, panel)])
    ]
    if not panels and results.results and not results.finished:
        return None
    if not panels:
        fixed, study = entry.get("fixed"), results.study.name.removesuffix(SMOKE_SUFFIX)
        at = f" with {Point(fixed).in_words(results.study.compare, results.text)}" if fixed else ""
        raise ActlabError(
            f"figure {figure!r}: no run{at} under {results.root} has finished and recorded what it shows; "
            f"run the study first: actlab study run {study}"
        )
    words = [caption(results, panels, entry.get("fixed", {})), entry.get("caption")]
    return Plot(figure, panels, " ".join(filter(None, words)))


def checked(results: Results, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of an entry, each with defaults and the keys that all share, with names checked."""
    figure = str(entry.get("name", "curves"))
    published = read_curves(entry.get("published") or {}, figure)
    panels = []
    for number, keys in enumerate(entry.get("panels") or [{}], 1):
        panel = {"lines": results.study.compare, "x": EPOCH, **entry, **keys}
        panel |= {
            "name": figure,
            "number": number,
            "published": keys.get("published"),
            "curves": published,
        }
        panel["over_epochs"] = panel["x"] == EPOCH
        # With names of published curves
        panel["y"] = panel.get("y") or {results.study.select.metric: None}
        _check_names(results, panel)
        _ = list(_line_groups(results, panel))
        panels.append(panel)
    return panels


def _check_names(results: Results, panel: Mapping[str, Any]) -> None:
    study, where = results.study, f"In figure {panel['name']!r} of {results.study.name}."
    for key in (panel["lines"], *panel.get("where", {}), *panel.get("fixed", {})):
        if key not in study.keys:
            raise unknown("grid key", str(key), study.keys, where)
    if panel["over_epochs"] and "at" in panel:
        raise ActlabError(f"'at' is allowed only with an 'x' of conditions, not of epochs. {where}")
    for metric, curve in panel["y"].items():
        if panel["published"]:
            panel["curves"].check(panel["published"], curve)
        condition = _column(results, panel, metric).condition
        if not panel["over_epochs"] and metric in results.metrics.conditions:
            curves.along(results.metrics.conditions[metric], panel["x"], condition)
        else:
            results.metrics.check(metric, condition or ("" if panel["over_epochs"] else panel["x"]))


def _column(results: Results, panel: Mapping[str, Any], metric: str) -> Column:
    given = {key: panel[key] for key in ("at", "condition", "percent") if key in panel}
    return column({"metric": metric, **given}, results.study)


def panel_of(results: Results, panel: Mapping[str, Any], lines: list[Line]) -> Panel:
    """Return a panel from `checked` with some lines, at least one."""
    percent = _column(results, panel, lines[0].metric).in_percent
    axis = str(panel.get("label") or lines[0].metric.replace("/", " ").replace("_", " "))
    ylim = panel.get("ylim")
    if panel.get("log") and ylim and not ylim[0] > 0:
        raise ActlabError(
            f"figure {panel['name']!r}: 'ylim' {ylim} on a logarithmic axis: give limits above 0"
        )
    groups = list(_line_groups(results, panel))
    lacking = [value for value, group, fixed in groups if not curves.fitting(group, fixed)]
    chosen = {}
    for value, group, fixed in groups:
        setting = curves.setting(results, group, fixed)
        if setting and (tuned := setting.tuned.without(fixed)):
            chosen[results.text(panel["lines"], value)] = tuned.in_words(text=results.text)
    return Panel(
        number=panel["number"],
        title=str(panel.get("title", "")),
        xlabel=str(panel.get("xlabel") or panel["x"]),
        ylabel=f"{axis} (%)" if percent else axis,
        over_epochs=panel["over_epochs"],
        scale=100.0 if percent else 1.0,
        ylim=(float(ylim[0]), float(ylim[1])) if ylim else None,
        lines=lines,
        read=_reading_text(results, panel),
        chosen=chosen,
        absent=tuple(results.text(panel["lines"], value) for value in lacking),
        log=bool(panel.get("log", False)),
    )


def _lines(results: Results, panel: Mapping[str, Any]) -> Iterator[Line]:
    for value, group, fixed in _line_groups(results, panel):
        text = results.text(panel["lines"], value)
        for metric, curve in panel["y"].items():
            shown = _column(results, panel, metric)
            if panel["over_epochs"]:
                ours = curves.over_epochs(results, group, shown, fixed)
            else:
                ours = curves.over_conditions(results, group, shown, panel["x"], fixed)
            if ours:
                published = panel["curves"].get(panel["published"], value, curve)
                theirs = None if results.study.samples else published
                yield Line(text, metric, ours, theirs, results.study.is_own(panel["lines"], value))


def _line_groups(
    results: Results, panel: Mapping[str, Any]
) -> Iterator[tuple[Any, Group, dict[str, Any]]]:
    """Yield grid value, group and fixed tuned values of each line of a panel."""
    key, tune = panel["lines"], results.study.select.tune
    wanted = {**panel.get("fixed", {}), **panel.get("where", {})}
    fixed = {k: v for k, v in wanted.items() if k in tune}
    compared = {k: v for k, v in wanted.items() if k not in tune}
    seen: dict[str, Group] = {}
    for group in (g for g in results.groups if g.point.matches(compared)):
        values = [s.tuned[key] for s in group.settings] if key in tune else [group.point[key]]
        for text, value in {results.text(key, value): value for value in values}.items():
            if (other := seen.setdefault(text, group)) is not group:
                open_keys = [k for k in group.point if group.point[k] != other.point[k]]
                raise ActlabError(
                    f"figure {panel['name']!r}: {text} is at several grid points; "
                    f"give 'where' or 'fixed' a value of {' and '.join(open_keys)}"
                )
            yield value, group, {**fixed, key: value} if key in tune else fixed


def _reading_text(results: Results, panel: Mapping[str, Any]) -> str:
    if panel["over_epochs"]:
        words = ""
    else:
        at = str(read_where(panel.get("at", "last"), results.study))
        over = (
            "at "
            if place(at).startswith("epoch")
            else ""
            if place(at).startswith("at ")
            else "the "
        )
        words = _READING_TEXTS.get(at, over + place(at)).format(metric=results.study.select.metric)
    condition = f"under {panel['condition']}" if panel.get("condition") else ""
    return ", ".join(filter(None, [words, condition]))


def caption(results: Results, panels: Sequence[Panel], fixed: Mapping[str, Any]) -> str:
    """Return the caption as one paragraph; ``fixed`` are grid values at which the whole figure is drawn."""
    study, lines = results.study, [line for panel in panels for line in panel.lines]
    read = _with_titles([(panel.title, panel.read) for panel in panels])
    absent = _with_titles([(panel.title, ", ".join(panel.absent)) for panel in panels])
    over_epochs = [line for panel in panels if panel.over_epochs for line in panel.lines]
    cut = list(dict.fromkeys(line.label for line in over_epochs if line.ours.cut))
    chosen = by_key(
        (name, (panel.title, text)) for panel in panels for name, text in panel.chosen.items()
    )
    each = [f"{label}: {' and '.join(_with_titles(words))}" for label, words in chosen.items()]
    source = study.published.get("source", "")
    parts = {
        medians(lines, study.seeds): True,
        f"Values: {'; '.join(read)}.": read,
        f"Drawn at {Point(fixed).in_words(study.compare, results.text)}.": fixed,
        f"Without a run there, so not drawn: {'; '.join(absent)}.": absent,
        f"A line ends where the first of its runs has ended: {', '.join(cut)}.": cut,
        f"Tuned values chosen by {study.select.metric}: {'; '.join(each)}.": each,
        f"Dotted: published{', ' if source else ''}{source}.": any(
            line.published for line in lines
        ),
        f"{results.diverged} of the study's runs diverged and count as the worst value from there on.": (
            results.diverged
        ),
        f"Unfinished: {len(results.results)} of {len(results.runs)} runs.": results.missing,
    }
    return " ".join(part for part, holds in parts.items() if holds)


def medians(lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """Return how many runs lines are medians of, and what is shaded."""
    counts = sorted({line.ours.n for line in lines})
    fewest = f"{counts[0]} to " if len(counts) > 1 else ""
    text = f"Lines: median of {fewest}{plural(counts[-1], 'run')} (seeds {spans(seeds)})."
    kinds = {"interval": INTERVAL, "range": "their range"}
    over_runs = {
        line.ours.band.kind for line in lines if line.ours.shaded and not line.ours.over_channels
    }
    shaded = [kinds[kind] for kind in sorted(over_runs)]
    if any(line.ours.over_channels for line in lines):
        shaded.append("the lowest to the highest channel (medians over runs)")
    return f"{text} Shaded: {' or '.join(shaded)}." if shaded else text


def _with_titles(words: Sequence[tuple[str, str]]) -> list[str]:
    """Return each text once, with its title if the texts differ, from pairs of title and text."""
    differ = len({text for _, text in words}) > 1
    texts = [f"{text} ({title})" if differ and title else text for title, text in words if text]
    return list(dict.fromkeys(texts))


def read_learnt(results: Results) -> Plot | None:
    """Return the figure of activations with learnt parameters, a panel a grid point; None without curves."""
    # The curves are in ``matrices.json`` of each run: neither checkpoints nor code of an activation
    # are needed.
    panels: list[Panel] = []
    if not any(map(is_parameter, results.metrics.conditions)):
        return None
    for group in results.groups:
        setting = selection.chosen(results, group)
        kept = [_kept(results, run) for run in setting.runs] if setting else []
        title = group.point.in_words(results.study.compare, results.text)
        if lines := [*_learnt_lines([run for run in kept if LEARNT in run and INITIAL in run])]:
            panels.append(Panel(len(panels) + 1, title, lines, xlabel="x", ylabel="f(x) − f₀(x)"))
    if not panels:
        return None
    text = (
        "Activations with trainable parameters, in evaluation mode: f(x) after the last epoch minus f₀(x) "
        "before the first, in each layer, numbered from the input. If channels have parameters of their own, "
        "f and f₀ are means over channels that all have the input x. Runs that diverged are left out. "
    )
    lines = [line for panel in panels for line in panel.lines]
    return Plot(LEARNT_FIGURE, panels, text + medians(lines, results.study.seeds))


def _kept(results: Results, run: Run) -> Kept:
    folder = RunFolder(results.root, run)
    finished = run.id in results.results and not results.has_diverged(run)
    file = folder.path / MATRICES
    return read_json(file, Kept, folder.remedy) if finished and file.exists() else {}


def _learnt_lines(runs: Sequence[Kept]) -> Iterator[Line]:
    """Yield a line for each layer: the change of f, and its spread over channels if these differ."""
    layers = {int(name) for run in runs for name in run[LEARNT] if name != "x"}
    for layer in map(str, sorted(layers)):
        of_layer = [run for run in runs if layer in run[LEARNT] and layer in run[INITIAL]]
        if not of_layer:
            continue
        start = np.array([run[INITIAL][layer] for run in of_layer])
        band = median_band(np.array([run[LEARNT][layer] for run in of_layer]) - start)

        # Put the lowest and highest channel in place of the interval over seeds.
        lowest = [run[LOWEST][layer] for run in of_layer if layer in run.get(LOWEST, {})]
        highest = [run[HIGHEST][layer] for run in of_layer if layer in run.get(HIGHEST, {})]
        over_channels = len(lowest) == len(highest) == len(of_layer)
        if over_channels:
            low, high = np.array(lowest) - start, np.array(highest) - start
            band = band._replace(low=np.median(low, axis=0), high=np.median(high, axis=0))

        x = np.array(of_layer[0][LEARNT]["x"])
        curve = Curve(x, band, len(of_layer), over_channels=over_channels)
        yield Line(f"layer {layer}", LEARNT, curve, None)
