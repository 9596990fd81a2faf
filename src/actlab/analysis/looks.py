"""Looks at a verdict before a study was extended by more seeds or cut to fewer, or a search by more trials.

Whoever adds seeds until a difference is significant finds one too often, and so does whoever searches other
settings and compares them again. Verdicts are therefore corrected at each later look: at look k ≥ 2 every
p-value is multiplied by k (k + 1). The chance of a wrong verdict at any of the looks is then at most 0.05 · (1
+ 1/6 + 1/12 + …) = 0.075, however often a study is extended; `benchmarks/verdicts.py` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from actlab.storage.files import DamagedError, read_json, write_json
from actlab.studies.folders import RunFolder
from actlab.studies.plan import Study

FILE = "looks.json"
DECIDED = ("better", "worse", "equivalent", "undecided")
_SEED = re.compile(r"-seed(\d+)-[^-]*$")  # in the name of a run
_REMEDY = "delete it; verdicts are then not corrected for earlier looks"


class Look(TypedDict):
    """A verdict that was printed: its seeds and runs, and `Study.question` where a search chose its settings.

    Of a study without a search only verdicts before an extension are recorded, with their finished runs.
    """

    seeds: list[int]
    runs: list[str]
    question: NotRequired[str]


class _Verdict(TypedDict):
    outcome: str


class _Table(TypedDict, total=False):
    seeds: list[int]
    verdicts: list[_Verdict]


def read(root: Path) -> list[Look]:
    """Return the recorded looks of a study's folder, the first look first."""
    file = root / FILE
    return read_json(file, list[Look], _REMEDY) if file.exists() else []


def earlier(looks: list[Look], study: Study, root: Path) -> int:
    """Return at how many looks a verdict was seen before.

    Without a search these are the looks at fewer seeds of the same runs; and one more if runs were begun with
    seeds that are left out now. After a search they are the looks at the same question, with other runs, that
    were recorded before this one; at the same runs but for activations that failed it is the same look.
    """
    planned, seeds = {run.id for run in study.runs()}, set(study.seeds)
    alike = [look for look in looks if _is_of(look, study)]
    if study.question:
        seen = [_agree(look, _of_search(study)) for look in alike]
        return seen.index(True) if True in seen else len(seen)
    before = sum(set(look["seeds"]) < seeds and planned.issuperset(look["runs"]) for look in alike)
    recorded = any(set(look["seeds"]) == seeds and planned.issuperset(look["runs"]) for look in alike)
    return before + (not recorded and _left_out(study, root))


def _left_out(study: Study, root: Path) -> bool:
    """Return whether a folder has runs of the study with seeds of no stage, which selected no settings."""
    names = (_SEED.search(folder.name) for folder in root.glob("*-seed*"))
    of_stages = {seed for stage in study.stages for seed in stage.seeds}
    others = {int(found[1]) for found in names if found} - {*study.seeds, *study.chosen_on} - of_stages
    wanted = replace(study, seeds=tuple(sorted(others))).runs() if others else ()
    return any((root / run.id).is_dir() for run in wanted)


def factor(number: int) -> int:
    """Return what p-values are multiplied by after some number of earlier looks: 1, 6, 12, …."""
    return (number + 1) * (number + 2) if number else 1


def record_search(study: Study, root: Path, outcomes: Iterable[str]) -> None:
    """Record that a decided verdict on what a search has chosen is about to be printed."""
    if study.question and any(outcome in DECIDED for outcome in outcomes):
        known, look = read(root), _of_search(study)
        alike = (n for n, one in enumerate(known) if _is_of(one, study) and _agree(one, look))
        place = next(alike, len(known))
        known[place : place + 1] = [max([*known[place : place + 1], look], key=lambda one: len(one["runs"]))]
        write_json(root / FILE, known)


def _is_of(look: Look, study: Study) -> bool:
    """Return whether a look is at the study's question, under today's digest or that of an earlier version."""
    return look.get("question", "") in (study.question, study.former_question or study.question)


def _of_search(study: Study) -> Look:
    runs = [run.id for run in study.runs()]
    return Look(seeds=sorted(study.seeds), runs=runs, question=study.question)


def _agree(one: Look, other: Look) -> bool:
    """Return whether looks at one question have the same runs, but for activations that failed."""
    runs, others = {*one["runs"]}, {*other["runs"]}
    return one["seeds"] == other["seeds"] and (runs <= others or runs >= others)


def record(study: Study, root: Path) -> None:
    """Record that a verdict was seen, if the study has more seeds than its last table with verdicts."""
    if study.question:  # see `record_search`
        return
    try:
        seen = read_json(root / "table.json", _Table, "")
    except DamagedError:
        return
    decided = any(one["outcome"] in DECIDED for one in seen.get("verdicts", []))
    seeds = set(seen.get("seeds", []))
    if not decided or not seeds < set(study.seeds):
        return
    runs = [run.id for run in study.runs() if run.seed in seeds and RunFolder(root, run).finished]
    look = Look(seeds=sorted(seeds), runs=runs)
    if runs and look not in (known := read(root)):
        write_json(root / FILE, [*known, look])
