"""The board as files: ``board.md``, ``board.json`` and the figure ``board``, tasks × activations."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from actlab.analysis.board import OnData, Scores, Standing, sentence
from actlab.analysis.differences import Estimate
from actlab.analysis.hierarchy import OverTasks, Ratio
from actlab.reports import style
from actlab.reports.canvas import Axes, Figure, mpl
from actlab.reports.tables import EDGE
from actlab.storage.files import write_atomically

OVER = "over these tasks"
_CAPTION = (
    "Error divided by that of {reference}: geometric means over runs at chosen settings, with 95 % intervals "
    "of other seeds; below 1 is better. Each panel has its own axis. Crosses: most runs failed. Open circles: "
    "over the other tasks alone. {markers}Other data, tasks and sizes may order activations otherwise."
)
_WIDTH, _ROW, _HEAD = 6.75, 0.22, 0.62  # inches
_COLUMNS = 4
_MARKERS = {"o": "circles", "s": "squares", "^": "triangles", "D": "diamonds"}  # the data sets of a panel


def write(scores: Scores, folder: Path) -> list[Path]:
    """Write the three, the figure as SVG and PNG; return the paths."""
    texts = {"board.md": to_markdown(scores), "board.json": to_json(scores)}
    for name, text in texts.items():
        write_atomically(folder / name, text)
    with mpl.rc_context(style.RC):
        figure = draw(scores)
    return [*(folder / name for name in texts), *style.save(figure, folder / "board")]


def panels(scores: Scores) -> dict[str, dict[str, Ratio | None]]:
    """Return the ratios of each panel by activation: over tasks, on each data set; None where it failed."""
    shown: dict[str, dict[str, Ratio | None]] = {OVER: {}}
    for standing in scores.standings:
        if standing.over:
            shown[OVER][standing.label] = standing.over.here
        for data in standing.on:
            shown.setdefault(data.name, {})[standing.label] = data.ratio
    return shown


def draw(scores: Scores) -> Figure:
    """Return the figure: a panel over tasks, and one for each task and its parts with all data sets."""
    drawn = dict[str, dict[str, dict[str, Ratio | None]]]()  # panel → data set → label → ratio
    for name, ratios in panels(scores).items():
        task, _, on = name.partition(": ")
        data, _, part = on.partition(", block ")
        drawn.setdefault(f"{task}, {part}" if part else task, {})[data] = ratios
    labels = [standing.label for standing in scores.standings]
    reference, height = scores.reference, _HEAD + _ROW * len(labels)
    rows = -(-len(drawn) // _COLUMNS)
    columns = -(-len(drawn) // rows)  # as few empty places as possible
    caption = _CAPTION.format(reference=reference, markers=_markers(drawn))
    title = f"Error relative to {reference}"
    figure, axes = style.framed("board", len(drawn), columns, _WIDTH, [height] * rows, title, caption)
    for number, (ax, (name, of)) in enumerate(zip(axes, drawn.items(), strict=True)):
        _draw_panel(ax, name, [*of.values()], scores)
        style.name_rows(ax, labels, scores.board.users, shown=number % columns == 0)
    return figure


def _markers(drawn: Mapping[str, Collection[str]]) -> str:
    """Return which marker stands for which data set, where a panel has several."""
    several = {name.partition(",")[0]: data for name, data in drawn.items() if len(data) > 1}
    named = {task: map(" ".join, zip(data, _MARKERS.values(), strict=False)) for task, data in several.items()}
    return "".join(f"{task.capitalize()}: {', '.join(names)}. " for task, names in named.items())


def _draw_panel(ax: Axes, name: str, data: Sequence[Mapping[str, Ratio | None]], scores: Scores) -> None:
    colours = style.colours((standing.label for standing in scores.standings), scores.board.users)
    ax.set_title(name)
    ax.axvline(1, color=style.GREY, lw=0.8, zorder=1)
    ends = [end for ratios in data for ratio in ratios.values() if ratio for end in ratio]
    low, high = min([0.99, *ends]), max([1.01, *ends])
    for place, (ratios, marker) in enumerate(zip(data, cycle(_MARKERS))):
        for row, standing in enumerate(scores.standings):
            if standing.label not in ratios:
                continue
            y = row + 0.7 * ((place + 0.5) / len(data) - 0.5)
            colour, ratio = colours[standing.label], ratios[standing.label]
            if ratio is None:
                ax.plot(0.97, y, "x", color=colour, transform=ax.get_yaxis_transform(), ms=3.5, mew=1)
            else:
                ax.hlines(y, ratio.low, ratio.high, color=colour, lw=1.4, zorder=2)
                inside = "white" if name == OVER and standing.failures else colour
                ax.plot(ratio.value, y, marker, color=colour, mfc=inside, ms=3, zorder=3)
    style.show_ratios(ax, low, high, most=3)
    ax.set_xlim(low / (high / low) ** 0.06, high * (high / low) ** 0.06)


def to_markdown(scores: Scores) -> str:
    """Return the board as a table, a sentence for each activation, and how to read both."""
    shown, reference = panels(scores), scores.reference
    lines = ["| | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for standing in scores.standings:
        edges = {data.name for data in standing.on if data.edge}
        texts = {name: str(of.get(standing.label, "–") or "failed") for name, of in shown.items()}
        first, *cells = (text + EDGE * (name in edges) for name, text in texts.items())
        few = f", on {standing.over.tasks} tasks" if standing.over and standing.failures else ""
        lines.append(f"| {standing.label} | {' | '.join([first + few, *cells])} |")
    reading = f"Error divided by that of {reference}, with the interval of other seeds (95 %)."
    lines += ["", f"{reading}{EDGE}: the chosen setting is an end of what was tried.", ""]
    lines += [f"- {sentence(standing, reference)}" for standing in scores.standings]
    return "\n".join(lines) + "\n"


def to_json(scores: Scores) -> str:
    """Return the standings with all digits."""
    file = {"reference": scores.reference, "equivalence": scores.file["equivalence"]}
    standings = [
        {"label": standing.label, "own": standing.label in scores.board.users, **_plain(standing)}
        for standing in scores.standings
    ]
    return json.dumps({**file, "standings": standings}, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return named tuples as dictionaries, and an estimate as its value."""
    if isinstance(value, Estimate):
        return value.value
    if isinstance(value, Standing | OnData | OverTasks | Ratio):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value
