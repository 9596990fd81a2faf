"""Estimate the time that a study still needs on this machine while it is idle.

Updates of the study are timed for it.
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

    def seconds_of(self, runs: Sequence[Run]) -> float:
        """Return the seconds that runs take one by one, for updates only.

        A run that was not timed counts 0.
        """
        tuned_keys = self.study.select.tune
        total = 0.0
        for run in runs:
            seconds = self.seconds.get(run.point.without(tuned_keys), 0.0)
            total += seconds * (run.epochs or 1)
        return total * self.updates


def measure(
    study: Study, todo: Sequence[Run], helper: Worker | Inline, rounds: int
) -> Timing:
    """Time updates of each grid point of some runs.

    Args:
        study: the study.
        todo: the runs.
        helper: calls the study's code.
        rounds: how often each grid point is timed.

    Raises:
        NoEstimateError: no run can be trained, or the number of updates is unknown.
    """
    # Leave out runs that cannot be trained
    faults, built_facts = faults_of(todo, helper)
    trainable = [run for run in todo if run.id not in faults]
    if not trainable:
        reasons = "; ".join(dict.fromkeys(faults.values()))
        raise NoEstimateError(f"no run can be trained: {reasons}")

    # Time an update at each grid point
    tuned_keys = study.select.tune
    seconds = {}
    costs = measure_costs(
        helper, trainable, study, tuned_keys, rounds=rounds, processor=True
    )
    for cost in costs:
        if "failed" not in cost:
            point = Point(cost["point"]).without(tuned_keys)
            seconds[point] = cost["seconds_per_update"] + cost.get("seconds_added", 0)

    # The size of the data sets the length of an epoch
    updates = built_facts.updates_of(trainable[0])
    if not seconds or updates is None:
        raise NoEstimateError(
            "the time cannot be estimated, because the model is not an actlab task or the size of "
            "the data is unknown"
        )
    return Timing(study, seconds, updates)


def remaining(folder: StudyFolder, helper: Worker | Inline, rounds: int) -> float:
    """Return the seconds of updates of the unfinished runs of all stages, trained one by one."""
    study = folder.study
    stages = opening.opened(folder, store=False).stages
    current = stages[-1]
    unfinished = [
        run_folder.run for run_folder in current.runs if not run_folder.finished
    ]
    later_stages = study.stages[len(stages) :]
    # Nothing is left to train
    if not unfinished and not later_stages:
        return 0.0

    # The times of this stage's grid points price the later stages, too
    timing = measure(current.study, unfinished or current.study.runs(), helper, rounds)
    total = timing.seconds_of(unfinished)

    # Later stages train one setting of each group, with their own seeds and length
    for stage in later_stages:
        with_one_seed = replace(stage, seeds=stage.seeds[:1])
        for group in groups(opening.grid_of(study, with_one_seed)):
            one_run = group.settings[0].runs[:1]
            total += len(stage.seeds) * timing.seconds_of(one_run)
    return total


def timed(
    studies: Sequence[Study], runs: Path, worker: Worker | Inline
) -> dict[str, float]:
    """Print and return how many seconds each study will take on an idle machine, by its name."""
    # Try and time the updates of each study
    times: dict[str, float] = {}
    for study in studies:
        start = worker.call("time:process_time")
        try:
            updates = remaining(StudyFolder(study, runs / study.name), worker, _ROUNDS)
        except NoEstimateError as reason:
            print(f"{study.name}: {reason}")
            continue

        # All else takes about twice as long as trying and timing the updates here.
        # Other programs do not add to the time of the processor, which begins from 0 in
        # a new worker.
        elapsed = max(0.0, worker.call("time:process_time") - start)
        times[study.name] = updates + 2 * elapsed
        print(f"{study.name}: about {duration(times[study.name])}")

    # A study without an estimate counts as an average one
    untimed = [study.name for study in studies if study.name not in times]
    if untimed:
        print(f"not timed, counted as the mean of the others: {', '.join(untimed)}")
    mean = sum(times.values()) / max(1, len(times))
    return times | dict.fromkeys(untimed, mean)
