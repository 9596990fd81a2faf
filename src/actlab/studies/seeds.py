"""Seeds of a study and of its stages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from actlab.errors import ActlabError
from actlab.errors.messages import shown, unknown

MOST_SEEDS = 10_000
SMOKE_SEEDS = 2


def of_stages(seeds: Any, stated: Mapping[str, Any], given: Any) -> dict[str, tuple[int, ...]]:
    """Return the seeds of every stage of a study; no two stages share a seed.

    ``stated`` are the seeds of each stage in the file, None for those of the study; a study without
    stages has one entry. ``given`` replaces the seeds of the last stage, or by stage: a mapping, or
    text such as ``choose=5,compare=15``. There a number N means N seeds beginning with the stage's
    own first seed.

    >>> of_stages(5, {"choose": 2, "compare": "2-9"}, 3)
    {'choose': (0, 1), 'compare': (2, 3, 4)}
    >>> of_stages(5, {}, "7-8")
    {'': (7, 8)}
    """
    whole = seed_list(seeds)
    stages = {
        name: whole if text is None else seed_list(text) for name, text in stated.items()
    } or {"": whole}
    changes = _by_stage(given)
    if changes is None:
        changes = {[*stages][-1]: given}
    elif changes and not stated:
        raise ActlabError(
            f"seeds {shown(given)}: the study has no stages; give the seeds alone, such as 5 or 5-19"
        )
    for name in changes.keys() - stages.keys():
        raise unknown("stage", name, stages, f"In seeds {shown(given)}.")
    stages |= {name: _changed(stages[name], text) for name, text in changes.items()}
    _check_disjoint(stages)
    return stages


def _by_stage(given: Any) -> dict[str, Any] | None:
    if isinstance(given, Mapping):
        return {str(name): seeds for name, seeds in given.items()}
    if not isinstance(given, str) or "=" not in given:
        return None
    parts = [part.partition("=") for part in given.split(",")]
    by_stage = {
        name.strip(): int(text) if re.fullmatch(r"\d{1,9}", text.strip()) else text.strip()
        for name, _, text in parts
    }
    if len(by_stage) < len(parts):
        raise ActlabError(f"seeds {shown(given)}: a stage is given twice; give each stage once")
    return by_stage


def _changed(old: Sequence[int], given: Any) -> tuple[int, ...]:
    """Return given seeds; for a number, that many seeds beginning with the stage's own first seed."""
    seeds = seed_list(given)
    if not isinstance(given, int):
        return seeds
    return (
        tuple(old[: len(seeds)])
        if len(seeds) <= len(old)
        else tuple(range(old[0], old[0] + len(seeds)))
    )


def _check_disjoint(stages: Mapping[str, Sequence[int]]) -> None:
    """Reject stages that share a seed: runs that chose a setting must not be compared at it."""
    for stage, other in itertools.combinations(stages, 2):
        if both := sorted({*stages[stage]} & {*stages[other]}):
            first = 1 + max(max(seeds) for name, seeds in stages.items() if name != other)
            free = f"{first}-{first + len(stages[other]) - 1}"
            raise ActlabError(
                f"stages {stage} and {other} both have seed {both[0]}: give each stage its own seeds, such as "
                f"{free} for {other} (in the file, or --seeds {other}={free})"
            )


def seed_list(value: Any) -> tuple[int, ...]:
    """Return seeds given as their number, as a range such as ``5-19`` or as a list of different numbers.

    >>> seed_list(3), seed_list("5-7"), seed_list([4, 2])
    ((0, 1, 2), (5, 6, 7), (4, 2))
    """
    seeds: Sequence[Any] = value if isinstance(value, list) else ()
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}-\d{1,9}", value):
        first, last = map(int, value.split("-"))
        seeds = range(first, last + 1)
    elif isinstance(value, int) and not isinstance(value, bool):
        seeds = range(min(value, MOST_SEEDS + 1))
    fits = 0 < len(seeds) <= MOST_SEEDS and all(type(s) is int and s >= 0 for s in seeds)
    if not fits or len(set(seeds)) < len(seeds):
        raise ActlabError(
            f"seeds {shown(value)}: give how many (a whole number from 1 to {MOST_SEEDS}), a range such as "
            "5-19, or a list of different whole numbers"
        )
    return tuple(seeds)
