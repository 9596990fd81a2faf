"""The scoreboard as files: ``scoreboard.md``, ``scoreboard.json``, the figure and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from actlab.analysis.choice import STABLE
from actlab.reports import style
from actlab.reports.canvas import mpl
from actlab.scoreboard import html_page
from actlab.scoreboard.figure import draw, tasks_of
from actlab.scoreboard.html_page import Curve
from actlab.scoreboard.scores import Score, Scoreboard
from actlab.scoreboard.sentences import FAILS, NONE, not_run, ratio_text, sentence
from actlab.storage.files import write_atomically

NAME = "scoreboard"  # of the files, without suffix
_READING = """\
- **Rank.** By the mean rank over tasks, among all activations with the same data sets. Failures
  share the last rank.
- **P.** Probability that a run is better than a run of {reference}. A failed run loses.
- **Error.** Divided by the error of {reference}, in geometric means over runs, data sets and tasks.
  Data sets on which {reference} fails are left out. An activation that fails on another one has no
  mean.
- **Intervals.** 95 %, of other seeds: both of those that select settings and of those that score.
  They are not corrected for their number.
- **Fails.** Most runs diverge, stay at chance level, or gain less than {percent} % of the way from
  chance to the best activation on the data set. For version 1 of the scoreboard this condition
  was stated after the runs.
- **Edge.** The selected setting is an end of what was tried. **Unstable.** Fewer than {stable} % of
  resamples of the selecting seeds select the setting. Further data sets of a task inherit both."""


def write(
    scoreboard: Scoreboard, folder: Path, curves: Mapping[str, Curve] | None = None
) -> list[Path]:
    """Write the tables, their numbers, the figure as SVG and PNG, and the page for browsers.

    Args:
        scoreboard: all activations.
        folder: of the files.
        curves: points of the curves of activations, by label; others have no picture.

    Returns:
        The paths.
    """
    page = folder / f"{NAME}.md"
    numbers = folder / f"{NAME}.json"
    write_atomically(page, to_markdown(scoreboard))
    write_atomically(numbers, to_json(scoreboard))
    with mpl.rc_context(style.RC):
        figure = draw(scoreboard)
    figures = style.save(figure, folder / NAME)
    reading = _reading(scoreboard)
    html = html_page.write(scoreboard, folder, reading, curves or {})
    return [page, numbers, *figures, html]


def to_markdown(scoreboard: Scoreboard) -> str:
    """Return ranks, ratios by task and by data set, and each activation in words."""
    # The most robust table comes first
    parts = [
        f"# Scoreboard, version {scoreboard.version}",
        *not_run(scoreboard),
        "## Ranks",
        _ranks(scoreboard),
        "## Error by task",
        _by_task(scoreboard),
        "## Error by data set",
        _by_data(scoreboard),
        "## How to read the tables",
        _reading(scoreboard),
        "## In words",
    ]

    # Each activation in words
    sentences = []
    for standing in scoreboard.standings:
        sentences.append(f"- {sentence(standing, scoreboard)}")
    return "\n\n".join([*parts, "\n".join(sentences)]) + "\n"


def _reading(scoreboard: Scoreboard) -> str:
    """Return how to read the tables, as a list in Markdown."""
    return _READING.format(
        reference=scoreboard.reference,
        percent=f"{100 * scoreboard.least_gain:g}",
        stable=f"{100 * STABLE:g}",
    )


def _ranks(scoreboard: Scoreboard) -> str:
    """Return the table of ranks, and of probabilities to be better by task."""
    # A dash for tasks without runs
    tasks = tasks_of(scoreboard)
    rows = []
    for standing in scoreboard.standings:
        row = [standing.label, NONE, NONE]
        if standing.rank:
            among = f"{standing.rank.place} of {standing.rank.among}"
            row = [standing.label, among, f"{standing.rank.mean:.1f}"]
        for name in tasks:
            text = NONE
            if name in standing.tasks:
                text = f"{standing.tasks[name].better:.2f}"
            row.append(text)
        rows.append([*row, f"{standing.better:.2f}"])
    head = ["", "rank", "mean rank", *(f"P, {name}" for name in tasks), "P, mean"]
    return _table(head, rows)


def _by_task(scoreboard: Scoreboard) -> str:
    """Return the table of ratios by task, and of the geometric mean over tasks."""
    # The ratio of the reference to itself is 1
    tasks = tasks_of(scoreboard)
    rows = []
    for standing in scoreboard.standings:
        row = [standing.label]
        for name in tasks:
            text = NONE
            if standing.label == scoreboard.reference:
                text = "1"
            elif name in standing.tasks:
                text = ratio_text(standing.tasks[name])
            row.append(text)

        # No mean leaves out a failure
        mean = NONE
        if standing.over:
            mean = str(standing.over.here)
        elif any(task.fails for task in standing.tasks.values()):
            mean = FAILS
        rows.append([*row, mean])
    return _table(["", *tasks, "geometric mean"], rows)


def _by_data(scoreboard: Scoreboard) -> str:
    """Return the table of ratios by data set, with marks of the selected settings."""
    # Data sets in the order of their first score
    names: dict[str, None] = {}
    for standing in scoreboard.standings:
        names |= dict.fromkeys(score.name for score in standing.on)

    # A dash for data sets without runs
    rows = []
    for standing in scoreboard.standings:
        scores = {score.name: score for score in standing.on}
        row = [standing.label]
        for name in names:
            text = NONE
            if name in scores:
                text = _cell(scores[name], standing.label == scoreboard.reference)
            row.append(text)
        rows.append(row)
    return _table(["", *names], rows)


def _cell(score: Score, is_reference: bool) -> str:
    """Return a ratio, or why there is none, with the marks of the selected setting."""
    text = str(score.ratio or NONE)
    if score.fails:
        text = FAILS
    elif is_reference:
        text = "1"

    marks = []
    if score.edge:
        marks.append("edge")
    if score.unstable:
        marks.append("unstable")
    if marks:
        text += f" ({', '.join(marks)})"
    return text


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", f"{'|---' * len(head)}|"]
    for row in rows:
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def to_json(scoreboard: Scoreboard) -> str:
    """Return the standings with all digits, without p."""
    # Only versions in progress have data without results
    content = asdict(scoreboard)
    if not scoreboard.not_run:
        del content["not_run"]
    for standing in content["standings"]:
        for score in standing["on"]:
            del score["p"]
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
