"""Looks at a verdict before a study was extended by more seeds or cut to fewer, or a search by more trials.

Whoever adds seeds until a difference is significant finds one too often, and so does whoever
searches other settings and compares them again. Verdicts are therefore corrected at each later
look: at look k ≥ 2 every p-value is multiplied by k (k + 1). The chance of a wrong verdict at any
of the looks is then at most 0.05 · (1 + 1/6 + 1/12 + …) = 0.075, however often a study is extended;
`benchmarks/verdicts.py` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NotRequired

from typing_extensions import TypedDict

from actlab.storage.files import DamagedError
from actlab.studies import locks
from actlab.studies.plan import Study
from actlab.studies.study_folder import StudyFolder

FILE = "looks.json"
DECIDED = ("better", "worse", "equivalent", "undecided")
_SEED = re.compile(r"-seed(\d+)-[^-]*$")  # in the name of a run
_REMEDY = "delete it; verdicts are then not corrected for earlier looks"


class Look(TypedDict):
    """A verdict that was shown: its seeds and runs, and `Study.question` where a search chose its settings."""

    seeds: list[int]
    runs: list[str]
    question: NotRequired[str]


def read(folder: StudyFolder) -> list[Look]:
    """Return the recorded looks of a study's folder, the first look first."""
    return folder.stored(FILE, list[Look], _REMEDY)


def record(folder: StudyFolder, outcomes: Iterable[str]) -> None:
    """Record that verdicts on a study are about to be shown, if any of them is decided."""
    if not any(outcome in DECIDED for outcome in outcomes):
        return
    with locks.alone(folder.path, locks.DECIDING):
        known, look = read(folder), _look_at(folder.study)
        same = (n for n, other in enumerate(known) if _agree(other, look))
        place = next(same, len(known))
        # At a later look an activation that had failed may have runs.
        known[place : place + 1] = [
            max([*known[place : place + 1], look], key=lambda seen: len(seen["runs"]))
        ]
        folder.store(FILE, known)


def seen(folder: StudyFolder) -> tuple[int, str]:
    """Return at how many looks a verdict was seen before, and why that cannot be read; empty if it can."""
    try:
        return earlier(read(folder), folder), ""
    except DamagedError as error:
        return 0, str(error)


def earlier(looks: list[Look], folder: StudyFolder) -> int:
    """Return at how many looks a verdict was seen before."""
    study = folder.study
    now = _look_at(study)
    alike = [look for look in looks if look.get("question", "") == study.question]
    if study.question:  # after a search: looks with other runs, recorded before this one
        seen = [_agree(look, now) for look in alike]
        return seen.index(True) if True in seen else len(seen)
    seeds = {
        frozenset(look["seeds"]) for look in alike if not set(now["runs"]).isdisjoint(look["runs"])
    }
    # Looks at fewer seeds of some of the runs, and one more if runs have seeds that are left out
    # now.
    before = sum(fewer < set(now["seeds"]) for fewer in seeds)
    return before + (frozenset(now["seeds"]) not in seeds and _left_out(folder))


def _left_out(folder: StudyFolder) -> bool:
    """Return whether a folder has runs of the study with seeds of no stage, which selected no settings."""
    study = folder.study
    names = (_SEED.search(path.name) for path in folder.path.glob("*-seed*"))
    of_stages = {seed for stage in study.stages for seed in stage.seeds}
    others = (
        {int(match[1]) for match in names if match} - {*study.seeds, *study.chosen_on} - of_stages
    )
    wanted = replace(study, seeds=tuple(sorted(others))).runs() if others else ()
    return any((folder.path / run.id).is_dir() for run in wanted)


def factor(number: int) -> int:
    """Return what p-values are multiplied by after some number of earlier looks: 1, 6, 12, …."""
    return (number + 1) * (number + 2) if number else 1


def _look_at(study: Study) -> Look:
    runs = [run.id for run in study.runs()]
    return Look(seeds=sorted(study.seeds), runs=runs, question=study.question)


def _agree(look: Look, other: Look) -> bool:
    """Return whether looks have the same question and runs, but for activations that failed."""
    runs, others = {*look["runs"]}, {*other["runs"]}
    alike = (
        look.get("question", "") == other.get("question", "") and look["seeds"] == other["seeds"]
    )
    return alike and (runs <= others or runs >= others)
