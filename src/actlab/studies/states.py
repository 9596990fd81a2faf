"""The state of a run, from its files alone."""

from __future__ import annotations

from typing import NamedTuple

from actlab.storage.files import DamagedError, read_json
from actlab.studies.folders import DIVERGED, FINISHED, RunFolder
from actlab.studies.formats import Failure

WAITING, STARTED, FAILED, DAMAGED = "waiting", "started", "failed", "damaged"
OVER = (FINISHED, DIVERGED, DAMAGED)  # states that the next start of the study leaves as they are


class State(NamedTuple):
    """The state of a run. Whether a process holds it is another question: `actlab.studies.locks.is_held`.

    ``waiting`` has completed no epoch, ``started`` can be resumed, ``failed`` is tried again by the next start,
    ``damaged`` has a malformed ``result.json``; else a run is ``finished`` or ``diverged``.
    """

    kind: str
    epochs: int = 0  # that an unfinished run has completed
    changed: float | None = None  # time of the last progress, in seconds since 1970
    reason: str = ""  # why the run failed or is damaged


def state_of(folder: RunFolder) -> State:
    """Return the state of a run."""
    if folder.finished:
        try:
            return State(folder.result()["status"], changed=folder.changed)
        except DamagedError as error:
            return State(DAMAGED, folder.epochs, folder.changed, str(error))
    if not folder.path.exists():
        return State(WAITING)
    epochs, changed = folder.epochs, folder.changed
    if folder.failure_file.exists():
        try:
            reason = read_json(folder.failure_file, Failure, "delete it")["error"]
        except DamagedError as error:
            reason = str(error)
        return State(FAILED, epochs, changed, reason)
    begun = epochs > 0 or folder.checkpoint.exists()  # a member of a stack has no checkpoint of its own
    return State(STARTED, epochs, changed) if begun else State(WAITING)
