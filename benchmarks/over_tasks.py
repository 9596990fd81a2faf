"""Coverage of the statements over tasks: ``python benchmarks/over_tasks.py``, about two minutes.

It simulates scoreboards of the stored design: four tasks with 2, 2, 4 and 2 data sets, and 15 or 8
runs a side. The effects on data sets spread equally in all tasks, or unequally. It counts how often
each interval contains what it is about: the mean over tasks, another task, a data set of it.
"""

from __future__ import annotations

import numpy as np

from actlab.analysis.statistics import LEVEL
from actlab.scoreboard.statistic import Task, effect, posterior

SCOREBOARDS = 1_000
DESIGN = (2, 2, 4, 2)  # data sets of each task
RUNS = (15, 8)  # on the first data set of a task, and on the others
NOISE = 0.03  # standard deviation over runs
# Standard deviations over the data sets of each task
SPREADS = {
    "0.02": (0.02, 0.02, 0.02, 0.02),
    "0.3": (0.3, 0.3, 0.3, 0.3),
    "0.03, 0.2, 2, 0.05": (0.03, 0.2, 2.0, 0.05),
}


def main() -> None:
    """Print the coverage of each interval, and how often that of the mean covers another task."""
    print("| τ | σ by task | mean | one more task | a data set of it | a task in the mean's |")
    print("|---|---|---|---|---|---|")
    for name, sigmas in SPREADS.items():
        for tau in (0.1, 0.6, 1.5):
            shares = coverage(tau, sigmas)
            cells = " | ".join(f"{share:.2f}" for share in shares)
            print(f"| {tau} | {name} | {cells} |", flush=True)


def coverage(tau: float, sigmas: tuple[float, ...]) -> list[float]:
    """Return the shares of covered values: mean, task, data set, and a task by the mean's."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(SCOREBOARDS):
        # Draw a scoreboard whose mean effect is 0
        tasks = []
        for datasets, sigma in zip(DESIGN, sigmas, strict=True):
            centre = tau * rng.standard_normal()
            effects = []
            for number in range(datasets):
                runs = RUNS[min(number, 1)]
                mean = centre + sigma * rng.standard_normal()
                errors = np.exp(mean + NOISE * rng.standard_normal(runs))
                reference = np.exp(NOISE * rng.standard_normal(runs))
                measured = effect(errors, reference)
                assert measured
                effects.append(measured)
            tasks.append(Task(effects))

        # Draw one more task, and a data set of it
        task = tau * rng.standard_normal()
        dataset = task + rng.choice(sigmas) * rng.standard_normal()

        # Compare the intervals with them
        found = posterior(tasks)
        inside = []
        for mixture, value in (
            (found.mean, 0.0),
            (found.task, task),
            (found.dataset, dataset),
            (found.mean, task),
        ):
            below = mixture.below(value)
            inside.append(LEVEL / 2 <= below <= 1 - LEVEL / 2)
        covered.append(inside)
    return np.mean(covered, axis=0).tolist()


if __name__ == "__main__":
    main()
