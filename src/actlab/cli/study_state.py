"""Text of ``actlab study plan`` and ``status``: the states of runs, and what remains to be done."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from actlab.analysis.wording import duration, plural
from actlab.cli import estimates
from actlab.engines.ignored_runs import ignored
from actlab.stages import opening
from actlab.studies.locks import is_held
from actlab.studies.plan import Run, Study
from actlab.studies.states import (
    DAMAGED,
    DIVERGED,
    FAILED,
    FINISHED,
    OVER,
    STARTED,
    WAITING,
    State,
)
from actlab.studies.study_folder import StudyFolder

RUNNING = "running"  # printed of a run that a process holds
KINDS = (FINISHED, DIVERGED, FAILED, DAMAGED, RUNNING, STARTED, WAITING)


def show_plan(
    folder: StudyFolder, with_time: bool, stage_name: str | None = None
) -> None:
    """Print the runs of all open stages or of one, and the remaining work."""
    # Print the states
    opened = opening.opened(folder)
    stages = _stages_of(opened, stage_name)
    states = states_of(stages)
    for name, state in states.items():
        print(f"{state.kind:<8}  {name}")

    # Count what remains
    todo = []
    for stage in stages:
        todo += [run.run for run in stage.runs if states[run.id].kind not in OVER]
    epochs = sum(run.epochs or 1 for run in todo)
    remaining = f"{len(todo)} not finished, {plural(epochs, 'epoch')} of training left"
    print(f"{folder.study.name}: {plural(len(states), 'run')}, {remaining}")
    # A list of one stage says nothing about later stages
    if not stage_name:
        for line in unopened(opened):
            print(line)
    ignored_runs = ignored(stages)
    if ignored_runs:
        print(ignored_runs)

    if todo and with_time:
        _print_time(stages[-1].study, todo)


def _stages_of(opened: opening.Opened, name: str | None) -> Sequence[StudyFolder]:
    """Return all open stages, or only one of them."""
    if name is None:
        return opened.stages
    return opened.until(name)[-1:]


def _print_time(study: Study, todo: Sequence[Run]) -> None:
    """Time updates of a study, and print how long its unfinished runs take."""
    from actlab.engines.workers import Worker

    # A worker loads torch, which the listing of runs does without
    try:
        with Worker() as helper:
            timing = estimates.measure(study, todo, helper, rounds=8)
    except estimates.NoEstimateError as reason:
        print(reason)
        return
    scope = f"for updates only ({timing.updates} updates per epoch, timed just now)"
    print(f"about {duration(timing.seconds_of(todo))} one by one, {scope}")


def states_of(stages: Sequence[StudyFolder]) -> dict[str, State]:
    """Return the states of runs by id; an unfinished run that a process holds is running."""
    states = {}
    for stage in stages:
        for run in stage.runs:
            states[run.id] = run.state

    # A lock tells a run in training from one whose process was killed
    for name, state in states.items():
        if state.kind in (STARTED, WAITING) and is_held(stages[0].path, name):
            states[name] = State(RUNNING)
    return states


def unopened(opened: opening.Opened) -> list[str]:
    """Return lines about stages that have not opened, and about finished runs of such a stage."""
    lines = []
    for stage in opened.folder.study.stages[len(opened.stages) :]:
        # It has a run for each grid point and seed, whatever settings are selected
        points = plural(len(opened.stages[0].groups), "grid point")
        seeds = plural(len(stage.seeds), "seed")
        lines.append(
            f"then stage {stage.name}: {points} at selected settings × {seeds}"
        )
    # Such a stage may have finished runs, as in a part of an archive
    message = opened.unopened()
    if message:
        lines.append(message)
    return lines


def show_status(
    folder: StudyFolder, command: str, stage_name: str | None = None
) -> None:
    """Print the number of runs in each state by stage, and what to do next; change nothing.

    ``command`` is the command that runs the study.
    """
    # Read the states without storing selections
    opened = opening.opened(folder, store=False)
    study = folder.study
    stages = _stages_of(opened, stage_name)
    states = states_of(stages)
    print(f"{study.name}: {plural(len(states), 'run')} in {folder.path}\n")

    # Print the table of states
    names = ["all"]
    if stage_name:
        names = [stage_name]
    elif study.stages:
        names = [stage.name for stage in study.stages]
    width = max(map(len, ["stage", *names]))
    print("  ".join([f"{'stage':<{width}}", "runs", *KINDS]))
    for name, stage in zip(names, stages, strict=False):
        kinds = Counter(states[run.id].kind for run in stage.runs)
        cells = [f"{kinds[kind]:>{len(kind)}}" for kind in KINDS]
        print("  ".join([f"{name:<{width}}", f"{len(stage.runs):>4}", *cells]))
    print()

    # Print what the table does not show
    reasons = Counter(
        (state.kind, state.reason) for state in states.values() if state.reason
    )
    for (kind, reason), number in reasons.items():
        print(f"{plural(number, 'run')} {kind}: {textwrap.shorten(reason, 300)}")
    # Name the stages that have not opened
    later = []
    if not stage_name:
        later = unopened(opened)
    for line in later:
        print(line)
    ignored_runs = ignored(stages)
    if ignored_runs:
        print(ignored_runs)

    # Print the next command
    kinds = Counter(state.kind for state in states.values())
    print(f"next: {_next(kinds, bool(later), command)}")


def _next(kinds: Mapping[str, int], waits_for_stage: bool, command: str) -> str:
    """Return what to do next: ``command`` trains unfinished runs and measures what is missing."""
    # The first state below decides, from the most urgent one
    if kinds[RUNNING]:
        return f"wait for {plural(kinds[RUNNING], 'run')} in training"
    unfinished = kinds[STARTED] + kinds[WAITING]
    if unfinished:
        return f"`{command}` trains {plural(unfinished + kinds[FAILED], 'run')}"
    if kinds[DAMAGED]:
        return "delete the folders of damaged runs, and run the study again"
    if kinds[FAILED]:
        ended = f"all runs have ended except {plural(kinds[FAILED], 'run')} that failed"
        return f"{ended}; `{command}` retries them once you fix the cause"
    if waits_for_stage:
        return f"`{command}` starts the next stage"
    addition = "adds missing probes and costs, and draws the figures"
    return f"all runs have ended; `{command} --report` {addition}"
