"""The scoreboard as files: ``scoreboard.md``, ``scoreboard.json`` and the figure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from actlab.reports import style
from actlab.reports.canvas import mpl
from actlab.reports.tables import EDGE
from actlab.scoreboard.figure import OVER, draw, panels
from actlab.scoreboard.scores import Scoreboard
from actlab.scoreboard.sentences import sentence
from actlab.storage.files import write_atomically

NAME = "scoreboard"  # of the files, without suffix


def write(scoreboard: Scoreboard, folder: Path) -> list[Path]:
    """Write the page, its numbers and the figure as SVG and PNG; return the paths."""
    page = folder / f"{NAME}.md"
    numbers = folder / f"{NAME}.json"
    write_atomically(page, to_markdown(scoreboard))
    write_atomically(numbers, to_json(scoreboard))
    with mpl.rc_context(style.RC):
        figure = draw(scoreboard)
    return [page, numbers, *style.save(figure, folder / NAME)]


def to_markdown(scoreboard: Scoreboard) -> str:
    """Return a table of ratios, a sentence for each activation, and how to read both."""
    columns = panels(scoreboard)
    rule = "|---" * (len(columns) + 1)
    lines = [f"| | {' | '.join(columns)} |", f"{rule}|"]

    # A row for each activation
    for standing in scoreboard.standings:
        edges = {score.name for score in standing.on if score.edge}
        cells = [standing.label]
        for name, ratios in columns.items():
            text = str(ratios.get(standing.label, "–") or "failed")
            if name == OVER and standing.over and standing.failures:
                text += f", on {standing.over.tasks} tasks"
            if name in edges:
                text += EDGE
            cells.append(text)
        lines.append(f"| {' | '.join(cells)} |")

    # How to read the table, and each activation in words
    seeds = "with the interval of other seeds (95 %)"
    edge = f"{EDGE}: the chosen setting is an end of what was tried"
    lines += ["", f"Error divided by that of {scoreboard.reference}, {seeds}.{edge}.", ""]
    for standing in scoreboard.standings:
        lines.append(f"- {sentence(standing, scoreboard.reference)}")
    return "\n".join(lines) + "\n"


def to_json(scoreboard: Scoreboard) -> str:
    """Return the standings with all digits, without p."""
    content = asdict(scoreboard)
    for standing in content["standings"]:
        for score in standing["on"]:
            del score["p"]
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
