"""The state of a run, as its own files tell it."""

from __future__ import annotations

from typing import Final, NamedTuple

WAITING, STARTED, FAILED, DAMAGED = "waiting", "started", "failed", "damaged"
FINISHED: Final = "finished"
DIVERGED: Final = "diverged"
# States that the next start of the study leaves as they are.
OVER = (
    FINISHED,
    DIVERGED,
    DAMAGED,
)


class State(NamedTuple):
    """The state of a run; `actlab.studies.locks.is_held` says whether a process holds it.

    Attributes:
        kind: ``waiting`` has completed no epoch, ``started`` can be resumed, ``failed`` is tried
            again by the next start, ``damaged`` has a malformed ``result.json``; else a run is
            ``finished`` or ``diverged``.
        reason: why the run failed or is damaged.
    """

    kind: str
    reason: str = ""
