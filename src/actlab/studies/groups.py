"""Groups of grid points that differ only in tuned keys; one setting is selected from each group."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from actlab.config.keys import canonical, without
from actlab.errors import ActlabError
from actlab.studies.plan import SEED, Run, Study
from actlab.studies.spaces import Choices


@dataclass(frozen=True)
class Setting:
    """Values of the tuned keys and their runs, one per seed."""

    tuned: dict[str, Any]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Group:
    """A grid point without its tuned keys, and the settings tried at this point."""

    point: dict[str, Any]
    settings: tuple[Setting, ...]

    def edges(self, chosen: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the tuned keys whose chosen value is the lowest or highest number that was tried."""
        tried = {key: Choices(tuple(setting.tuned.get(key) for setting in self.settings)) for key in chosen}
        return tuple(key for key, value in chosen.items() if tried[key].is_edge(value))


def groups(study: Study) -> list[Group]:
    """Return the groups of a study, in the order of its file."""
    found: dict[str, dict[str, dict[int, Run]]] = {}  # runs by compared values, tuned values and seed
    tune = study.select.tune
    for runs in by_point(study.planned()):
        point = runs[0].point
        compared, tuned = canonical(without(point, tune)), canonical(_only(point, tune))
        alike = found.setdefault(compared, {}).setdefault(tuned, {})
        for run in runs:
            if alike.setdefault(run.seed, run) is not run:
                raise ActlabError(
                    f"two blocks of {study.name} have different runs at {point or 'one point'}, "
                    f"seed {run.seed}: give each block a 'name'"
                )
    together = []
    for of_point in found.values():
        tried = [tuple(alike.values()) for alike in of_point.values()]
        settings = tuple(Setting(_only(runs[0].point, tune), runs) for runs in tried)
        together.append(Group(without(tried[0][0].point, tune), settings))
    return together


def _only(point: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in point.items() if key in keys}


def by_point(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield the runs of each grid point together: consecutive runs that differ in the seed alone.

    `Study.runs` lets such runs share their point and the sections of their configs, which is compared here.
    """

    def shared(run: Run) -> list[int]:
        return [id(run.point), id(run.sources), *(id(v) for k, v in run.config.items() if k != SEED)]

    for _, alike in itertools.groupby(runs, key=shared):
        yield [*alike]


def of_each_value(runs: Iterable[Run]) -> list[Run]:
    """Return a few runs that together contain every value of every grid key, for checking all values."""
    seen: set[str] = set()
    found = []
    for run, *_ in by_point(runs):
        if fresh := {f"{key}={value}" for key, value in run.point.items()} - seen:
            seen |= fresh
            found.append(run)
    return found
