"""How often verdicts are right: simulated studies with a known difference, judged by the project's own code.

    python benchmarks/verdicts.py

Each study compares one activation with the reference. The paired differences are normal with standard deviation
1, so the true difference is in standard deviations of the differences; the margin of equivalence is 1. The last
rows have no margin and extend a study from 6 to 15 to 30 pairs while its verdict is undecided, with and without
the correction for earlier looks.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np

from actlab.analysis.columns import Column
from actlab.analysis.comparison import Cell
from actlab.analysis.differences import paired_difference
from actlab.analysis.looks import factor
from actlab.analysis.statistics import equivalent
from actlab.analysis.verdict import outcome

COLUMN = Column("test/error")
OUTCOMES = ("better", "worse", "equivalent", "undecided")
LOOKS = (6, 15, 30)


def judged(differences: Sequence[float], margin: float | None = 1.0, strictness: int = 1) -> str:
    """Return the verdict on paired differences, with one comparison in the table."""
    paired = paired_difference(differences, np.zeros(len(differences)))
    p = None if paired.p is None else min(1.0, strictness * paired.p)
    match = equivalent(differences, margin) if margin else None
    cell = Cell(COLUMN, {}, None, None, None, paired, planned=True, p_holm=p, p_equivalent=match)
    return outcome(cell, strictness)


def extended(differences: Sequence[float], corrected: bool) -> str:
    """Return the last verdict of a study that is extended while it is undecided."""
    for number, pairs in enumerate(LOOKS):
        found = judged(differences[:pairs], None, factor(number) if corrected else 1)
        if found not in ("undecided", "too few pairs"):
            break
    return found


def main() -> None:
    """Print a table of shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000, help="simulated studies per row; default: 2000")
    studies = parser.parse_args().studies
    print(f"{studies} studies per row\n")
    print("| pairs | true difference | " + " | ".join(OUTCOMES) + " |\n|---|---:|" + "---:|" * 4)
    for effect in (0.0, -0.5, -2.0):
        drawn = np.random.default_rng(0).normal(effect, 1.0, (studies, LOOKS[-1]))
        rows = {f"{pairs}": [judged(row[:pairs]) for row in drawn] for pairs in LOOKS}
        rows["6, 15, 30 while undecided"] = [extended(row, True) for row in drawn]
        rows["the same, uncorrected"] = [extended(row, False) for row in drawn]
        for name, found in rows.items():
            counts = Counter(found)
            shares = " | ".join(f"{100 * counts[one] / studies:.1f} %" for one in OUTCOMES)
            print(f"| {name} | {abs(effect):g} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
