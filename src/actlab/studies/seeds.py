"""Seeds of a study and of its stages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from actlab.errors import ActlabError
from actlab.errors.messages import short_repr, unknown

MOST_SEEDS = 10_000
SMOKE_SEEDS = 2


def of_stages(
    seeds: Any, stated: Mapping[str, Any], changes: Any
) -> dict[str, tuple[int, ...]]:
    """Return the seeds of every stage of a study; no two stages share a seed.

    Args:
        seeds: the seeds of the study, as for `seed_list`.
        stated: the seeds of each stage in the file, None for the seeds of the study. A study
            without stages has one entry in the result, with an empty name.
        changes: replaces the seeds of the last stage, or by stage: a mapping, or text such as
            ``choose=5,compare=15``. Here a number N means N seeds beginning with the stage's first
            seed.

    >>> of_stages(5, {"choose": 2, "compare": "2-9"}, 3)
    {'choose': (0, 1), 'compare': (2, 3, 4)}
    >>> of_stages(5, {}, "7-8")
    {'': (7, 8)}
    """
    # The seeds in the file
    seeds_of_study = seed_list(seeds)
    stages = {}
    for name, text in stated.items():
        stages[name] = seeds_of_study if text is None else seed_list(text)
    if not stages:
        stages = {"": seeds_of_study}

    # The changes by stage
    by_stage = _by_stage(changes)
    if by_stage is None:
        by_stage = {[*stages][-1]: changes}
    elif by_stage and not stated:
        raise ActlabError(
            f"seeds: expected seeds without a stage, such as 5 or 5-19, got {short_repr(changes)}. "
            "Remove the stage, because the study has none."
        )
    for name in by_stage.keys() - stages.keys():
        raise unknown("stage", name, stages, f"Change the seeds {short_repr(changes)}.")

    # Apply the changes, after which stages may overlap
    for name, change in by_stage.items():
        stages[name] = _changed(stages[name], change)
    _check_disjoint(stages)
    return stages


def _by_stage(changes: Any) -> dict[str, Any] | None:
    """Return changes by stage, or None if they are for the last stage."""
    # A mapping has the stages already
    if isinstance(changes, Mapping):
        return {str(name): seeds for name, seeds in changes.items()}

    # Text without stages is for the last stage
    if not isinstance(changes, str) or "=" not in changes:
        return None

    # Text such as ``choose=5,compare=15``
    by_stage: dict[str, Any] = {}
    for part in changes.split(","):
        # The stage and its seeds
        stage, _, text = part.partition("=")
        name, value = stage.strip(), text.strip()
        if name in by_stage:
            raise ActlabError(
                f"seeds: expected each stage once, got {short_repr(changes)}. Remove a stage."
            )
        by_stage[name] = int(value) if re.fullmatch(r"\d{1,9}", value) else value
    return by_stage


def _changed(seeds: Sequence[int], change: Any) -> tuple[int, ...]:
    """Return the changed seeds; a number N means N seeds beginning with the stage's first seed."""
    changed = seed_list(change)
    if not isinstance(change, int):
        return changed
    if len(changed) <= len(seeds):
        return tuple(seeds[: len(changed)])
    return tuple(range(seeds[0], seeds[0] + len(changed)))


def _check_disjoint(stages: Mapping[str, Sequence[int]]) -> None:
    """Reject stages that share a seed: runs that chose a setting must not be compared at it."""
    # Each stage with every later stage
    for stage, later_stage in itertools.combinations(stages, 2):
        shared = sorted(set(stages[stage]) & set(stages[later_stage]))
        if not shared:
            continue

        # Suggest the seeds above all others
        highest = max(
            max(seeds) for name, seeds in stages.items() if name != later_stage
        )
        free = f"{highest + 1}-{highest + len(stages[later_stage])}"
        raise ActlabError(
            f"stages {stage} and {later_stage} both have seed {shared[0]}. Change the seeds of "
            f"{later_stage} to {free}, for example, in the file or with --seeds "
            f"{later_stage}={free}."
        )


def seed_list(value: Any) -> tuple[int, ...]:
    """Return seeds given by their number, a range such as ``5-19`` or a list of different numbers.

    >>> seed_list(3), seed_list("5-7"), seed_list([4, 2])
    ((0, 1, 2), (5, 6, 7), (4, 2))
    """
    # Values of any other type leave no seeds
    seeds: Sequence[Any] = ()
    if isinstance(value, list):
        seeds = value
    elif isinstance(value, str) and re.fullmatch(r"\d{1,9}-\d{1,9}", value):
        lowest, highest = map(int, value.split("-"))
        seeds = range(lowest, highest + 1)
    elif isinstance(value, int) and not isinstance(value, bool):
        seeds = range(min(value, MOST_SEEDS + 1))

    # A long range is not read
    fits = 0 < len(seeds) <= MOST_SEEDS
    fits = fits and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not fits or len(set(seeds)) < len(seeds):
        raise ActlabError(
            f"seeds: expected a number from 1 to {MOST_SEEDS}, a range such as 5-19, or a list of "
            f"distinct whole numbers, got {short_repr(value)}."
        )
    return tuple(seeds)
