"""The state of a run, read from its folder and its lock."""

from __future__ import annotations

from typing import NamedTuple

from actlab.storage.files import DamagedError
from actlab.studies.folders import DIVERGED, FINISHED, RunFolder
from actlab.studies.locks import is_held

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


def state_of(folder: RunFolder) -> State:
    """Return the state of a run."""
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
