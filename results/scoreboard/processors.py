"""GELU against itself on another processor: ``results/scoreboard/processors.py`` (processors.md).

The kept runs of GELU on each first data set of the scoreboard stand beside runs of the same
settings and seeds on another processor (``processors/``): what differs is the order of float32
sums.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from actlab.analysis.wording import digits
from actlab.scoreboard import statistic

HERE = Path(__file__).parent
# Study of the kept runs, its column, the block, and whether values are decibels.
TASKS = {
    "text, plain": ("text", "gpt_gates", "test/loss@last", "plain", False),
    "text, gated": ("text", "gpt_gates", "test/loss@last", "gated", False),
    "equation": ("equation", "pinn_helmholtz", "test/relative_error@last", None, False),
    "picture": ("picture", "inr_image", "test/psnr@last", None, True),
    "classifier": ("classifier", "scoreboard/mnist", "test/error@last", None, False),
}
HEAD = """# GELU against itself on another processor

`python results/scoreboard/processors.py` computes this page; a test compares the two. It compares
the scoreboard's runs with runs of equal settings and seeds on another processor, with torch 2.13.0
and one thread. One processor is an AMD EPYC, the other an Intel Xeon. At first, only the last
digits of float32 sums differ. The runs of the classifier differ in the version of actlab, too.

- *ratio*: the ratio that the scoreboard would show for GELU under another name, with its 95 %
  interval.
- *same seed*: standard deviation of the logarithm of the ratio of two runs of one seed on both
  processors.
- *other seed*: the same standard deviation for two runs of different seeds.

| task | runs | ratio | same seed | other seed |
|---|---|---|---|---|
"""


def errors(folder: str, column: str, block: str | None, decibels: bool) -> pd.Series:
    """Return GELU's error by seed, at the selected setting, fresh seeds; squared for decibels."""
    runs = pd.read_csv(HERE.parent / folder / "values.csv")
    runs = runs[(runs["model.activation"] == "gelu") & (runs["chosen"] == 1) & (runs["seed"] >= 5)]
    values = (runs[runs["block"] == block] if block else runs).set_index("seed")[column]
    return 10 ** (-values / 10) if decibels else values


def page() -> str:
    """Return the page."""
    lines = []
    for name, (here, study, column, block, decibels) in TASKS.items():
        theirs = errors(study, column, block, decibels)
        ours = errors(f"scoreboard/processors/{here}", column, block, decibels)[theirs.index]
        effect = statistic.effect(ours.to_numpy(), theirs.to_numpy())
        assert effect is not None
        ratio = statistic.ratio_of(effect)
        logs = np.log(ours), np.log(theirs)
        spreads = (logs[0] - logs[1]).std(), np.sqrt(logs[0].var() + logs[1].var())
        lines.append(f"| {name} | {len(ours)} | {ratio} | {' | '.join(map(digits, spreads))} |")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    (HERE / "processors.md").write_text(page(), encoding="utf-8")
