"""What is recorded of runs while they are trained, as the checkpoint stores it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from actlab.engines.packed_rows import packed, unpacked
from actlab.storage.files import DamagedError
from actlab.studies.rows import Row
from actlab.studies.run_folder import RunFolder

T = TypeVar("T")
_SHARED = ("seconds", "stopped", "scored", "sampling_errors")  # of all runs together


class RunRecord:
    """What is recorded of one run; its files are written by `RunFolder`."""

    def __init__(self, index: int, folder: RunFolder) -> None:
        self.index = index  # on the run axis
        self.folder = folder
        self.rows: list[Row] = []
        self.pending: list[Row] = []  # of the current epoch
        self.initial: dict[str, float] = {}  # learnt parameters before training
        # The last good epoch, and all updates, including those of the epoch that
        # diverged
        self.divergence: tuple[int, int] | None = None

    @property
    def is_active(self) -> bool:
        """Whether the run has neither diverged nor finished."""
        return self.divergence is None and not self.folder.finished

    @property
    def is_diverging(self) -> bool:
        """Whether a loss of the current epoch is not finite, which ends the run."""
        for row in self.pending:
            is_loss = row.metric == "loss" or row.metric.endswith("_loss")
            is_finite = math.isfinite(row.value)
            if is_loss and not is_finite:
                return True
        return False


class JobRecord:
    """What is recorded of a run, or of the runs of a stack.

    It knows nothing of a Trainer: `Recorder` fills it, and puts it into the checkpoint.
    """

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        # Number the runs by their positions in a stack
        self.runs: list[RunRecord] = []
        for index, folder in enumerate(folders):
            self.runs.append(RunRecord(index, folder))

        # Of all runs together
        self.seconds = 0.0  # of training, including earlier starts
        self.stopped = False  # whether a callback has ended training
        self.scored: dict[str, int] = {}  # samples by split; see `Training.scored`
        self.sampling_errors: dict[
            str, list[float]
        ] = {}  # of each run by metric; see `Training`

        # Not in the checkpoint: of each run by name, in the latest epoch; see
        # `Training`
        self.matrices: dict[str, list[Any]] = {}
        self.sample_losses: dict[str, list[list[float]]] = {}

    @property
    def active_runs(self) -> list[RunRecord]:
        """The runs that have neither diverged nor finished."""
        return [run for run in self.runs if run.is_active]

    def state(self) -> dict[str, Any]:
        """Return the record for the checkpoint."""
        rows = {}
        initial = []
        for run in self.runs:
            rows[run.folder.id] = packed(run.rows)
            initial.append(run.initial)

        state: dict[str, Any] = {"rows": rows}
        for name in _SHARED:
            state[name] = getattr(self, name)
        state["initial"] = initial
        return state

    def restore(self, state: Mapping[str, Any], remedy: str) -> None:
        """Restore the record of `state`; a record of other runs raises a DamagedError."""
        # Check that the state is of these runs
        rows = state.get("rows", {})
        names = [run.folder.id for run in self.runs]
        if list(rows) != names:
            foreign = rows.keys() - set(names)
            owner = min(foreign, default="another version of actlab")
            damage = f"the checkpoint of {names[0]} is damaged: it belongs to {owner}"
            raise DamagedError(f"{damage}. {remedy}")

        # Restore it
        for run, initial in zip(self.runs, state["initial"], strict=True):
            record = rows[run.folder.id]
            run.rows = unpacked(record)
            run.initial = initial
        for name in _SHARED:
            setattr(self, name, state[name])


def of_run(columns: Mapping[str, Sequence[T]], r: int) -> dict[str, T]:
    """Return the values of run ``r`` by name, of columns with a value for each run."""
    return {name: values[r] for name, values in columns.items()}
