"""Text of ``actlab study plan`` and ``status``: the states of runs, and what remains to be done."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from actlab.analysis.wording import duration, plural
from actlab.cli import estimates
from actlab.engines.running import ignored
from actlab.stages import opening
from actlab.studies.locks import is_held
from actlab.studies.states import DAMAGED, DIVERGED, FAILED, FINISHED, OVER, STARTED, WAITING, State
from actlab.studies.study_folder import StudyFolder

RUNNING = "running"  # printed of a run that a process holds
KINDS = (FINISHED, DIVERGED, FAILED, DAMAGED, RUNNING, STARTED, WAITING)


def show_plan(folder: StudyFolder, timed: bool, only: str | None = None) -> None:
    """Print the runs of all open stages or ``only`` of one, with their states and the remaining work."""
    ready = opening.opened(folder)
    stages = ready.stages if only is None else ready.until(only)[-1:]

    states = states_of(stages)
    for name, state in states.items():
        print(f"{state.kind:<8}  {name}")

    todo = [run.run for stage in stages for run in stage.runs if states[run.id].kind not in OVER]
    left = sum(run.epochs or 1 for run in todo)
    remaining = f"{len(todo)} not finished, {plural(left, 'epoch')} of training left"
    print(f"{folder.study.name}: {plural(len(states), 'run')}, {remaining}")
    for line in (*(() if only else unopened(ready)), *filter(None, [ignored(stages)])):
        print(line)

    if todo and timed:
        from actlab.engines.workers import Worker

        try:
            with Worker() as helper:
                timing = estimates.measure(stages[-1].study, todo, helper, rounds=8)
        except estimates.NoEstimateError as reason:
            print(reason)
            return
        said = f"for updates only ({timing.updates} updates per epoch, timed just now)"
        print(f"about {duration(timing.of(todo))} one by one, {said}")


def states_of(stages: Sequence[StudyFolder]) -> dict[str, State]:
    """Return the states of runs by id; an unfinished run that a process holds is running."""
    states = {run.id: run.state for stage in stages for run in stage.runs}
    for name, state in states.items():
        if state.kind in (STARTED, WAITING) and is_held(stages[0].path, name):
            states[name] = State(RUNNING)
    return states


def unopened(ready: opening.Opened) -> Iterator[str]:
    """Yield a line about each stage that has not opened, and one if it already has finished runs."""
    stages = ready.folder.study.stages
    for stage in stages[len(ready.stages) :]:
        points = plural(len(ready.stages[0].groups), "grid point")
        seeds = plural(len(stage.seeds), "seed")
        yield f"then stage {stage.name}: {points} at selected settings × {seeds}"
    if line := ready.unopened():
        yield line


def show_status(folder: StudyFolder, again: str, only: str | None = None) -> None:
    """Print how many runs of each stage are in which state, and what to do next; change nothing."""
    ready, study = opening.opened(folder, store=False), folder.study
    stages = ready.stages if only is None else ready.until(only)[-1:]
    states = states_of(stages)
    print(f"{study.name}: {plural(len(states), 'run')} in {folder.path}\n")

    # The table of states
    names = [only] if only else [stage.name for stage in study.stages] or ["all"]
    width = max(map(len, ["stage", *names]))
    print("  ".join([f"{'stage':<{width}}", "runs", *KINDS]))
    for name, stage in zip(names, stages, strict=False):
        kinds = Counter(states[run.id].kind for run in stage.runs)
        cells = [f"{kinds[kind]:>{len(kind)}}" for kind in KINDS]
        print("  ".join([f"{name:<{width}}", f"{len(stage.runs):>4}", *cells]))
    print()

    # What the table does not show
    reasons = Counter((state.kind, state.reason) for state in states.values() if state.reason)
    for (kind, reason), number in reasons.items():
        print(f"{plural(number, 'run')} {kind}: {textwrap.shorten(reason, 300)}")
    waiting = [] if only else [*unopened(ready)]
    for line in (*waiting, *filter(None, [ignored(stages)])):
        print(line)
    print(f"next: {_next(Counter(state.kind for state in states.values()), bool(waiting), again)}")


def _next(kinds: Mapping[str, int], waiting: bool, again: str) -> str:
    """Return what to do next: ``again`` trains unfinished runs and measures what is missing."""
    if kinds[RUNNING]:
        return f"wait for {plural(kinds[RUNNING], 'run')} in training"
    if left := kinds[STARTED] + kinds[WAITING]:
        return f"`{again}` trains {plural(left + kinds[FAILED], 'run')}"
    if kinds[DAMAGED]:
        return "delete the folders of damaged runs, and run the study again"
    if kinds[FAILED]:
        failed = f"all runs have ended except {plural(kinds[FAILED], 'run')} that failed"
        return f"{failed}; `{again}` retries them once you fix the cause"
    if waiting:
        return f"`{again}` starts the next stage"
    adds = "adds missing probes and costs, and draws the figures"
    return f"all runs have ended; `{again} --report` {adds}"
