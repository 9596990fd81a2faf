"""What a budget of tuning buys: ``python results/scoreboard/tuning.py`` writes tuning.md.

Of the K settings that were tried for an activation, k drawn without replacement have an expected
best score, the lowest median over the choosing seeds of the metric that selects; with k = K that of
the chosen setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from actlab.analysis.wording import digits

HERE = Path(__file__).parent
ACTIVATION = "model.activation"
EQUATION = ["model.optimizer.lr", "model.network.gain"]
# Kept table, its metric, the keys of a setting, where, the sign that makes low good, the numbers of
# settings.
TASKS: dict[str, tuple[str, str, list[str], dict[str, str], int, list[int]]] = {
    "text, plain": (
        "gpt_gates",
        "val/loss@last",
        ["model.optimizer.lr"],
        {"block": "plain"},
        1,
        [1, 2, 4],
    ),
    "text, gated": (
        "gpt_gates",
        "val/loss@last",
        ["model.optimizer.lr"],
        {"block": "gated"},
        1,
        [1, 2, 4],
    ),
    "equation, waves": (
        "scoreboard/equations",
        "val/loss@last",
        EQUATION,
        {"block": "waves"},
        1,
        [1, 3, 9],
    ),
    "equation, hills": (
        "scoreboard/equations",
        "val/loss@last",
        EQUATION,
        {"block": "hills"},
        1,
        [1, 3, 9],
    ),
    "picture, dB": (
        "inr_image",
        "val/psnr@last",
        ["model.optimizer.lr", "model.network.omega"],
        {},
        -1,
        [1, 5, 12, 25],
    ),
    "classifier, error": (
        "scoreboard/mnist",
        "val/error@last",
        ["model.optimizer.lr"],
        {},
        1,
        [1, 2, 4],
    ),
}
HEAD = """# Expected best of k settings

`python results/scoreboard/tuning.py` computes this page from the runs that selected settings; a
test compares the two. The best of k settings is the best median over the three or five selecting
seeds, on validation data. Each number is its mean over all draws of k of the tried settings. For an
equation, it is the loss at held-out points. If the order changes from column to column, it depends
on the tuning budget.
"""


def best_of(scores: Sequence[float], number: int) -> float:
    """Return the expected lowest of ``number`` of the scores, drawn without replacement."""
    every = sorted(scores)
    ways = [math.comb(len(every) - 1 - rank, number - 1) for rank in range(len(every))]
    return sum(score * way for score, way in zip(every, ways, strict=True) if way) / math.comb(
        len(every), number
    )


def table(name: str) -> str:
    """Return the table of a task: a row an activation, the best at the largest budget first."""
    study, metric, keys, where, sign, numbers = TASKS[name]
    runs = pd.read_csv(HERE.parent / study / "choose" / "values.csv")
    for key, value in where.items():
        runs = runs[runs[key] == value]
    scores = (sign * runs.groupby([ACTIVATION, *keys], sort=False)[metric].median()).replace(
        np.nan, np.inf
    )
    curves = {
        str(activation): [sign * best_of(of.tolist(), number) for number in numbers]
        for activation, of in scores.groupby(level=0, sort=False)
    }
    lines = [f"## {name}", "", "| | " + " | ".join(f"k = {number}" for number in numbers) + " |"]
    lines.append("|---" * (1 + len(numbers)) + "|")
    for activation in sorted(curves, key=lambda of: sign * curves[of][-1]):
        cells = (
            digits(value) if math.isfinite(value) else "diverged" for value in curves[activation]
        )
        lines.append(f"| {activation} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page as Markdown."""
    return "\n\n".join([HEAD.rstrip(), *map(table, TASKS)]) + "\n"


if __name__ == "__main__":
    (HERE / "tuning.md").write_text(page(), encoding="utf-8")
