"""Estimate the time that a study still needs on this machine while it is idle, from updates timed now.

On the CPU the processor time of an update counts, because wall time grows with what other programs
do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from actlab.analysis.wording import duration
from actlab.engines.running import faults_of, measure_costs
from actlab.errors import ActlabError
from actlab.stages import opening
from actlab.studies.groups import groups
from actlab.studies.plan import Run, Study
from actlab.studies.points import Point
from actlab.studies.study_folder import StudyFolder

if TYPE_CHECKING:
    from actlab.engines.workers import Inline, Worker

_ROUNDS = 2  # of timed updates of each of several studies


class NoEstimateError(ActlabError):
    """No run can be trained, or the number of updates is unknown."""


class Timing(NamedTuple):
    """Timed updates of a study, or of one of its stages."""

    study: Study
    seconds: Mapping[Point, float]  # of an update, by grid point without tuned keys
    updates: int  # per epoch

    def of(self, runs: Sequence[Run]) -> float:
        """Return the seconds that runs take one by one, for updates only; 0 for a run that was not timed."""
        tune = self.study.select.tune
        each = (self.seconds.get(run.point.without(tune), 0.0) * (run.epochs or 1) for run in runs)
        return sum(each) * self.updates


def measure(study: Study, todo: Sequence[Run], helper: Worker | Inline, rounds: int) -> Timing:
    """Time updates of each grid point of some runs, ``rounds`` times; ``helper`` calls the study's code."""
    faults, known = faults_of(todo, helper)
    able = [run for run in todo if run.id not in faults]
    if not able:
        raise NoEstimateError("no run can be trained: " + "; ".join(dict.fromkeys(faults.values())))
    tune = study.select.tune
    measured = measure_costs(helper, able, study, tune, rounds=rounds, processor=True)
    seconds = {
        Point(cost["point"]).without(tune): cost["seconds_per_update"]
        + cost.get("seconds_added", 0)
        for cost in measured
        if "failed" not in cost
    }
    updates = known.updates_of(able[0])
    if not seconds or updates is None:
        raise NoEstimateError(
            "no time estimate: the model is not an actlab task, or the size of the data is unknown"
        )
    return Timing(study, seconds, updates)


def remaining(folder: StudyFolder, helper: Worker | Inline, rounds: int) -> float:
    """Return the seconds that the unfinished runs of all stages take one by one, for updates only."""
    study, ready = folder.study, opening.opened(folder, store=False).stages
    todo = [run.run for run in ready[-1].runs if not run.finished]
    later = study.stages[len(ready) :]
    if not todo and not later:
        return 0.0
    timing = measure(ready[-1].study, todo or ready[-1].study.runs(), helper, rounds)
    total = timing.of(todo)
    for stage in later:  # one setting of each group, and the stage's own seeds and length
        for group in groups(opening.whole(study, replace(stage, seeds=stage.seeds[:1]))):
            total += timing.of(group.settings[0].runs[:1]) * len(stage.seeds)
    return total


def timed(studies: Sequence[Study], runs: Path, worker: Worker | Inline) -> dict[str, float]:
    """Print and return how many seconds each study will take on an idle machine, by its name."""
    times: dict[str, float] = {}
    for study in studies:
        begun = worker.call("time:process_time")
        try:
            updates = remaining(StudyFolder(study, runs / study.name), worker, _ROUNDS)
        except NoEstimateError as reason:
            print(f"{study.name}: {reason}")
            continue
        # All else takes about twice as long as trying and timing the updates here. Other programs
        # do not add to the time of the processor, which begins from 0 in a new worker.
        taken = max(0.0, worker.call("time:process_time") - begun)
        times[study.name] = updates + 2 * taken
        print(f"{study.name}: about {duration(times[study.name])}")

    untimed = [study.name for study in studies if study.name not in times]
    if untimed:
        print(f"not timed, counted as the mean of the others: {', '.join(untimed)}")
    mean = sum(times.values()) / max(1, len(times))
    return times | dict.fromkeys(untimed, mean)
