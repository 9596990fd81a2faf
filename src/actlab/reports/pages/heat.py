"""How settings were selected: a heat map of the selection metric by group and setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from actlab.analysis.results import Results
from actlab.config.keys import short_names
from actlab.reports.tables import NONE, number
from actlab.studies.groups import Group, Setting


def heat_map(results: Results) -> dict[str, Any] | None:
    """Return medians of the selection metric over the runs that chose, shaded from a row's worst to its best.

    None for a study without a grid point of several settings, before any run has ended, or if the plan lacks
    runs that chose.
    """
    if results.chose:
        if not results.chose <= {run.id for run in results.runs}:
            return None
        ended = {name: result for name, result in results.results.items() if name in results.chose}
        results = replace(results, results=ended)
    settings = list(dict.fromkeys(_text(results, s) for group in results.groups for s in group.settings))
    several = any(len(group.settings) > 1 for group in results.groups)
    if not several or len(settings) < 2 or not results.results:
        return None
    return {
        "value": results.study.select.value,
        "points": ", ".join(short_names(results.groups[0].point).values()),
        "tuned": ", ".join(short_names(results.study.select.tune).values()),
        "settings": settings,
        "rows": [
            {
                "label": ", ".join(results.text(key, value) for key, value in group.point.items()) or "all",
                "cells": _row(results, group, settings),
            }
            for group in results.groups
        ],
    }


def _text(results: Results, setting: Setting) -> str:
    return ", ".join(results.text(key, value) for key, value in setting.tuned.items())


def _row(results: Results, group: Group, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a cell per setting; empty if the group was not run with it or none of these runs has ended."""
    column, chosen = results.selected_by, results.chosen(group)
    tried = {_text(results, setting): setting for setting in group.settings}
    ended = {text: sum(r.id in results.results for r in setting.runs) for text, setting in tried.items()}
    begun = [text for text, n in ended.items() if n]
    scores = dict(zip(begun, results.scores([tried[text] for text in begun]), strict=True))
    return [
        {
            "text": number(scores[text], column) if text in scores else NONE,
            "shade": _shade(text, scores, column.mode),
            "n": ended.get(text, 0),
            "chosen": chosen is not None and tried.get(text) is chosen,
        }
        for text in texts
    ]


def _shade(text: str, row: Mapping[str, float], mode: str) -> float:
    """Return 0 for the row's worst finite score to 100 for its best; 0 without a finite score."""
    known = sorted((score for score in row.values() if math.isfinite(score)), reverse=mode == "max")
    if not math.isfinite(score := row.get(text, math.nan)):
        return 0.0
    best, worst = known[0], known[-1]
    return round(100 * (worst - score) / (worst - best), 1) if worst != best else 100.0
