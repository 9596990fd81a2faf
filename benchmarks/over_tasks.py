"""Coverage of the scoreboard's intervals: ``python benchmarks/over_tasks.py``, about five minutes.

It simulates scoreboards of the stored design, eight tasks with 2, 2, 7, 2, 6, 1, 2 and 2 data sets,
and counts how often each interval contains what it is about.

- **Over tasks**: the mean over tasks, another task, a data set of it. The effects on data sets
  spread equally in all tasks, or unequally.
- **The protocol**: seeds select a setting among several, and fresh seeds score it. An interval
  should contain the mean effect over selections by other seeds: on a data set, over the data sets
  of a task, and over all tasks. Settings and noise are those of the stored runs that selected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from actlab.analysis import study_table
from actlab.analysis.statistics import LEVEL, Array
from actlab.scoreboard import definition, selections, statistic
from actlab.scoreboard.selections import Trials
from actlab.scoreboard.statistic import Effect, Task, effect, posterior
from actlab.storage.resources import resource
from actlab.studies.reading import load

SCOREBOARDS = 1_000
DESIGN = (2, 2, 7, 2, 6, 1, 2, 2)  # data sets of each task
RUNS = (15, 8)  # on the first data set of a task, and on the others
NOISE = 0.03  # standard deviation over runs
# Standard deviations over the data sets of each task
SPREADS = {
    "0.02": (0.02,) * len(DESIGN),
    "0.3": (0.3,) * len(DESIGN),
    "0.03, 0.2, 2, 0.05, 0.1, 0.05, 0.05, 0.05": (0.03, 0.2, 2.0, 0.05, 0.1, 0.05, 0.05, 0.05),
}
# What another setting changes on further data, divided by what it changes on the first data set
FURTHER = (1.0, 2.0)


def main() -> None:
    """Print the coverage of each interval, and how often that of the mean covers another task."""
    print("| τ | σ by task | mean | one more task | a data set of it | a task in the mean's |")
    print("|---|---|---|---|---|---|")
    for name, sigmas in SPREADS.items():
        for tau in (0.1, 0.6, 1.5):
            shares = coverage(tau, sigmas)
            cells = " | ".join(f"{share:.2f}" for share in shares)
            print(f"| {tau} | {name} | {cells} |", flush=True)

    print("\n| changes on further data | task | first data set | further data | all |")
    print("|---|---|---|---|---|")
    names = [*definition.load().with_tables, "mean over tasks"]
    tasks = simulated_tasks(SCOREBOARDS)
    for further in FURTHER:
        for name, shares in zip(names, protocol_coverage(tasks, further), strict=True):
            cells = " | ".join(f"{without:.2f}, {included:.2f}" for without, included in shares)
            print(f"| {further:g} | {name} | {cells} |", flush=True)


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
            tasks.append(Task([effects]))

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


@dataclass(frozen=True)
class Simulated:
    """An activation in simulated scoreboards: logarithms of errors, ``[scoreboards]``."""

    means: Array  # of the selected setting
    selection: Array  # variance over selections, as the scoreboard estimates it
    noise: list[Array]  # of the runs on each data set, ``[scoreboards, runs]``

    def errors(self, scoreboard: int, number: int, further: float) -> Array:
        """Return the errors of the runs on a data set."""
        moved = self.means[scoreboard] - self.means.mean()
        if number:
            moved *= further
        return np.exp(self.means.mean() + moved + self.noise[number][scoreboard])


@dataclass(frozen=True)
class SimulatedGroup:
    """Data sets that share settings, in simulated scoreboards."""

    comparisons: list[dict[str, Simulated]]  # by activation

    @property
    def datasets(self) -> int:
        """The number of data sets."""
        return len(next(iter(self.comparisons[0].values())).noise)

    def labels(self) -> set[str]:
        """Return the activations that all comparisons have, without the reference."""
        shared = set.intersection(*map(set, self.comparisons))
        return shared - {definition.load().reference}

    def effects(self, label: str, scoreboard: int, further: float) -> list[list[Effect]]:
        """Return the effects on each data set, by comparison."""
        found = []
        for comparison in self.comparisons:
            own, reference = comparison[label], comparison[definition.load().reference]
            variance = own.selection[scoreboard] + reference.selection[scoreboard]
            effects = []
            for number in range(len(own.noise)):
                sides = [side.errors(scoreboard, number, further) for side in (own, reference)]
                measured = effect(*sides)
                assert measured
                effects.append(measured._replace(selection=variance))
            found.append(effects)
        return found

    def expected(self, label: str) -> list[float]:
        """Return the mean effect over selections of each comparison."""
        reference = definition.load().reference
        return [float(c[label].means.mean() - c[reference].means.mean()) for c in self.comparisons]


@dataclass(frozen=True)
class SimulatedTask:
    """A task in simulated scoreboards."""

    groups: list[SimulatedGroup]
    points_are_data: bool

    def labels(self) -> set[str]:
        """Return the activations that all groups have, without the reference."""
        return set.intersection(*(group.labels() for group in self.groups))

    def effects(self, label: str, scoreboard: int, further: float) -> list[list[list[Effect]]]:
        """Return the effects of each group on each data set, by comparison."""
        return [group.effects(label, scoreboard, further) for group in self.groups]

    @property
    def scoreboards(self) -> int:
        """The number of simulations."""
        return len(next(iter(self.groups[0].comparisons[0].values())).means)

    def combined(self, effects: list[list[list[Effect]]]) -> Task:
        """Return the task of these effects, as the scoreboard combines them."""
        if self.points_are_data:
            return Task([[parts[0]] for group in effects for parts in group])

        # Parts of a data set count as one
        groups = []
        for group in effects:
            groups.append([statistic.mean_of(parts) for parts in zip(*group, strict=True)])
        return Task(groups)

    def expected(self, label: str) -> float:
        """Return the mean effect over selections, over all data sets."""
        means = [np.mean(group.expected(label)) for group in self.groups]
        return float(np.average(means, weights=[group.datasets for group in self.groups]))


def simulated(
    trials: Trials, runs: Iterable[int], scoreboards: int, rng: np.random.Generator
) -> Simulated | None:
    """Return simulations of an activation, with the settings at which no stored run failed.

    None without such a setting.

    Args:
        trials: the stored runs that selected its setting.
        runs: the number of fresh runs on each data set.
        scoreboards: number of simulations.
        rng: source of the noise.
    """
    stored = np.stack([trials.scores, trials.errors])
    stored = stored[:, np.isfinite(stored).all((0, 2))]  # [2, settings, seeds]
    if not stored.size:
        return None

    # Runs are normal with the stored means and covariances, of scores, errors and settings
    seeds = stored.shape[2]
    means = stored.mean(2, keepdims=True)
    factors = (stored - means) / np.sqrt(seeds - 1)
    normal = rng.standard_normal((scoreboards, seeds, seeds))
    drawn = means + np.einsum("vks,bns->bvkn", factors, normal)

    # Select a setting
    medians = np.median(drawn[:, 0], axis=2)
    selected = medians.argmin(1) if trials.mode == "min" else medians.argmax(1)
    selection = [Trials(*both, trials.mode).variance() for both in drawn]

    # Train fresh seeds at the selected setting
    spread = np.sqrt((factors[1] ** 2).sum(1))[selected]
    noise = [spread[:, None] * rng.standard_normal((scoreboards, number)) for number in runs]
    return Simulated(means[1, :, 0][selected], np.array(selection), noise)


def simulated_tasks(scoreboards: int) -> list[SimulatedTask]:
    """Return simulations of the stored tasks; activations have different noise."""
    tasks = []
    rng = np.random.default_rng(0)
    for stated in definition.load().with_tables.values():
        groups = [simulated_group(stated, names, scoreboards, rng) for names in stated.groups]
        tasks.append(SimulatedTask(groups, stated.points_are_data))
    return tasks


def simulated_group(
    stated: definition.Task, names: list[str], scoreboards: int, rng: np.random.Generator
) -> SimulatedGroup:
    """Return simulations of the stored data sets that share settings."""
    # Read the runs that selected settings, and the number of fresh runs on each data set
    folders = [resource(stated.data[name].table) for name in names]
    table, *further = [study_table.read(folder / study_table.NAME) for folder in folders]
    runs = selections.read(folders[0] / selections.FILE, load(stated.study).select)
    fresh = [len(each.rows[0].columns[0].values) for each in (table, *further)]

    comparisons = []
    for _, rows in table.points:
        activations = {}
        for row in rows:
            trials = runs.trials(row, table)
            assert trials
            found = simulated(trials, fresh, scoreboards, rng)
            if found:
                activations[row.point[table.compare]] = found
        comparisons.append(activations)
    return SimulatedGroup(comparisons)


def protocol_coverage(tasks: list[SimulatedTask], further: float = 1.0) -> Array:
    """Return the shares of covered effects, without and with the variance of the selection.

    Args:
        tasks: in simulated scoreboards.
        further: what another setting changes on further data, divided by what it changes on the
            first data set.

    Returns:
        array ``[tasks + 1, 3, 2]``: the tasks and their mean; the first data set, further data and
        all data sets; without and with. The mean over activations, nan where there are none.
    """
    shares = np.full((len(tasks) + 1, 3, 2), np.nan)
    shared = set.intersection(*(task.labels() for task in tasks))
    means: dict[str, list[list[Task]]] = {label: [] for label in shared}
    for row, task in enumerate(tasks):
        covered: list[list[list[bool]]] = [[], [], []]
        for label in sorted(task.labels()):
            combined = []
            for scoreboard in range(task.scoreboards):
                effects = task.effects(label, scoreboard, further)
                for group, comparisons in zip(task.groups, effects, strict=True):
                    firsts, others = covered_in(group, comparisons, label)
                    covered[0] += firsts
                    covered[1] += others
                combined.append(task.combined(effects))
                inside = covers(statistic.mean_in(combined[-1]), task.expected(label))
                covered[2].append(inside)
            if label in shared:
                means[label].append(combined)
        for column, values in enumerate(covered):
            if values:
                shares[row, column] = np.mean(values, axis=0)

    # Average the tasks of each scoreboard
    over = []
    for label, by_task in means.items():
        expected_mean = float(np.mean([task.expected(label) for task in tasks]))
        for scoreboard in zip(*by_task, strict=True):
            mean = statistic.mean_of([statistic.mean_in(task) for task in scoreboard])
            over.append(covers(mean, expected_mean))
    shares[-1, 2] = np.mean(over, axis=0)
    return shares


def covered_in(
    group: SimulatedGroup, comparisons: list[list[Effect]], label: str
) -> tuple[list[list[bool]], list[list[bool]]]:
    """Return whether intervals cover, on the first data set of a group and on further ones."""
    firsts = []
    others = []
    for value, parts in zip(group.expected(label), comparisons, strict=True):
        firsts.append(covers(parts[0], value))
        others += [covers(part, value) for part in parts[1:]]
    return firsts, others


def covers(measured: Effect, value: float) -> list[bool]:
    """Return whether the interval contains a value, without and with the selection's variance."""
    inside = []
    for found in (measured._replace(selection=0.0), measured):
        ratio = statistic.ratio_of(found)
        inside.append(ratio.low <= np.exp(value) <= ratio.high)
    return inside


if __name__ == "__main__":
    main()
