"""What a figure of a study shows, before it is drawn: lines, panels and caption, from the study file.

An entry of a study file's ``figures``::

    name: curves                        # of the files
    lines: model.activation             # grid key: a line for each of its values
    fixed: {model.optimizer.lr: 1e-3}   # grid values drawn; without it the chosen ones
    y: {val/loss: heldout}              # metric: name of its published curve, or null
    label: log loss                     # of the y axis
    percent: false                      # fractions drawn in percent
    panels:                             # each with keys of its own over the entry's
      - {title: no dropout, where: {model.network.dropout: 0.0}, published: MNIST no-dropout, ylim: [0, 0.16]}
    published: {file: data/published/gelu_curves.csv, names: {gelu_tanh: GELU}}

The published file has the columns ``panel,act,curve,epoch,value``, values in the unit that is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from actlab.analysis.results import Curve, Group, Results, matches, name
from actlab.errors import ActlabError, unknown
from actlab.resources import resource
from actlab.studies.plan import label

_ENTRY = ("name", "lines", "fixed", "y", "label", "percent", "panels", "published")
_PANEL = ("title", "where", "y", "label", "percent", "ylim", "published")
_PUBLISHED = ("file", "names")


@dataclass(frozen=True)
class Line:
    """A curve of a panel: whose, of which metric, ours and the published one (epochs and values)."""

    label: str
    metric: str
    ours: Curve
    published: tuple[Any, Any] | None


@dataclass(frozen=True)
class Panel:
    """What is drawn in one pair of axes."""

    title: str
    axis: str
    scale: float
    ylim: tuple[float, float] | None
    lines: list[Line]


@dataclass(frozen=True)
class Plot:
    """A figure before it is drawn: name of the file, panels with any line, caption."""

    name: str
    panels: list[Panel]
    caption: str


def read_entry(results: Results, entry: Mapping[str, Any]) -> Plot:
    """What an entry of the study file draws.

    Raises:
        ActlabError: see `draw`.
    """
    _check(entry, _ENTRY, "figure key")
    figure = str(entry.get("name", "curves"))
    keys = results.study.keys
    panels: list[Panel] = []
    chosen: list[str] = []
    published = _published(entry.get("published") or {})
    for panel in entry.get("panels") or [{}]:
        _check(panel, _PANEL, "panel key")
        if (source := panel.get("published")) and source not in (known := {key[0] for key in published}):
            raise unknown("panel of published curves", str(source), known, f"In figure {figure!r}.")
        for key in (entry.get("lines"), *panel.get("where", {}), *entry.get("fixed", {})):
            if key not in keys:
                raise unknown("grid key", str(key), keys, f"In figure {figure!r} of {results.study.name}.")
        lines = list(
            _lines(results, {**entry, **panel, "published": published}, panel.get("published"), chosen)
        )
        if lines:
            panels.append(_panel({**entry, **panel}, lines))
    if not panels:
        at = f" with {name(entry['fixed'])}" if entry.get("fixed") else ""
        study = results.study.name.removesuffix("-smoke")
        raise ActlabError(
            f"figure {figure!r}: no run{at} has finished under {results.root}; "
            f"run the study first: actlab study run {study}"
        )
    return Plot(figure, panels, _caption(results, entry, panels, chosen))


def _check(entry: Mapping[str, Any], allowed: tuple[str, ...], kind: str) -> None:
    for key in entry:
        if key not in allowed:
            raise unknown(kind, str(key), allowed)


def _panel(entry: Mapping[str, Any], lines: list[Line]) -> Panel:
    percent = bool(entry.get("percent", False))
    axis = str(entry.get("label") or lines[0].metric.replace("/", " ").replace("_", " "))
    ylim = entry.get("ylim")
    return Panel(
        str(entry.get("title", "")),
        f"{axis} (%)" if percent else axis,
        100.0 if percent else 1.0,
        (float(ylim[0]), float(ylim[1])) if ylim else None,
        lines,
    )


def _lines(results: Results, entry: Mapping[str, Any], panel: str | None, chosen: list[str]) -> Iterator[Line]:
    """The lines of a panel, in the order of the study's grid; tuned values are noted in ``chosen``."""
    metrics: Mapping[str, str | None] = entry.get("y") or {results.study.select.metric: None}
    for metric in metrics:
        results.check_metric(metric)
    for text, group, fixed in _subjects(results, entry):
        setting = results.chosen(group)
        if setting and not fixed and setting.tuned and (note := f"{text}: {name(setting.tuned)}") not in chosen:
            chosen.append(note)
        for metric, curve in metrics.items():
            if ours := results.curve(group, metric, fixed):
                yield Line(text, metric, ours, entry["published"].get((panel, text, curve)))


