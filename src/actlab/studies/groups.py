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
        """The tuned values that may affect the cost of an update: all except learning rates."""
        return self.tuned.without([key for key in self.tuned if short(key) == "lr"])


@dataclass(frozen=True)
class Group:
    """A grid point without its tuned keys, and the settings tried at this point.

    After a search, a group has a ``space``, and its point also has the name of the group. A group
    does not know which setting is best: `actlab.analysis.selection` selects it.
    """

    point: Point
    settings: tuple[Setting, ...]
    space: Mapping[str, Space] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of the selected setting, in ``selection.json``."""
        return self.point.text

    @property
    def runs(self) -> list[Run]:
        """The runs of all settings."""
        return [
            *itertools.chain.from_iterable(setting.runs for setting in self.settings)
        ]

    @property
    def run_ids(self) -> list[str]:
        """The ids of the runs of all settings."""
        return [run.id for run in self.runs]

    def run_of(self, chosen: Mapping[str, Any]) -> Run | None:
        """Return the first run of a setting; None if it was not tried."""
        for setting in self.settings:
            # Points are compared by content, so that 1 is 1.0
            if setting.tuned == chosen:
                return setting.runs[0]
        return None

    def edges(self, chosen: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the tuned keys whose chosen value is at an edge of the space or the numbers."""
        edges = []
        for key, value in chosen.items():
            space = self.space.get(key)
            if space is None:
                # A grid has no space: its values are the choices
                space = Choices(
                    tuple(setting.tuned.get(key) for setting in self.settings)
                )
            if space.is_edge(value):
                edges.append(key)
        return tuple(edges)


def groups(study: Study) -> list[Group]:
    """Return the groups of a study, in the order of its file."""
    # Runs by compared values, tuned values and seed
    runs_by_point: dict[Point, dict[Point, dict[int, Run]]] = {}
    spaces: dict[Point, Mapping[str, Space]] = {}  # by compared values
    for runs in by_point(study.planned()):
        # The values of the point
        point, trial = runs[0].point, study.blocks[runs[0].block].trial
        compared = point.without(study.select.tune)
        tuned = point.only(study.select.tune)
        space: Mapping[str, Space] = {}
        if trial is not None:
            compared, tuned, space = compared | trial.group, trial.tuned, trial.space
        spaces.setdefault(compared, space)

        # A run for each seed
        run_by_seed = runs_by_point.setdefault(compared, {}).setdefault(tuned, {})
        for run in runs:
            if run_by_seed.setdefault(run.seed, run) is not run:
                raise ActlabError(
                    f"two blocks of {study.name} have different runs at {point or 'one point'}, "
                    f"seed {run.seed}. Add a 'name' to each block."
                )

    # In the order of the runs, which is the order of the file
    study_groups = []
    for point, runs_by_setting in runs_by_point.items():
        settings = []
        for tuned, run_by_seed in runs_by_setting.items():
            settings.append(Setting(tuned, tuple(run_by_seed.values())))
        study_groups.append(Group(point, tuple(settings), spaces[point]))
    return study_groups


def by_point(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield the runs of each grid point: consecutive runs that differ only in the seed."""
    for _, runs_at_point in itertools.groupby(
        runs, lambda run: (run.block, run.point, run.sources)
    ):
        yield [*runs_at_point]


def of_each_value(runs: Iterable[Run]) -> list[Run]:
    """Return a few runs that together have every value of every grid key."""
    # A run of each grid point, with its values
    candidates: list[tuple[Run, set[Point]]] = []
    for run, *_ in by_point(runs):
        candidates.append((run, {run.point.only([key]) for key in run.point}))

    # Select runs with many values that no selected run has
    most = max((len(values) for _, values in candidates), default=0)
    covered: set[Point] = set()
    selected: set[str] = set()
    for number in range(most, 0, -1):
        for run, values in candidates:
            if len(values - covered) >= number:
                covered |= values
                selected.add(run.id)
    return [run for run, _ in candidates if run.id in selected]


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of pairs by their key, both in the order in which they come.

    >>> by_key([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values
