"""The state of a run, read from its folder and its lock."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from actlab.storage.collection import uncollected
from actlab.storage.files import DamagedError
from actlab.studies import ended
from actlab.studies.folders import DIVERGED, FINISHED, RESULT, RunFolder
from actlab.studies.locks import is_held
from actlab.studies.plan import Run

DAMAGED, FAILED, RUNNING, INTERRUPTED, MISSING = "damaged", "failed", "running", "interrupted", "missing"
KINDS = (FINISHED, DIVERGED, FAILED, DAMAGED, RUNNING, INTERRUPTED, MISSING)
OVER = (FINISHED, DIVERGED, DAMAGED)  # states that the next start of the study leaves as they are


class State(NamedTuple):
    """The state of a run.

    Args:
        kind: one of `KINDS`: ``damaged`` has a malformed ``result.json``, ``running`` is locked by a process,
            ``interrupted`` can be resumed, and ``missing`` has completed no epoch.
        epochs: number of epochs that an unfinished run has completed.
        changed: time of the last progress, in seconds since 1970; None if there is none.
        reason: why the run failed or is damaged, else empty.
    """

    kind: str
    epochs: int = 0
    changed: float | None = None
    reason: str = ""


@uncollected()
def states_of(runs: Iterable[Run], root: Path) -> dict[str, State]:
    """Return the states of runs by id; see `actlab.studies.ended` for the runs that are not read again."""
    known, runs = ended.read(root), list(runs)
    stamps = {run.id: ended.stamp_of(f"{root}/{run.id}", run.identity) for run in runs}
    same = {name: entry for name, entry in known.items() if stamps.get(name) == entry.stamp}
    results = dict(zip(same, ended.results_of([*same.values()]), strict=True))
    states = {
        name: State(result["status"], changed=ended.changed(same[name].stamp, RESULT))
        for name, result in results.items()
    }
    return {run.id: states.get(run.id) or state_of(RunFolder(root, run)) for run in runs}


def state_of(folder: RunFolder) -> State:
    """Return the state of a run."""
    if not os.path.lexists(folder.path):
        return State(RUNNING if is_held(folder.path.parent, folder.run.id) else MISSING)
    changed = folder.changed
    try:
        if folder.finished:
            return State(folder.record["status"], changed=changed)
        if (failure := folder.failure) is not None:
            return State(FAILED, folder.epochs, changed, failure)
    except DamagedError as error:
        return State(DAMAGED if folder.finished else FAILED, folder.epochs, changed, str(error))
    if is_held(folder.path.parent, folder.run.id):
        return State(RUNNING, folder.epochs, changed)
    begun = folder.started or folder.epochs > 0  # a member of a stack has no checkpoint of its own
    return State(INTERRUPTED if begun else MISSING, folder.epochs, changed if begun else None)