def _subjects(results: Results, entry: Mapping[str, Any]) -> Iterator[tuple[str, Group, dict[str, Any]]]:
    """Whose lines a panel draws: label, group and the tuned values that are fixed.

    Raises:
        ActlabError: when the panel leaves open which of several groups a line is.
    """
    key, tune = entry["lines"], results.study.select.tune
    wanted = {**entry.get("fixed", {}), **entry.get("where", {})}
    fixed = {k: v for k, v in wanted.items() if k in tune}
    compared = {k: v for k, v in wanted.items() if k not in tune}
    seen: dict[str, Group] = {}
    for group in (g for g in results.groups if matches(compared, g.point)):
        values = [s.tuned[key] for s in group.settings] if key in tune else [group.point[key]]
        for value in values:
            if (other := seen.setdefault(label(value), group)) is not group:
                open_keys = [k for k in group.point if group.point[k] != other.point[k]]
                raise ActlabError(
                    f"figure {entry.get('name')!r}: {label(value)} is at several grid points; "
                    f"give 'where' or 'fixed' a value of {' and '.join(open_keys)}"
                )
            yield label(value), group, {**fixed, key: value} if key in tune else fixed


def _published(entry: Mapping[str, Any]) -> dict[tuple[str, str, str], tuple[Any, Any]]:
    """Epochs and values of the published curves by panel, our label and curve."""
    _check(entry, _PUBLISHED, "key of published curves")
    if not entry:
        return {}
    path = Path(str(entry["file"]))
    frame = pd.read_csv(path if path.is_file() else resource(str(entry["file"])))
    names: Mapping[str, str] = entry.get("names", {})
    return {
        (str(panel), ours, str(curve)): (rows["epoch"].to_numpy(), rows["value"].to_numpy())
        for (panel, act, curve), rows in frame.groupby(["panel", "act", "curve"])
        for ours, theirs in names.items()
        if theirs == act
    }


def _caption(results: Results, entry: Mapping[str, Any], panels: list[Panel], chosen: list[str]) -> str:
    lines = [line for panel in panels for line in panel.lines]
    counts = sorted({line.ours.n for line in lines})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    kinds = {"interval": "bootstrap 95 % interval of the median", "range": "their range"}
    spread = " or ".join(kinds[kind] for kind in sorted({line.ours.band.kind for line in lines}))
    seeds = ", ".join(map(str, results.study.seeds))
    parts = [
        f"Lines: median of {runs} run{'s' * (counts[-1] > 1)} (seeds {seeds})."
        + (f" Shaded: {spread}." if counts[-1] > 1 else "")
    ]
    if entry.get("fixed"):
        parts.append(f"Drawn at {name(entry['fixed'])}.")
    if chosen:
        parts.append(f"Tuned values chosen by {results.study.select.metric}: {'; '.join(chosen)}.")
    if any(line.published for line in lines):
        source = results.study.published.get("source", "")
        parts.append("Dotted: published" + (f", {source}." if source else "."))
    if results.diverged:
        parts.append(f"{results.diverged} of the study's runs diverged, the worst value from there on.")
    if results.missing:
        parts.append(f"Unfinished: {len(results.results)} of {len(results.runs)} runs.")
    return " ".join(parts)
