"""What a figure of a study shows, before it is drawn: panels, lines and caption, read from the study file.

An entry of a study file's ``figures``::

    name: curves                        # of the files
    lines: model.activation             # grid key: a line for each of its values; by default what is compared
    fixed: {model.optimizer.lr: 1e-3}   # tuned values to draw in place of the chosen ones
    y: {val/loss: heldout}              # metric: name of its published curve, or null
    label: log loss                     # of the y axis
    percent: false                      # fractions drawn in percent
    panels:                             # each with keys of its own over the entry's
      - {title: no dropout, where: {model.network.dropout: 0.0}, published: MNIST no-dropout, ylim: [0, 0.16]}
    published: {file: data/published/gelu_curves.csv, names: {gelu_tanh: GELU}}

The x axis shows epochs. With ``x`` it shows the numbers in the conditions that a metric was measured under::

    x: noise                            # noise=0, noise=0.5, …
    xlabel: strength of the noise       # by default the key itself
    at: last                            # where each run is read, as for a table column
    condition: layer=3                  # the other parts of the conditions, if they have any
    y: {noise/test/error: null}

The published file has the columns ``panel,act,curve,epoch,value``: ``epoch`` is the place on the x axis, and
the values are in the unit that is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from actlab.analysis import curves
from actlab.analysis.columns import Column, column, is_epoch, place
from actlab.analysis.conditions import along
from actlab.analysis.points import in_words, matches
from actlab.analysis.results import Results
from actlab.errors import ActlabError, unknown
from actlab.reports.captions import caption
from actlab.reports.panels import Line, Panel, Plot
from actlab.reports.published import PublishedCurves, read_curves
from actlab.studies.groups import Group
from actlab.studies.plan import SMOKE_SUFFIX

_SHARED = ("y", "x", "xlabel", "at", "condition", "label", "percent", "log", "published")
_ENTRY = ("name", "lines", "fixed", "panels", "caption", *_SHARED)
_PANEL = ("title", "where", "ylim", *_SHARED)
_READ = {
    "last": "at the last epoch",
    "best": "the best of each run",
    "best_epoch": "the epoch of the best of each run",
    "selected": "at the epoch of the best {metric}",
}
EPOCH = "epoch"


def read(results: Results) -> list[Plot]:
    """What the figures of a study show.

    Raises:
        ActlabError: for an entry that is not understood, or without a finished run to draw.
    """
    found = (read_entry(results, entry) for entry in results.study.figures)
    return [plot for plot in found if plot is not None]


def read_entry(results: Results, entry: Mapping[str, Any]) -> Plot | None:
    """What an entry of the study file draws; None where every run diverged before it recorded any of it.

    Raises:
        ActlabError: for an entry that is not understood, or without a finished run to draw.
    """
    figure = str(entry.get("name", "curves"))
    published = read_curves(entry.get("published") or {}, figure)
    panels = []
    for panel in checked(results, entry):
        if lines := list(_lines(results, panel, published)):
            panels.append(_panel(results, panel, lines))
    if not panels and results.results and not results.finished:
        return None
    if not panels:
        raise _nothing(results, entry, figure)
    said = " ".join(filter(None, [caption(results, panels, entry.get("fixed", {})), entry.get("caption")]))
    return Plot(figure, panels, said)


def checked(results: Results, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels of an entry, each with the keys that it shares with the others.

    Raises:
        ActlabError: for a key, metric, condition or published curve that does not exist, and where a line could
            be of several groups.
    """
    _check_keys(entry, _ENTRY, "figure key")
    figure = str(entry.get("name", "curves"))
    published = read_curves(entry.get("published") or {}, figure)
    panels = []
    for number, own in enumerate(entry.get("panels") or [{}], 1):
        _check_keys(own, _PANEL, "panel key")
        panel = {"lines": results.study.compare, **entry, **own, "published": own.get("published")}
        panel |= {"name": figure, "number": number}
        _check_names(results, panel, published)
        _ = list(_subjects(results, panel))
        panels.append(panel)
    return panels


def _check_keys(entry: Mapping[str, Any], allowed: tuple[str, ...], kind: str) -> None:
    for key in entry:
        if key not in allowed:
            raise unknown(kind, str(key), allowed)


def _check_names(results: Results, panel: Mapping[str, Any], published: PublishedCurves) -> None:
    """Raise an ActlabError for a grid key, metric, condition or published curve that does not exist."""
    study, where = results.study, f"In figure {panel['name']!r} of {results.study.name}."
    for key in (panel["lines"], *panel.get("where", {}), *panel.get("fixed", {})):
        if key not in study.keys:
            raise unknown("grid key", str(key), study.keys, where)
    if _over_epochs(panel) and "at" in panel:
        raise ActlabError(f"'at' says where runs are read for an 'x' of conditions, not of epochs. {where}")
    for metric, curve in _metrics(results, panel).items():
        if panel["published"]:
            published.check(panel["published"], curve)
        condition = _column(results, panel, metric).condition
        if not _over_epochs(panel) and metric in results.conditions:
            along(results.conditions[metric], panel["x"], condition)
        else:
            results.check(metric, condition)


