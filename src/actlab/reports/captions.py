"""The caption of a figure: runs shown, where they were read, selected settings and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actlab.analysis.results import Results
from actlab.reports.panels import Line, Panel
from actlab.studies.points import Point

INTERVAL = "the interval between order statistics of the median, which covers at least 95 %"


def caption(results: Results, panels: Sequence[Panel], fixed: Mapping[str, Any]) -> str:
    """Return the caption as one paragraph; ``fixed`` are grid values at which the whole figure is drawn."""
    study, lines = results.study, [line for panel in panels for line in panel.lines]
    parts = [medians(lines, study.seeds)]
    if read := _with_titles([(panel.title, panel.read) for panel in panels]):
        parts.append(f"Values: {'; '.join(read)}.")
    if fixed:
        parts.append(f"Drawn at {Point(fixed).in_words(study.compare, results.text)}.")
    if absent := _with_titles([(panel.title, ", ".join(panel.absent)) for panel in panels]):
        parts.append(f"Without a run there, so not drawn: {'; '.join(absent)}.")
    over_epochs = [line for panel in panels if panel.over_epochs for line in panel.lines]
    if cut := list(dict.fromkeys(line.label for line in over_epochs if line.ours.cut)):
        parts.append(f"A line ends where the first of its runs has ended: {', '.join(cut)}.")
    chosen: dict[str, list[tuple[str, str]]] = {}
    for panel in panels:
        for label, words in panel.chosen.items():
            chosen.setdefault(label, []).append((panel.title, words))
    if chosen:
        each = [f"{label}: {' and '.join(_with_titles(words))}" for label, words in chosen.items()]
        parts.append(f"Tuned values chosen by {study.select.metric}: {'; '.join(each)}.")
    if any(line.published for line in lines):
        source = study.published.get("source", "")
        parts.append("Dotted: published" + (f", {source}." if source else "."))
    if results.diverged:
        parts.append(
            f"{results.diverged} of the study's runs diverged and count as the worst value from there on."
        )
    if results.missing:
        parts.append(f"Unfinished: {len(results.results)} of {len(results.runs)} runs.")
    return " ".join(parts)


def medians(lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """Return how many runs lines are medians of, and what is shaded."""
    counts = sorted({line.ours.n for line in lines})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    text = f"Lines: median of {runs} run{'s' * (counts[-1] > 1)} (seeds {spans(seeds)})."
    if counts[-1] < 2:
        return text
    kinds = {"interval": INTERVAL, "range": "their range"}
    spread = " or ".join(kinds[kind] for kind in sorted({line.ours.band.kind for line in lines}))
    return f"{text} Shaded: {spread}."


def _with_titles(words: Sequence[tuple[str, str]]) -> list[str]:
    """Return each text once, with its title if the texts differ, from pairs of title and text."""
    differ = len({text for _, text in words}) > 1
    texts = [f"{text} ({title})" if differ and title else text for title, text in words if text]
    return list(dict.fromkeys(texts))


def spans(numbers: Sequence[int]) -> str:
    """Return whole numbers as text, three or more consecutive ones as a span: ``0, 2, 5–19``."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    parts = [f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in found]
    return ", ".join(parts)
