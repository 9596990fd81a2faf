"""Lightning loggers for the runs of a study."""

from __future__ import annotations

import inspect
import itertools
import pydoc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from actlab.analysis.wording import few
from actlab.config.class_paths import import_path
from actlab.config.labels import label, printer
from actlab.config.values import canonical
from actlab.errors import ActlabError
from actlab.storage.logger_ids import has_id, id_in
from actlab.studies.plan import Run
from actlab.studies.study_folder import StudyFolder

NAMES = {
    "csv": "pytorch_lightning.loggers.CSVLogger",
    "tensorboard": "pytorch_lightning.loggers.TensorBoardLogger",
    "wandb": "actlab.reports.wandb.RunLogger",
}


@dataclass(frozen=True)
class Loggers:
    """Factory of loggers, one per run; of plain values, so that it can be sent to worker processes."""

    path: str  # of the logger's class
    group: str  # the study's name
    root: Path
    tags: tuple[str, ...]
    modes: Mapping[str, str]  # `min` or `max` by metric
    # Of grid values whose labels are ambiguous, by `canonical`, such as `a.py:Name`
    texts: Mapping[str, str]

    def __call__(self, run: Run) -> Any:
        """Return the logger of a run."""
        from actlab.config.plain_values import plain

        kind = pydoc.locate(self.path)
        settings = {
            "save_dir": str(self.root),
            "name": run.id,
            "group": self.group,
            "id": id_in(self.root / run.id),
            "tags": [*self.tags, self._text("", run.spelling)[:64]],
            "job_type": "run",
            "modes": self.modes,
        }
        accepted = inspect.signature(kind).parameters  # type: ignore[arg-type]
        logger = kind(**{key: value for key, value in settings.items() if key in accepted})  # type: ignore[operator]
        words = {"setting": run.point.in_words(text=self._text)}
        words |= {"activation": self._text("", run.spelling)} if run.spelling else {}
        logger.log_hyperparams({**plain(run.config), **words})
        return logger

    def _text(self, key: str, value: Any) -> str:
        return self.texts.get(canonical(value)) or label(value)


def logger_factory(name: str | None, folder: StudyFolder) -> Loggers | None:
    """Return a factory of loggers for the runs of a study: one of `NAMES`, or any class by its import path."""
    if name is None:
        return None
    from pytorch_lightning.loggers import Logger, TensorBoardLogger

    path = NAMES.get(name) or import_path(name) or name
    kind = pydoc.locate(path)
    if not (isinstance(kind, type) and issubclass(kind, Logger)):
        raise ActlabError(
            f"--logger {name!r} is not a Lightning logger class: give {', '.join(NAMES)} or an import path, "
            f"such as {NAMES['csv']}"
        )
    if issubclass(kind, TensorBoardLogger) and not any(
        map(find_spec, ("tensorboard", "tensorboardX"))
    ):
        raise ActlabError(
            f"--logger {name} requires the package tensorboard: pip install 'actlab[tensorboard]'"
        )
    study = folder.study
    known = {name: mode for name, mode in study.modes.items() if mode}
    return Loggers(path, study.name, folder.path, study.tags, known, _distinct_texts(study.runs()))


def unlogged(stages: Sequence[StudyFolder]) -> str:
    """Return a line about the finished runs that no logger has logged; empty without any."""
    finished = [run for stage in stages for run in stage.runs if run.finished]
    names = [run.id for run in finished if not has_id(run.path)]
    if not names:
        return ""
    return (
        f"{len(names)} of {len(finished)} finished runs have no log, because they were trained without "
        f"--logger: {few(names)}. Use another --runs-dir to train and log them again."
    )


def _distinct_texts(runs: Sequence[Run]) -> dict[str, str]:
    """Return texts of grid values with equal labels: the shortest path endings that distinguish them."""
    texts: dict[str, str] = {}
    for key in dict.fromkeys(key for run in runs for key in run.point):
        values = [run.point[key] for run in runs if key in run.point]
        text = printer(values)
        full = {canonical(v): text(v) for v in values if text(v) != label(v)}
        ends = (
            {who: "/".join(t.split("/")[-n:]) for who, t in full.items()}
            for n in itertools.count(1)
        )
        texts |= next(short for short in ends if len({*short.values()}) == len({*full.values()}))
    return texts
