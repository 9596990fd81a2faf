"""Groups of grid points that differ only in tuned keys; one setting is selected from each group."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from actlab.config.paths import short
from actlab.errors import ActlabError
from actlab.studies.plan import Run, Study
from actlab.studies.points import Point
from actlab.studies.spaces import Choices, Space

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Setting:
    """Values of the tuned keys and their runs, one per seed."""

    tuned: Point
    runs: tuple[Run, ...]

    @property
    def priced(self) -> Point:
        """The tuned values that may affect the cost of an update: all but learning rates."""
        return self.tuned.without([key for key in self.tuned if short(key) == "lr"])


@dataclass(frozen=True)
class Group:
    """A grid point without its tuned keys, and the settings tried at this point.

    After a search, a group has a ``space``, and its point also has the name of the group.
    """

    point: Point
    settings: tuple[Setting, ...]
    space: Mapping[str, Space] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of what is chosen here, in ``selection.json``."""
        return self.point.text

    def run_of(self, chosen: Mapping[str, Any]) -> Run | None:
        """Return the first run of a setting; None if it was not tried."""
        return next((setting.runs[0] for setting in self.settings if setting.tuned == chosen), None)

    def edges(self, chosen: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the tuned keys whose chosen value is at an end of the space or the numbers tried."""
        tried = {
            key: Choices(tuple(setting.tuned.get(key) for setting in self.settings))
            for key in chosen
        }
        spaces = {**tried, **self.space}
        return tuple(key for key, value in chosen.items() if spaces[key].is_edge(value))


def groups(study: Study) -> list[Group]:
    """Return the groups of a study, in the order of its file."""
    by_tuned: dict[
        Point, dict[Point, dict[int, Run]]
    ] = {}  # runs by compared values, tuned values and seed
    spaces: dict[Point, Mapping[str, Space]] = {}  # by compared values
    tune = study.select.tune
    for runs in by_point(study.planned()):
        point, trial = runs[0].point, study.blocks[runs[0].block].trial
        compared, tuned = point.without(tune), point.only(tune)
        if trial is not None:
            compared, tuned = compared | trial.given, trial.tuned
        spaces.setdefault(compared, {} if trial is None else trial.space)
        alike = by_tuned.setdefault(compared, {}).setdefault(tuned, {})
        for run in runs:
            if alike.setdefault(run.seed, run) is not run:
                raise ActlabError(
                    f"two blocks of {study.name} have different runs at {point or 'one point'}, "
                    f"seed {run.seed}: give each block a 'name'"
                )
    found = []
    for point, of_point in by_tuned.items():
        settings = tuple(Setting(tuned, tuple(alike.values())) for tuned, alike in of_point.items())
        found.append(Group(point, settings, spaces[point]))
    return found


def by_point(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield the runs of each grid point together: consecutive runs that differ in the seed alone."""
    for _, alike in itertools.groupby(runs, key=lambda run: (run.block, run.point, run.sources)):
        yield [*alike]


def of_each_value(runs: Iterable[Run]) -> list[Run]:
    """Return a few runs that together contain every value of every grid key, for checking all values."""
    some = [(run, {run.point.only([key]) for key in run.point}) for run, *_ in by_point(runs)]
    seen: set[Point] = set()
    chosen: set[str] = set()
    for fresh in range(max((len(values) for _, values in some), default=0), 0, -1):
        for run, values in some:
            if len(values - seen) >= fresh:
                seen |= values
                chosen.add(run.id)
    return [run for run, _ in some if run.id in chosen]


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of pairs by their key, both in the order in which they come.

    >>> by_key([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
