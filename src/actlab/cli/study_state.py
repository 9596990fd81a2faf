"""Text of ``actlab study plan`` and ``actlab study status``: which runs exist, and what remains to be done."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from actlab.analysis.wording import duration, few, plural
from actlab.cli import estimates
from actlab.cli.study_output import folder_of
from actlab.engines.running import ignored, uncosted
from actlab.stages import opening
from actlab.storage.files import DamagedError
from actlab.studies import probe_files
from actlab.studies.folders import (
    DAMAGED,
    DIVERGED,
    FAILED,
    FINISHED,
    OVER,
    STARTED,
    VALUES,
    WAITING,
    State,
    StudyFolder,
)
from actlab.studies.locks import is_held
from actlab.studies.plan import Run

RUNNING = "running"  # printed of a run that a process holds
KINDS = (FINISHED, DIVERGED, FAILED, DAMAGED, RUNNING, STARTED, WAITING)
States = Mapping[str, State]  # by run id


def show_plan(folder: StudyFolder, timed: bool, only: str | None = None) -> None:
    """Print the runs of all open stages or ``only`` of one, with their states and the remaining work."""
    ready = opening.opened(folder)
    stages = ready.stages if only is None else ready.until(only)[-1:]
    states = states_of(stages)
    runs = [run.run for stage in stages for run in stage.runs]
    words = {r.id: in_words(states[r.id], r) for r in runs}
    widest = max(map(len, words.values()))
    for r in runs:
        print(f"{words[r.id]:<{widest}}  {r.id}")
    todo = [r for r in runs if states[r.id].kind not in OVER]
    left = sum(r.epochs or 1 for r in todo)
    training = f"{plural(left, 'epoch')} of training left"
    print(f"{folder.study.name}: {plural(len(runs), 'run')}, {len(todo)} not finished, {training}")
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


def states_of(stages: Sequence[StudyFolder]) -> States:
    """Return the states of runs by id; an unfinished run that a process holds is running."""
    states = {run.id: run.state for stage in stages for run in stage.runs}
    for name, state in states.items():
        if state.kind in (STARTED, WAITING) and is_held(stages[0].path, name):
            states[name] = state._replace(kind=RUNNING)
    return states


def in_words(state: State, run: Run) -> str:
    """Return the state of a run: ``finished``, ``failed``, ``running, epoch 9 of 25`` or ``to run``."""
    if state.kind not in (RUNNING, STARTED):
        return "to run" if state.kind == WAITING else state.kind
    epoch = f"epoch {state.epochs} of {run.epochs}" if run.epochs else f"epoch {state.epochs}"
    return f"running, {epoch}" if state.kind == RUNNING else epoch


def unopened(ready: opening.Opened) -> Iterator[str]:
    """Yield a line about each stage that has not opened, and one if it already has finished runs."""
    stages = ready.folder.study.stages
    search = stages[0].search if stages else None
    if search and (left := sum(search.trials - len(side.settings) for side in ready.sides if side.space)):
        yield f"then {plural(left, 'more trial')} of stage {stages[0].name}, proposed from these results"
    for stage in stages[len(ready.stages) :]:
        points = len(ready.sides) or len(ready.stages[0].groups)
        size = f"{plural(points, 'grid point')} at selected settings × {plural(len(stage.seeds), 'seed')}"
        yield f"then stage {stage.name}: {size}"
    if line := ready.unopened():
        yield line


def show_status(folder: StudyFolder, again: str, only: str | None = None) -> None:
    """Print how many runs of each stage are in which state, and what to do next; change nothing."""
    ready, study = opening.opened(folder, store=False), folder.study
    stages = ready.stages if only is None else ready.until(only)[-1:]
    runs = {run.id: run.run for stage in stages for run in stage.runs}
    states = states_of(stages)
    now = time.time()
    names = [only] if only else [stage.name for stage in study.stages[: len(stages)]]
    print(f"{study.name}: {plural(len(runs), 'run')} in {folder.path}\n")
    for line in _table(names or ["all"], [[states[r.id] for r in stage.runs] for stage in stages], now):
        print(line.rstrip())
    print()
    waiting = [] if only else [*unopened(ready)]
    lacking = _lacking_probes(folder, states)
    probes = [f"probe {name}: evaluated on {done}" for name, done in lacking.items()]
    for line in (*_details(states, runs, now), *probes, *waiting):
        print(line)
    if line := ignored(stages):
        print(line)
    todo = [f"evaluates probe {name}" for name in lacking]
    todo += ["measures costs"] if any(map(uncosted, stages)) else []
    drawn = (folder_of(folder, only) / VALUES).exists()
    print(f"next: {_next(states, bool(waiting), again, todo, drawn)}")


def _table(names: Sequence[str], of_stages: Sequence[Sequence[State]], now: float) -> Iterator[str]:
    rows = [["stage", "runs", *KINDS, "last progress"]]
    for name, states in zip(names, of_stages, strict=True):
        count = Counter(state.kind for state in states)
        last = max((state.changed for state in states if state.changed), default=None)
        rows.append([name, str(len(states)), *(str(count[kind]) for kind in KINDS), age(last, now)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *cells, last_cell in rows:
        middle = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:-1], strict=True))
        yield "  ".join([f"{first:<{widths[0]}}", *middle, last_cell])


def age(moment: float | None, now: float) -> str:
    """Return how long ago a time in seconds was, in words; ``-`` for None."""
    return "-" if moment is None else f"{duration(max(0.0, now - moment))} ago"


def _details(states: States, runs: Mapping[str, Run], now: float) -> Iterator[str]:
    """Yield a line for the runs with equal details: epoch and age, or the reason of a failure."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, state in states.items():
        detail, epochs = "", runs[name].epochs
        if state.kind in (RUNNING, STARTED):
            of = f" of {epochs}" if epochs else ""
            since = f", {age(state.changed, now)}" if state.changed else ""
            detail = f" at epoch {state.epochs}{of}{since}"
        elif state.reason:
            detail = f" ({textwrap.shorten(state.reason, 300)})"
        if state.kind not in (FINISHED, WAITING):
            alike.setdefault((state.kind, detail), []).append(name)
    for kind, detail in sorted(alike, key=lambda group: KINDS.index(group[0])):
        yield f"{kind}{detail}: {few(alike[kind, detail])}"


