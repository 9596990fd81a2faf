"""Folders: that of a run, whose files are identical for every engine, and that of a study.

::

    runs/<study>/<run id>/
        config.yaml       the resolved config, for people
        metrics.csv       rows during training, for people only: a resumed run reads the rows in its checkpoint
        metrics.parquet   all rows, written once at the end: epoch, step, split, metric, condition, value
        result.json       status and summaries for tables; written last, it marks the run as finished
        matrices.json     the latest result of each metric that is not a number, such as a confusion matrix
        units.parquet     measurements of each unit, if a callback records them: `engines.unit_records`
        logger.json       the run's id for loggers
        checkpoints/      last.ckpt and the checkpoints that the study keeps: best.ckpt, epoch=5.ckpt
        probes/           <name>.parquet: rows of evaluations after training

Parquet files and torch checkpoints hold checksums. A damaged file is reported, never used.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from actlab.config.keys import by_key
from actlab.config.metrics import logged, metric_and_condition
from actlab.config.places import without_replaced_dataset
from actlab.runtime.machine import hardware, versions
from actlab.storage import series
from actlab.storage.files import DamagedError, regular, replacing, write_atomically
from actlab.storage.json_files import read_json, stored_json, update_json, write_json
from actlab.storage.logger_ids import id_in
from actlab.storage.mappings import written
from actlab.studies import opened
from actlab.studies.formats import Chosen, Cost, Failure, Result
from actlab.studies.groups import Group, groups
from actlab.studies.plan import Run, Study

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
WAITING, STARTED, FAILED, DAMAGED = "waiting", "started", "failed", "damaged"
METRICS = "metrics.parquet"  # file name in a run's folder: all rows
MATRICES = "matrices.json"  # file name in a run's folder
RESULT = "result.json"  # file name in a run's folder; its presence marks the run as finished
COSTS = "cost.json"  # file name in a study's folder
SELECTION, RESELECT = "selection.json", "delete it; the settings of later stages are then selected again"
VALUES = "values.csv"  # written together with the figures
FINISHED: Final = "finished"
DIVERGED: Final = "diverged"
OVER = (FINISHED, DIVERGED, DAMAGED)  # states that the next start of the study leaves as they are
UNITS, UNITS_SO_FAR = "units.parquet", "units"


class Row(NamedTuple):
    """One measured value.

    ``epoch`` counts passes over the training data and may be fractional. ``condition`` is empty for metrics of
    training, but ``layer=3`` for learnt parameters and ``one batch`` for values of a batch; probes set it to
    what they measure, such as ``noise=0.5``. ``loop`` is the one that logged the value, ``train``, ``val`` or
    ``test``; it is empty for actlab's tasks, whose ``split`` says it.
    """

    epoch: float
    step: int
    split: str
    metric: str
    condition: str
    value: float
    loop: str = ""

    @property
    def name(self) -> str:
        """``split/metric``, or only the metric if there is no split."""
        return f"{self.split}/{self.metric}" if self.split else self.metric

    @property
    def logs(self) -> tuple[str, str]:
        """The name, and the loop that logged it; see `actlab.storage.series.names`."""
        return self.name, self.loop

    @property
    def logged(self) -> str:
        """The name with the condition, as loggers know it: ``activation/beta[layer=3]``."""
        return logged(self.name, self.condition)


def split_name(name: str) -> tuple[str, str, str]:
    """Split a logged name into split, metric and condition; the split of a name without a slash is empty.

    >>> split_name("val/loss"), split_name("activation/beta[layer=3]")
    (('val', 'loss', ''), ('activation', 'beta', 'layer=3'))
    """
    metric, condition = metric_and_condition(name)
    split, _, last = metric.rpartition("/")
    return split, last, condition


def frame_of(rows: Iterable[Row]) -> pd.DataFrame:
    """Return rows as a data frame, sorted by step and names, without the column ``loop`` if no row has one."""
    import pandas as pd  # takes 0.2 s to import, and only writers need it

    texts = dict.fromkeys(("split", "metric", "condition", "loop"), "str")
    types = {**texts, "epoch": "f8", "step": "i8", "value": "f8"}
    ordered = sorted(rows, key=lambda row: (row.step, row.split, row.metric, row.condition, row.loop))
    frame = pd.DataFrame(ordered, columns=Row._fields).astype(types)
    return frame if any(row.loop for row in ordered) else frame.drop(columns="loop")


def _cells(row: Row) -> list[Any]:
    return [*row[:6], *filter(None, row[6:])]


class State(NamedTuple):
    """The state of a run. Whether a process holds it is another question: `actlab.studies.locks.is_held`.

    ``waiting`` has completed no epoch, ``started`` can be resumed, ``failed`` is tried again by the next start,
    ``damaged`` has a malformed ``result.json``; else a run is ``finished`` or ``diverged``.
    """

    kind: str
    reason: str = ""  # why the run failed or is damaged


class RunFolder:
    """The folder of one run: paths, state, writing and checked reading of its files."""

    def __init__(self, root: Path, run: Run) -> None:
        self.run = run
        self.path = root / run.id
        self.checkpoint = self.kept("last")  # from which an unfinished run resumes
        self.metrics = self.path / METRICS  # all rows of a finished run
        self.failure_file = self.path / "failed.json"  # the error of the last attempt at a run that failed
        self._result = self.path / RESULT
        self._so_far = self.path / "metrics.csv"

    @property
    def id(self) -> str:
        """The id of the run, which names the folder."""
        return self.run.id

    @property
    def remedy(self) -> str:
        """What to do about damaged files of the run, for error messages."""
        return f"delete {self.path} and run the study again"

    def kept(self, at: str | int) -> Path:
        """Return the path of the checkpoint ``last``, ``best`` or after some epochs."""
        name = f"epoch={at}" if isinstance(at, int) else at
        return self.path / "checkpoints" / f"{name}.ckpt"

    @property
    def finished(self) -> bool:
        """Whether the run has a result: it has completed its last epoch or diverged."""
        return self._result.exists()

    def result(self) -> Result:
        """Return ``result.json`` of a finished run; raise a DamagedError if damaged or of another run."""
        result = read_json(self._result, Result, self.remedy)
        if (result["id"], result["identity"]) != (self.run.id, self.run.identity):
            raise DamagedError(f"{self._result} belongs to another run: {self.remedy}")
        return result

    @property
    def state(self) -> State:
        """The state of the run, from its files alone."""
        if self.finished:
            try:
                return State(self.result()["status"])
            except DamagedError as error:
                return State(DAMAGED, str(error))
        if not self.path.exists():
            return State(WAITING)
        if self.failure_file.exists():
            try:
                reason = read_json(self.failure_file, Failure, "delete it")["error"]
            except DamagedError as error:
                reason = str(error)
            return State(FAILED, reason)
        # A member of a stack has no checkpoint of its own
        begun = self.epochs > 0 or self.checkpoint.exists()
        return State(STARTED if begun else WAITING)

    def try_again(self) -> None:
        """Delete the record of an earlier failure."""
        self.failure_file.unlink(missing_ok=True)

    def fail(self, error: str) -> None:
        """Record a failure; the next start of the study tries the run again."""
        write_json(self.failure_file, {"id": self.run.id, "error": error})

    @property
    def logger_id(self) -> str:
        """The run's id for loggers, created once so that a resumed run continues its history."""
        return id_in(self.path)

    @property
    def epochs(self) -> int:
        """Number of epochs recorded in ``metrics.csv`` during training; 0 if there are none."""
        try:
            *_, last = regular(self._so_far).read_text(encoding="utf-8").splitlines()
            return int(float(last.partition(",")[0]))
        except (OSError, ValueError):  # no rows yet, or the file was edited
            return 0

    def open(self) -> None:
        """Create the folder and write the config."""
        self.try_again()
        write_atomically(self.path / "config.yaml", written(without_replaced_dataset(self.run.config)))

    def rewrite(self, rows: Iterable[Row], loops: bool = False) -> None:
        """Start ``metrics.csv``, with a column of ``loops`` or not, with the rows of the resumed checkpoint."""
        text = io.StringIO(newline="")
        csv.writer(text).writerows([Row._fields if loops else Row._fields[:-1], *map(_cells, rows)])
        write_atomically(self._so_far, text.getvalue())  # also over a pipe, which `open` would wait for

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Add rows to ``metrics.csv``; raise an OSError if the folder was moved or deleted."""
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path} was deleted or moved while its run was trained: put it back")
        with self._so_far.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(map(_cells, rows))

    def keep_matrices(self, matrices: Mapping[str, Any]) -> None:
        """Write results that are not numbers to ``matrices.json``, over those of the same names."""
        update_json(self.path / MATRICES, matrices, self.remedy)

    def finish(self, status: str, rows: Sequence[Row], **facts: Any) -> None:
        """Write ``metrics.parquet``, then ``result.json``, which marks the run as finished or diverged.

        ``facts`` are further entries of ``result.json``, such as ``seconds`` and ``last_good_epoch``.
        """
        with replacing(self.metrics) as partial:
            series.write(frame_of(rows), partial)
            recorded = series.read(partial)
        loops = {name: loop for (_, loop), name in series.names(row.logs for row in rows).items() if loop}
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
            **({"loops": loops} if loops else {}),
            **({"code": self.run.code} if self.run.code else {}),
            **facts,
        }
        write_json(self._result, result)
        self.tidy()

    def tidy(self) -> None:
        """Delete the files that a finished run no longer needs, including those left by a killed process."""
        if self.finished:
            self._so_far.unlink(missing_ok=True)
            shutil.rmtree(self.path / UNITS_SO_FAR, ignore_errors=True)


@dataclass(frozen=True)
class StudyFolder:
    """A study, or a stage as a study, with the folder of its runs and of the files that they share."""

    study: Study
    path: Path

    def of(self, study: Study) -> StudyFolder:
        """Return the same folder with another study: a stage, or the trials of a search."""
        return StudyFolder(study, self.path)

    @cached_property
    def runs(self) -> list[RunFolder]:
        """The folders of the study's runs, in its order."""
        return [RunFolder(self.path, run) for run in self.study.runs()]

    @cached_property
    def groups(self) -> list[Group]:
        """The study's groups, in the order of its file."""
        return groups(self.study)

    @property
    def with_opened_files(self) -> StudyFolder:
        """The study with the files that users' code opens, which its folder stores."""
        files = self.stored(opened.FILE, dict[str, list[str]], "delete it; the next start writes it again")
        return self.of(replace(self.study, opened_files=files))

    @property
    def costs(self) -> list[Cost]:
        """The entries of ``cost.json`` whose runs still exist; empty without the file."""
        entries = self.stored(COSTS, list[Cost], "delete it; the next run measures the costs again")
        there = {folder.name for folder in self.path.glob("[!.]*/")}  # a damaged name may be longer than a path
        return [entry for entry in entries if entry["run"] in there]

    @property
    def selection(self) -> dict[str, Chosen]:
        """The stored selections of later stages, by stage and grid point; empty without the file."""
        return self.stored(SELECTION, dict[str, Chosen], RESELECT)

    def stored(self, name: str, kind: type[T], remedy: str) -> T:
        """Return the checked content of a JSON file that the runs share; empty without the file."""
        return stored_json(self.path / name, kind, remedy)

    def store(self, name: str, content: Any) -> None:
        """Write a JSON file that the runs share."""
        write_json(self.path / name, content)

    def finished(self) -> list[str]:
        """Return the names of the finished runs, of any plan."""
        return [result.parent.name for result in self.path.glob(f"[!.]*/{RESULT}")]


def timed_together(costs: Iterable[Cost]) -> list[list[Cost]]:
    """Return the entries of each measurement, the last one first: only times taken in turns can be compared."""
    return [*by_key((cost.get("measured"), cost) for cost in costs).values()][::-1]