def _nothing(results: Results, entry: Mapping[str, Any], figure: str) -> ActlabError:
    """The error for a figure without any line."""
    at = f" with {in_words(entry['fixed'], results.study.compare, results.text)}" if entry.get("fixed") else ""
    study = results.study.name.removesuffix(SMOKE_SUFFIX)
    return ActlabError(
        f"figure {figure!r}: no run{at} under {results.root} has finished and recorded what it shows; "
        f"run the study first: actlab study run {study}"
    )


def _over_epochs(panel: Mapping[str, Any]) -> bool:
    return bool(panel.get("x", EPOCH) == EPOCH)


def _metrics(results: Results, panel: Mapping[str, Any]) -> Mapping[str, str | None]:
    """The metrics of a panel with the names of their published curves."""
    return panel.get("y") or {results.study.select.metric: None}


def _column(results: Results, panel: Mapping[str, Any], metric: str) -> Column:
    """A metric of a panel, and where its runs are read."""
    given = {key: panel[key] for key in ("at", "condition") if key in panel}
    return column({"metric": metric, **given}, results.study)


def _panel(results: Results, panel: Mapping[str, Any], lines: list[Line]) -> Panel:
    percent = bool(panel.get("percent", False)) and not is_epoch(panel.get("at", ""))
    axis = str(panel.get("label") or lines[0].metric.replace("/", " ").replace("_", " "))
    ylim = panel.get("ylim")
    if panel.get("log") and ylim and not ylim[0] > 0:
        raise ActlabError(f"figure {panel['name']!r}: 'ylim' {ylim} on a logarithmic axis: give limits above 0")
    return Panel(
        number=panel["number"],
        title=str(panel.get("title", "")),
        xlabel=str(panel.get("xlabel") or panel.get("x", EPOCH)),
        ylabel=f"{axis} (%)" if percent else axis,
        over_epochs=_over_epochs(panel),
        scale=100.0 if percent else 1.0,
        ylim=(float(ylim[0]), float(ylim[1])) if ylim else None,
        lines=lines,
        read=_read(results, panel),
        chosen=_chosen(results, panel),
        absent=_absent(results, panel),
        log=bool(panel.get("log", False)),
    )


def _lines(results: Results, panel: Mapping[str, Any], published: PublishedCurves) -> Iterator[Line]:
    """The lines of a panel, in the order of the study's grid."""
    for value, group, fixed in _subjects(results, panel):
        text = results.text(panel["lines"], value)
        for metric, curve in _metrics(results, panel).items():
            shown = _column(results, panel, metric)
            ours = (
                curves.over_epochs(results, group, shown, fixed)
                if _over_epochs(panel)
                else curves.over_conditions(results, group, shown, panel["x"], fixed)
            )
            if ours:
                theirs = None if results.study.samples else panel["published"], value, curve
                yield Line(text, metric, ours, published.get(*theirs), published.name(*theirs))


def _subjects(results: Results, panel: Mapping[str, Any]) -> Iterator[tuple[Any, Group, dict[str, Any]]]:
    """Whose lines a panel draws: grid value, group and the tuned values that are fixed.

    Raises:
        ActlabError: when the panel leaves open which of several groups a line is.
    """
    key, tune = panel["lines"], results.study.select.tune
    wanted = {**panel.get("fixed", {}), **panel.get("where", {})}
    fixed = {k: v for k, v in wanted.items() if k in tune}
    compared = {k: v for k, v in wanted.items() if k not in tune}
    seen: dict[str, Group] = {}
    for group in (g for g in results.groups if matches(compared, g.point)):
        values = [s.tuned[key] for s in group.settings] if key in tune else [group.point[key]]
        for text, value in {results.text(key, value): value for value in values}.items():
            if (other := seen.setdefault(text, group)) is not group:
                open_keys = [k for k in group.point if group.point[k] != other.point[k]]
                raise ActlabError(
                    f"figure {panel['name']!r}: {text} is at several grid points; "
                    f"give 'where' or 'fixed' a value of {' and '.join(open_keys)}"
                )
            yield value, group, {**fixed, key: value} if key in tune else fixed


def _read(results: Results, panel: Mapping[str, Any]) -> str:
    """Where the runs of a panel are read and under which condition; empty for epochs without a condition."""
    at = str(panel.get("at", "last"))
    over = "at " if place(at).startswith("epoch") else "" if place(at).startswith("at ") else "the "
    words = _READ.get(at, over + place(at)).format(metric=results.study.select.metric)
    condition = f"under {panel['condition']}" if panel.get("condition") else ""
    return ", ".join(filter(None, ["" if _over_epochs(panel) else words, condition]))


def _absent(results: Results, panel: Mapping[str, Any]) -> tuple[str, ...]:
    """Whose line is missing because no setting of theirs has the values that the panel is drawn at."""
    lacking = (v for v, group, fixed in _subjects(results, panel) if not curves.fitting(group, fixed))
    return tuple(results.text(panel["lines"], value) for value in lacking)


def _chosen(results: Results, panel: Mapping[str, Any]) -> dict[str, str]:
    """The tuned values that were chosen for each line of a panel, in words."""
    found = {}
    for value, group, fixed in _subjects(results, panel):
        setting = curves.setting(results, group, fixed)
        if setting and (chosen := {k: v for k, v in setting.tuned.items() if k not in fixed}):
            found[results.text(panel["lines"], value)] = in_words(chosen, text=results.text)
    return found
