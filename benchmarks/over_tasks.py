"""Coverage of the interval of the ratio over tasks: ``python benchmarks/over_tasks.py``.

It simulates the ratios of 2,000 scoreboards in each cell, in some minutes.
"""

from __future__ import annotations

import numpy as np

from actlab.scoreboard.statistic import effect, over_tasks

# simulated; runs a side, and their standard deviation
SCOREBOARDS, RUNS, NOISE = (
    2_000,
    (8, 15),
    0.03,
)


def main() -> None:
    """Print how often the interval of the ratio over tasks such as these contains the true one."""
    print("tasks  data sets  spread over tasks  over data sets  covered  median width (ratio)")
    for tasks, datasets in ((3, 1), (3, 3), (5, 2)):
        for tau in (0.0, 0.05, 0.2, 0.6, 1.5):
            for sigma in (0.02, 0.3):
                inside, width = coverage(tasks, datasets, tau, sigma)
                print(
                    f"{tasks:5}  {datasets:9}  {tau:17}  {sigma:14}  {inside:7.3f}  {width:.3g}",
                    flush=True,
                )


def coverage(tasks: int, datasets: int, tau: float, sigma: float) -> tuple[float, float]:
    """Return the coverage, and the median ratio of the ends, if errors have equal means."""
    rng, found = np.random.default_rng(0), []
    for _ in range(SCOREBOARDS):
        means = tau * rng.standard_normal((tasks, 1)) + sigma * rng.standard_normal(
            (tasks, datasets)
        )
        noise = [NOISE * rng.standard_normal((tasks, datasets, runs)) for runs in RUNS]
        sides = np.exp(means[..., None] + noise[0]), np.exp(noise[1])
        effects = [
            [effect(*pair) for pair in zip(*of, strict=True)] for of in zip(*sides, strict=True)
        ]
        known = over_tasks([[one for one in of if one] for of in effects], 1.02)
        assert known
        found.append((known.ratio.low <= 1 <= known.ratio.high, known.ratio.high / known.ratio.low))
    inside, widths = zip(*found, strict=True)
    return float(np.mean(inside)), float(np.median(widths))


if __name__ == "__main__":
    main()
