"""Groups of grid points that differ only in tuned keys; one setting is selected from each group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from actlab.config.keys import canonical, without
from actlab.errors import ActlabError
from actlab.studies.plan import Run, Study


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


def groups(study: Study) -> list[Group]:
    """Return the groups of a study, in the order of its file.

    Raises:
        ActlabError: if two blocks have different runs at the same point and seed.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    for run in study.runs():
        compared, tuned = _split(study, run)
        alike = found.setdefault(canonical(compared), {}).setdefault(canonical(tuned), [])
        if any(other.seed == run.seed for other in alike):
            raise ActlabError(
                f"two blocks of {study.name} have different runs at {run.point or 'one point'}, "
                f"seed {run.seed}: give each block a 'name'"
            )
        alike.append(run)
    return [
        Group(
            _split(study, next(iter(settings.values()))[0])[0],
            tuple(Setting(_split(study, runs[0])[1], tuple(runs)) for runs in settings.values()),
        )
        for settings in found.values()
    ]


def _split(study: Study, run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a run's grid point into compared and tuned values."""
    tune = study.select.tune
    return (
        without(run.point, tune),
        {k: v for k, v in run.point.items() if k in tune},
    )


def of_each_value(runs: Iterable[Run]) -> list[Run]:
    """Return a few runs that together contain every value of every grid key, for checking all values."""
    seen: set[str] = set()
    found = []
    for run in runs:
        if fresh := {f"{key}={value}" for key, value in run.point.items()} - seen:
            seen |= fresh
            found.append(run)
    return found
