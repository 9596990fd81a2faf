"""Looks at a verdict before a study was changed: more or fewer seeds, or more trials of a search.

If you add seeds until a difference is significant, you find one too often. The same holds if you
search other settings and compare them again. Verdicts are therefore corrected at each later look:
at look k ≥ 2 every p-value is multiplied by k (k + 1). The chance of a wrong verdict at any look
is then at most 0.05 · (1 + 1/6 + 1/12 + …) = 0.075, however often a study is extended.
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
# Outcomes that wait for no more runs.
FINAL = (
    "better",
    "worse",
    "equivalent",
    "undecided",
)
_SEED = re.compile(r"-seed(\d+)-[^-]*$")  # in the name of a run
_REMEDY = "Delete it. Verdicts are then not corrected for earlier looks."


class Look(TypedDict):
    """A verdict that was shown: its seeds and runs.

    If a search selected its settings, ``question`` is `Study.question`.
    """

    seeds: list[int]
    runs: list[str]
    question: NotRequired[str]


def read(folder: StudyFolder) -> list[Look]:
    """Return the recorded looks of a study's folder, in the order in which they were recorded."""
    return folder.stored(FILE, list[Look], _REMEDY)


def record(folder: StudyFolder, outcomes: Iterable[str]) -> None:
    """Record that verdicts on a study are about to be shown, if any of them is final."""
    if not any(outcome in FINAL for outcome in outcomes):
        return

    with locks.alone(folder.path, locks.DECIDING):
        looks = read(folder)
        look = _look_at(folder.study)
        for number, recorded in enumerate(looks):
            if _agree(recorded, look):
                # At a later look an activation that had failed may have runs.
                looks[number] = max(
                    recorded, look, key=lambda entry: len(entry["runs"])
                )
                break
        else:
            looks.append(look)
        folder.store(FILE, looks)


def seen(folder: StudyFolder) -> tuple[int, str]:
    """Return at how many looks a verdict was seen before.

    The text says why this cannot be read; it is empty if it can.
    """
    try:
        return _number_before(read(folder), folder), ""
    except DamagedError as error:
        return 0, str(error)


def _number_before(looks: list[Look], folder: StudyFolder) -> int:
    """Return how many looks precede a look at the study as it is now."""
    # Only looks at the same question count
    study = folder.study
    look = _look_at(study)
    looks = [
        recorded for recorded in looks if recorded.get("question", "") == study.question
    ]

    # After a search, each look with other runs counts that was recorded before this
    # one.
    if study.question:
        for number, recorded in enumerate(looks):
            if _agree(recorded, look):
                return number
        return len(looks)

    # Find which seeds of these runs were looked at.
    runs = set(look["runs"])
    seeds_of_looks = set()
    for recorded in looks:
        if not runs.isdisjoint(recorded["runs"]):
            seeds_of_looks.add(frozenset(recorded["seeds"]))

    # Each look at fewer seeds counts.
    seeds = frozenset(look["seeds"])
    number = 0
    for fewer in seeds_of_looks:
        if fewer < seeds:
            number += 1

    # Runs with seeds that are left out now may have been seen, too.
    if seeds not in seeds_of_looks and _has_left_out(folder):
        number += 1
    return number


def _has_left_out(folder: StudyFolder) -> bool:
    """Return whether a folder has runs of the study with seeds of no stage.

    Runs that selected settings do not count.
    """
    # Collect the seeds of the comparison and of all stages
    study = folder.study
    used = {*study.seeds, *study.chosen_on}
    for stage in study.stages:
        used.update(stage.seeds)

    # Find other seeds by the names of runs.
    unused = set()
    for path in folder.path.glob("*-seed*"):
        match = _SEED.search(path.name)
        if match and int(match[1]) not in used:
            unused.add(int(match[1]))
    if not unused:
        return False

    # The folder may have runs of other studies, which have other ids.
    runs = replace(study, seeds=tuple(sorted(unused))).runs()
    return any((folder.path / run.id).is_dir() for run in runs)


def factor(number: int) -> int:
    """Return what p-values are multiplied by after some number of earlier looks: 1, 6, 12, …."""
    if number == 0:
        return 1
    return (number + 1) * (number + 2)


def _look_at(study: Study) -> Look:
    runs = [run.id for run in study.runs()]
    return Look(seeds=sorted(study.seeds), runs=runs, question=study.question)


def _agree(look: Look, other_look: Look) -> bool:
    """Return whether looks have equal questions, seeds and runs, except activations that failed."""
    if look.get("question", "") != other_look.get("question", ""):
        return False
    if look["seeds"] != other_look["seeds"]:
        return False
    runs, other_runs = set(look["runs"]), set(other_look["runs"])
    return runs <= other_runs or runs >= other_runs
