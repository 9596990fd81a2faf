"""Group runs that can be stacked: runs with the same layers and the same data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from actlab.checks.facts import Known, as_text, without
from actlab.studies.groups import by_point
from actlab.studies.plan import Run


def similar(runs: Iterable[Run], known: Known) -> dict[str, list[Run]]:
    """Group runs that differ only in keys in which members of a stack may differ, by a digest.

    A run that no other is similar to is a group of its own.
    """
    groups: dict[str, list[Run]] = {}
    for alike in by_point(runs):
        groups.setdefault(_key(alike[0], known), []).extend(alike)
    return {
        key: sorted(group, key=lambda run: [str(value) for value in run.point.values()])
        for key, group in groups.items()
    }


def _key(run: Run, known: Known) -> str:
    """Return the key of a run's group, which no seed changes."""
    facts = known.of(run)
    common = as_text([without(run.config, facts.stackable), facts.layers, run.sources])
    return hashlib.sha256(common.encode()).hexdigest()[:16]
