"""Run folders: what a run leaves on disk, the same for every engine.

::

    runs/<study>/<run id>/
        config.yaml       the resolved config
        point.json        grid point, seed, study
        metrics.csv       rows while it is trained, for people to read: what counts is in its checkpoint
        metrics.parquet   all rows, written once at the end: epoch, step, split, metric, condition, value
        result.json       how it ended, and what tables read of its rows; written last: then a run is finished
        units.parquet     what a callback has measured of every unit, where one does: `engines.unit_records`
        logger.json       the id by which loggers know the run
        checkpoints/      last.ckpt, and what the study keeps: best.ckpt, epoch=5.ckpt
        probes/           <name>.parquet: rows of evaluations after training

``result.json``, with a digest of its own, holds those of the other files, and torch's checkpoints carry
checksums: what is damaged is named, not read.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import shutil
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from actlab.errors import ActlabError
from actlab.storage import series
from actlab.storage.files import (
    DamagedError,
    digest_of,
    id_in,
    read_json,
    regular,
    replacing,
    write_atomically,
    write_sealed,
)
from actlab.studies.formats import Failure, Result
from actlab.studies.plan import Run

if TYPE_CHECKING:
    import pandas as pd

COSTS = "cost.json"  # in a study's folder
FINISHED: Final = "finished"
DIVERGED: Final = "diverged"
SUMMARY: Final = "summary"  # in result.json: what tables read of the rows, by name and condition
UNITS, UNITS_SO_FAR = "units.parquet", "units"
_PARTS = re.compile(
    r"(metrics|units)\.parquet|config\.yaml|checkpoints/[\w.=-]+\.ckpt"
)  # what a result may name
_PACKAGES = ("actlab", "torch", "pytorch-lightning", "torchmetrics")


class Row(NamedTuple):
    """One measured value; ``epoch`` counts passes over the training data, also between their ends.

    The condition is empty in training and says ``noise=0.5`` or ``layer=3`` where something was measured under
    it or of a part.
    """

    epoch: float
    step: int
    split: str
    metric: str
    condition: str
    value: float

    @property
    def name(self) -> str:
        """``split/metric``, or the metric alone where there is no split."""
        return f"{self.split}/{self.metric}" if self.split else self.metric


def split_name(name: str) -> tuple[str, str]:
    """The split and metric of ``val/loss``; of a name without a slash the split is empty."""
    split, _, metric = name.rpartition("/")
    return split, metric


def frame_of(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a table, in order of step and name."""
    import pandas as pd  # takes a fifth of a second, which who only reads does without

    types = {
        **{"epoch": "float64", "step": "int64", "split": "str", "metric": "str"},
        **{"condition": "str", "value": "float64"},
    }
    ordered = sorted(rows, key=lambda row: (row.step, row.split, row.metric, row.condition))
    return pd.DataFrame(ordered, columns=Row._fields).astype(types)


