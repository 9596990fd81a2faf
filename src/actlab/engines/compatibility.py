"""Group runs that can be stacked: runs with the same layers and the same data."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from actlab.checks.facts import BuiltFacts, as_text, without
from actlab.studies.groups import by_point
from actlab.studies.plan import Run


def similar(runs: Iterable[Run], built_facts: BuiltFacts) -> dict[str, list[Run]]:
    """Group runs that differ only in keys in which members of a stack may differ, by a digest.

    A run without similar runs is a group of its own.
    """
    groups: dict[str, list[Run]] = defaultdict(list)
    for seeds in by_point(runs):
        key = _key(seeds[0], built_facts)
        groups[key] += seeds
    for group in groups.values():
        group.sort(key=_values)
    return groups


def _values(run: Run) -> list[str]:
    return [str(value) for value in run.point.values()]


def _key(run: Run, built_facts: BuiltFacts) -> str:
    """Return the key of a run's group, which no seed changes."""
    facts = built_facts.of(run)
    config = without(run.config, facts.stackable)
    common = as_text([config, facts.layers, run.sources])
    digest = hashlib.sha256(common.encode())
    return digest.hexdigest()[:16]
