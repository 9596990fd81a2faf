"""Grid points in groups: those that differ in tuned keys alone, of which one is chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from actlab.config.keys import canonical, without
from actlab.errors import ActlabError
from actlab.studies.plan import Run, Study


@dataclass(frozen=True)
class Setting:
    """Tuned values and the runs that have them, one a seed."""

    tuned: dict[str, Any]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Group:
    """A grid point without its tuned keys, and the settings tried for it."""

    point: dict[str, Any]
    settings: tuple[Setting, ...]


def groups(study: Study) -> list[Group]:
    """The groups of a study, in the order of its file: grid points that differ in tuned keys alone.

    Raises:
        ActlabError: where two blocks have different runs at one point and seed.
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
    """A run's grid point: what is compared and what is tuned."""
    tune = study.select.tune
    return (
        without(run.point, tune),
        {k: v for k, v in run.point.items() if k in tune},
    )


def of_each_value(runs: Iterable[Run]) -> list[Run]:
    """The first run with each value of each grid key: together they show any mistake in one."""
    seen: set[str] = set()
    found = []
    for run in runs:
        if fresh := {f"{key}={value}" for key, value in run.point.items()} - seen:
            seen |= fresh
            found.append(run)
    return found