class RunFolder:
    """One run's folder."""

    def __init__(self, root: Path, run: Run) -> None:
        self.run = run
        self.path = root / run.id
        self.checkpoint = self.kept("last")
        self.metrics = self.path / "metrics.parquet"
        self._so_far = self.path / "metrics.csv"
        self._result = self.path / "result.json"
        self._failure = self.path / "failed.json"
        self.remedy = f"delete {self.path} and run the study again"

    def kept(self, name: str) -> Path:
        """The checkpoint of a name: ``last``, ``best`` or ``epoch=5``."""
        return self.path / "checkpoints" / f"{name}.ckpt"

    @property
    def finished(self) -> bool:
        """Whether the run has ended, by reaching its last epoch or by diverging."""
        return self._result.exists()

    @property
    def started(self) -> bool:
        """Whether a checkpoint waits to be resumed."""
        return not self.finished and self.checkpoint.exists()

    def result(self) -> Result:
        """What ``result.json`` of a finished run says; its checkpoints, which may be large, are not checked.

        The table of all units, which no other part needs, may be missing.

        Raises:
            DamagedError: when that file, or one that it names, is damaged or missing.
        """
        found = read_json(self._result, Result, self.remedy)
        if found["id"] != self.run.id or found.get("identity", self.run.identity) != self.run.identity:
            raise DamagedError(f"{self._result} is no result of this run: {self.remedy}")
        for name, digest in found.get("files", {}).items():
            if not _PARTS.fullmatch(name):
                raise DamagedError(f"{self._result} names {name!r}, which is no part of a run: {self.remedy}")
            gone = name == UNITS and not (self.path / name).exists()  # left out of what is kept for long
            if not (gone or name.endswith(".ckpt")):
                self._check(self.path / name, digest)
        return found

    def checked(self, checkpoint: Path) -> Path:
        """A checkpoint of a finished run, compared with the digest in its result.

        Raises:
            DamagedError: when it is not the one that the run wrote.
        """
        digest = self.result().get("files", {}).get(str(checkpoint.relative_to(self.path)))
        if digest is not None:
            self._check(checkpoint, digest)
        return checkpoint

    def _check(self, path: Path, digest: str) -> None:
        try:
            whole = digest_of(path) == digest
        except OSError:
            whole = False
        if not whole:
            raise DamagedError(f"{path} is damaged or missing: {self.remedy}")

    def _parts(self) -> list[Path]:
        """The files that a finished run consists of, besides its result."""
        return [
            self.metrics,
            self.path / UNITS,
            self.path / "config.yaml",
            *sorted(self.checkpoint.parent.glob("[!.]*.ckpt")),
        ]

    @property
    def failed(self) -> bool:
        """Whether the run failed at this start of its study."""
        return self._failure.exists()

    @property
    def failure(self) -> str | None:
        """Why the last attempt at the run failed; None when it did not."""
        if self.finished or not self.failed:
            return None
        return read_json(self._failure, Failure, "delete it")["error"]

    def try_again(self) -> None:
        """Forget that the run failed at an earlier start."""
        self._failure.unlink(missing_ok=True)

    def fail(self, error: str) -> None:
        """Record that the run failed; the next start of the study tries it again."""
        write_sealed(self._failure, {"id": self.run.id, "error": error})

    @property
    def logger_id(self) -> str:
        """The id by which loggers know the run: made once, so that a resumed run continues its own history."""
        return id_in(self.path)

    @property
    def epochs(self) -> int:
        """How many epochs of a run that is being trained have been recorded."""
        try:
            *_, last = regular(self._so_far).read_text(encoding="utf-8").splitlines()
            return int(float(last.partition(",")[0]))
        except (OSError, ValueError):  # none has, or somebody has written something else there
            return 0

    def open(self) -> None:
        """Make the folder and record what is run."""
        self.try_again()
        write_atomically(self.path / "config.yaml", yaml.safe_dump(self.run.config, sort_keys=False))
        point = {"id": self.run.id, "seed": self.run.seed, "point": self.run.point}
        write_atomically(self.path / "point.json", json.dumps(point, indent=1))

    def rewrite(self, rows: Iterable[Row]) -> None:
        """Begin the file for people with the rows of the checkpoint that training resumes from."""
        with self._so_far.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([Row._fields, *rows])

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows to the file for people.

        Raises:
            ActlabError: where the folder is gone; nothing is written into one that was moved or deleted.
        """
        if not self.path.is_dir():
            raise ActlabError(
                f"{self.path} was deleted or moved while its run was trained: put it back; the same command "
                "resumes"
            )
        with self._so_far.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)

    def finish(self, status: str, rows: Sequence[Row], **facts: Any) -> None:
        """Write ``metrics.parquet``, then ``result.json``; the run is finished.

        Args:
            status: `FINISHED` or `DIVERGED`.
            rows: all that was measured.
            facts: further entries of ``result.json``, such as ``seconds`` and ``last_good_epoch``.
        """
        with replacing(self.metrics) as partial:
            frame_of(rows).to_parquet(partial, index=False)
            recorded = series.read(partial, Row._fields)
        result = {
            "status": status,
            "id": self.run.id,
            "seed": self.run.seed,
            "point": self.run.point,
            "sources": self.run.sources,
            "identity": self.run.identity,
            "final": {row.name: row.value for row in sorted(rows, key=lambda r: r.step) if not row.condition},
            SUMMARY: series.as_entry(series.summaries(recorded)),
            **facts,
            "versions": versions(),
            "hardware": hardware(),
            "files": {str(p.relative_to(self.path)): digest_of(p) for p in self._parts() if p.exists()},
        }
        write_sealed(self._result, result)
        self.tidy()

    def tidy(self) -> None:
        """Remove what a finished run no longer needs, and a kill may have left."""
        if self.finished:
            self._so_far.unlink(missing_ok=True)
            shutil.rmtree(self.path / UNITS_SO_FAR, ignore_errors=True)


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that decide a run's numbers, for provenance."""
    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}


@cache
def hardware() -> str:
    """The processor and the number of its cores, for provenance."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = regular(cpuinfo).read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