def _lacking_probes(folder: StudyFolder, states: States) -> dict[str, str]:
    """Return how many finished runs have results, for each probe that lacks some."""
    finished = [name for name, state in states.items() if state.kind == FINISHED]
    wanted = probe_files.wanted(folder.study.probes, folder.study.keep)
    done = dict.fromkeys(wanted, 0)
    for name in finished if wanted else ():
        with suppress(DamagedError):  # named by `show`
            for probe, (question, _) in probe_files.found_in(folder.path / name).items():
                done[probe] = done.get(probe, 0) + (question == wanted.get(probe))
    of = f"of {len(finished)} finished runs"
    return {name: f"{done[name]} {of}" for name in wanted if done[name] < len(finished)}


def _next(states: States, waiting: bool, again: str, todo: Sequence[str], drawn: bool) -> str:
    """Return what to do next: ``again`` trains the unfinished runs, and does ``todo`` once all have ended."""
    count = Counter(state.kind for state in states.values())
    verbs = {STARTED: "resumes", WAITING: "starts"}
    left = [f"{verb} {plural(count[kind], 'run')}" for kind, verb in verbs.items() if count[kind]]
    left += [f"retries {plural(count[FAILED], 'failed run')}"] if left and count[FAILED] else []
    if count[RUNNING]:
        share = f"; `{again}` in another terminal takes a share of the others" if left else ""
        return f"wait for {plural(count[RUNNING], 'run')} in training{share}"
    if left:
        return f"`{again}` {', '.join(left)}"
    if count[DAMAGED]:
        return "delete the folders of damaged runs, and run the study again"
    if failed := plural(count[FAILED], "run") if count[FAILED] else "":
        ended = (
            f"all runs have ended except {failed} that failed; `{again}` retries them once you fix the cause"
        )
    elif waiting:
        return f"`{again}` starts the next stage"
    else:
        ended = "all runs have ended" + (f" ({count[DIVERGED]} diverged)" if count[DIVERGED] else "")
    todo = [*todo, *([] if drawn else ["draws the figures"])]
    if todo:
        return f"{ended}; `{again}{'' if drawn else ' --report'}` {', '.join(todo)}"
    return ended if failed else f"nothing: {ended}, and the figures are drawn"
