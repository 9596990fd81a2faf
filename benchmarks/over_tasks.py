"""How often the intervals over tasks contain the truth: ``python benchmarks/over_tasks.py``, some minutes.

``--board`` simulates the ratios of the board instead: 2,000 boards in each cell, some minutes more.

Runs are normal with spread 1, those of the activation lower by a shift per task, itself normal: mean 0 to 3 and
spread 0 or 1. The first interval is about the mean probability of being better over the given tasks, the second
about its mean over all tasks.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from actlab.analysis.differences import wins
from actlab.analysis.hierarchy import effect, over_tasks
from actlab.analysis.over_tasks import Ends, mean_better

STUDIES = 500  # simulated, per cell
SHIFTS = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]


def main() -> None:
    """Print the coverage of both intervals: the lowest and the highest over the shifts."""
    print("tasks  runs  interval over runs  over runs and tasks")
    for tasks in (1, 3, 4, 6, 10):
        for runs in (3, 6, 15):
            found = np.array([coverage(tasks, runs, *shift) for shift in SHIFTS])
            ranges = [
                f"{100 * low:.0f} to {100 * high:.0f} %"
                for low, high in zip(found.min(0), found.max(0), strict=True)
            ]
            print(f"{tasks:5}  {runs:4}  {ranges[0]:>18}  {ranges[1]:>19}", flush=True)


BOARDS, RUNS, NOISE = 2_000, (8, 15), 0.03  # simulated boards; runs a side, and their standard deviation


def boards() -> None:
    """Print how often the interval of the ratio over tasks such as these contains the true one."""
    print("tasks  data sets  spread over tasks  over data sets  covered  median width (ratio)")
    for tasks, datasets in ((3, 1), (3, 3), (5, 2)):
        for tau in (0.0, 0.05, 0.2, 0.6, 1.5):
            for sigma in (0.02, 0.3):
                inside, width = board_coverage(tasks, datasets, tau, sigma)
                print(f"{tasks:5}  {datasets:9}  {tau:17}  {sigma:14}  {inside:7.3f}  {width:.3g}", flush=True)


def board_coverage(tasks: int, datasets: int, tau: float, sigma: float) -> tuple[float, float]:
    """Return the coverage, and the median ratio of the ends, where errors are equal in the mean over tasks."""
    rng, found = np.random.default_rng(0), []
    for _ in range(BOARDS):
        means = tau * rng.standard_normal((tasks, 1)) + sigma * rng.standard_normal((tasks, datasets))
        noise = [NOISE * rng.standard_normal((tasks, datasets, runs)) for runs in RUNS]
        sides = np.exp(means[..., None] + noise[0]), np.exp(noise[1])
        effects = [[effect(*pair) for pair in zip(*of, strict=True)] for of in zip(*sides, strict=True)]
        known = over_tasks([[one for one in of if one] for of in effects], 1.02)
        assert known
        found.append((known.ratio.low <= 1 <= known.ratio.high, known.ratio.high / known.ratio.low))
    inside, widths = zip(*found, strict=True)
    return float(np.mean(inside)), float(np.median(widths))


def coverage(tasks: int, runs: int, mean: float, spread: float) -> tuple[float, float]:
    """Return how often each interval contains what it is about; an interval that is not given counts as nan."""
    rng = np.random.default_rng(tasks * runs)
    everywhere = float(np.mean([better(shift) for shift in mean + spread * rng.standard_normal(20_000)]))
    inside = []
    for _ in range(STUDIES):
        shifts = mean + spread * rng.standard_normal(tasks)
        sides = rng.standard_normal((2, tasks, runs))
        found = mean_better([[wins(a - shift, b)] for a, b, shift in zip(*sides, shifts, strict=True)])
        here = float(np.mean([better(shift) for shift in shifts]))
        inside.append([contains(found.runs, here), contains(found.tasks, everywhere)])
    both = np.mean(inside, axis=0)
    return float(both[0]), float(both[1])


def better(shift: float) -> float:
    """Return the probability that a run is better than one of the reference."""
    return 0.5 * (1 + math.erf(shift / 2))


def contains(ends: Ends | None, value: float) -> float:
    """Return 1 or 0 whether an interval contains a value; nan without one."""
    return float(ends[0] <= value <= ends[1]) if ends else math.nan


if __name__ == "__main__":
    boards() if "--board" in sys.argv[1:] else main()
