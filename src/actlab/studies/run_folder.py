"""The folder of a run, whose files are identical for every engine.

::

    runs/<study>/<run id>/
        config.yaml       the resolved config, for people
        metrics.csv       rows during training, for people; a resumed run reads its checkpoint
        metrics.parquet   all rows, written at the end: epoch, step, split, metric, condition, value
        result.json       status and summaries; written last, it marks the run as finished
        matrices.json     the latest results that are not numbers, such as a confusion matrix
        units.parquet     measurements of each unit, if a callback makes them; see
                          `actlab.engines.unit_records`
        logger.json       the run's id for loggers
        checkpoints/      last.ckpt and those that the study stores: best.ckpt, epoch=5.ckpt
        probes/           <name>.parquet: rows of evaluations after training

Parquet files and torch checkpoints hold checksums. A damaged file is reported, never used.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from actlab.config.text import without_replaced_dataset
from actlab.runtime.machine import hardware, versions
from actlab.storage import series
from actlab.storage.files import DamagedError, regular, replacing, write_atomically
from actlab.storage.json_files import read_json, update_json, write_json
from actlab.storage.mappings import written
from actlab.studies.formats import Failure, Result
from actlab.studies.plan import Run
from actlab.studies.rows import Row, frame_of
from actlab.studies.states import DAMAGED, FAILED, STARTED, WAITING, State

MATRICES = "matrices.json"
RESULT = "result.json"  # its presence marks the run as finished
UNITS, UNITS_SO_FAR = "units.parquet", "units"


class RunFolder:
    """The files of one run: their paths, the run's state, writing and checked reading.

    It trains nothing, and it locks nothing: `actlab.studies.locks` says whether a process holds
    the run. A `StudyFolder` has the files that the runs of a study share.
    """

    def __init__(self, root: Path, run: Run) -> None:
        self.run = run
        self.path = root / run.id
        # The checkpoint from which an unfinished run resumes.
        self.checkpoint = self.checkpoint_at("last")
        self.metrics = self.path / "metrics.parquet"  # all rows of a finished run
        self.failure_file = self.path / "failed.json"  # the error of the last attempt
        self._result = self.path / RESULT
        self._so_far = self.path / "metrics.csv"

    @property
    def id(self) -> str:
        """The id of the run, which names the folder."""
        return self.run.id

    @property
    def remedy(self) -> str:
        """What to do about damaged files of the run, for error messages."""
        return f"Delete {self.path} and run the study again."

    def checkpoint_at(self, at: str | int) -> Path:
        """Return the path of the checkpoint ``last``, ``best`` or after some epochs."""
        name = at
        if isinstance(at, int):
            name = f"epoch={at}"
        return self.path / "checkpoints" / f"{name}.ckpt"

    @property
    def finished(self) -> bool:
        """Whether the run has a result: it has completed its last epoch or diverged."""
        return self._result.exists()

    def result(self) -> Result:
        """Return ``result.json`` of a finished run.

        Raises:
            DamagedError: the file is damaged, or belongs to another run.
        """
        result = read_json(self._result, Result, self.remedy)
        # The folder of another run may have been copied here
        if (result["id"], result["identity"]) != (self.run.id, self.run.identity):
            raise DamagedError(f"{self._result} belongs to another run. {self.remedy}")
        return result

    @property
    def state(self) -> State:
        """The state of the run, from its files alone."""
        # A damaged result is a state, not an error
        if self.finished:
            try:
                return State(self.result()["status"])
            except DamagedError as error:
                return State(DAMAGED, str(error))

        # Not started, or ended with an error
        if not self.path.exists():
            return State(WAITING)
        if self.failure_file.exists():
            try:
                reason = read_json(self.failure_file, Failure, "Delete it.")["error"]
            except DamagedError as error:
                reason = str(error)
            return State(FAILED, reason)

        # A member of a stack has no checkpoint of its own
        if self.epochs > 0 or self.checkpoint.exists():
            return State(STARTED)
        return State(WAITING)

    def try_again(self) -> None:
        """Delete the record of an earlier failure."""
        self.failure_file.unlink(missing_ok=True)

    def fail(self, error: str) -> None:
        """Record a failure; the next start of the study tries the run again."""
        write_json(self.failure_file, {"id": self.run.id, "error": error})

    @property
    def epochs(self) -> int:
        """Number of epochs recorded in ``metrics.csv`` during training; 0 if there are none."""
        try:
            # The first column of the last row; rows come in the order of epochs
            *_, last = regular(self._so_far).read_text(encoding="utf-8").splitlines()
            return int(float(last.partition(",")[0]))
        except (OSError, ValueError):  # no rows yet, or the file was edited
            return 0

    def open(self) -> None:
        """Create the folder and write the config."""
        self.try_again()
        config = without_replaced_dataset(self.run.config)
        write_atomically(self.path / "config.yaml", written(config))

    def rewrite(self, rows: Iterable[Row], loops: bool = False) -> None:
        """Start ``metrics.csv`` with the rows of the resumed checkpoint.

        The file has a column for ``loops`` or not.
        """
        # Only tasks of other packages have rows with a loop
        columns: Sequence[str] = Row._fields
        if not loops:
            columns = columns[:-1]
        text = io.StringIO(newline="")
        csv.writer(text).writerows([columns, *map(_cells, rows)])

        # Over a pipe, too, which `open` would wait for
        write_atomically(self._so_far, text.getvalue())

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Add rows to ``metrics.csv``; raise an OSError if the folder was moved or deleted."""
        if not self.path.is_dir():
            raise FileNotFoundError(
                f"{self.path} was deleted or moved while its run was trained. Move it back."
            )
        with self._so_far.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(map(_cells, rows))

    def keep_matrices(self, matrices: Mapping[str, Any]) -> None:
        """Write results that are not numbers to ``matrices.json``, over those with equal names."""
        update_json(self.path / MATRICES, matrices, self.remedy)

    def finish(self, status: str, rows: Sequence[Row], **facts: Any) -> None:
        """Write ``metrics.parquet``, then ``result.json``, which marks the run as over.

        Args:
            status: ``finished`` or ``diverged``.
            rows: all rows of the run.
            **facts: further entries of ``result.json``, such as ``seconds``.
        """
        # All rows, read again, so that the summaries describe what is in the file
        with replacing(self.metrics) as partial:
            series.write(frame_of(rows), partial)
            recorded = series.read(partial)

        # What the result has for some runs only
        optional: dict[str, Any] = {}
        names = series.names(row.logs for row in rows)
        loops = {name: loop for (_, loop), name in names.items() if loop}
        if loops:
            optional["loops"] = loops
        if self.run.code:
            optional["code"] = self.run.code

        # Written after the metrics, because it marks the run as over
        result = {
            "status": status,
            "id": self.run.id,
            "seed": self.run.seed,
            "point": dict(self.run.point),
            "sources": self.run.sources,
            "identity": self.run.identity,
            "summary": series.as_entry(series.summaries(recorded)),
            "versions": versions(),
            "hardware": hardware(),
            **optional,
            **facts,
        }
        write_json(self._result, result)
        self.tidy()

    def tidy(self) -> None:
        """Delete the files that a finished run no longer needs, also what a killed process left."""
        if self.finished:
            self._so_far.unlink(missing_ok=True)
            shutil.rmtree(self.path / UNITS_SO_FAR, ignore_errors=True)


def _cells(row: Row) -> list[Any]:
    """Return the cells of a row in ``metrics.csv``; the loop is left out if it is empty."""
    cells = list(row)
    return cells if row.loop else cells[:-1]
