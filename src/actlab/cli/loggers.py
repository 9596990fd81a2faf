"""Lightning loggers for the runs of a study."""

from __future__ import annotations

import inspect
import pydoc
from collections import defaultdict
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
from actlab.storage.logger_ids import ensure_id, has_id
from actlab.studies.plan import Run
from actlab.studies.study_folder import StudyFolder

_LONGEST_TAG = 64  # characters, a limit of W&B
NAMES = {
    "csv": "pytorch_lightning.loggers.CSVLogger",
    "tensorboard": "pytorch_lightning.loggers.TensorBoardLogger",
    "wandb": "actlab.reports.wandb.RunLogger",
}


@dataclass(frozen=True)
class Loggers:
    """Factory of loggers, one per run.

    It holds plain values, so that it can be sent to worker processes.
    """

    path: str  # import path of the logger's class
    group: str  # the study's name
    root: Path
    tags: tuple[str, ...]
    modes: Mapping[str, str]  # `min` or `max` by metric
    # Labels of grid values whose usual labels are equal, by `canonical`, such as
    # `a.py:Name`
    texts: Mapping[str, str]

    def __call__(self, run: Run) -> Any:
        """Return the logger of a run."""
        from actlab.config.plain_values import plain

        # The id file is made for every class, because it also marks the run as logged
        activation_label = self._label(run.spelling)
        settings = {
            "save_dir": str(self.root),
            "name": run.id,
            "group": self.group,
            "id": ensure_id(self.root / run.id),
            "tags": [*self.tags, activation_label[:_LONGEST_TAG]],
            "job_type": "run",
            "modes": self.modes,
        }

        # Build the logger with the arguments that its class names
        kind = pydoc.locate(self.path)
        accepted = inspect.signature(kind).parameters  # type: ignore[arg-type]
        arguments = {key: value for key, value in settings.items() if key in accepted}
        logger = kind(**arguments)  # type: ignore[operator]

        # Log the config, the setting and the activation
        hyperparameters = plain(run.config)
        hyperparameters["setting"] = run.point.in_words(
            text=lambda _, value: self._label(value)
        )
        if run.spelling:
            hyperparameters["activation"] = activation_label
        logger.log_hyperparams(hyperparameters)
        return logger

    def _label(self, value: Any) -> str:
        return self.texts.get(canonical(value)) or label(value)


def logger_factory(name: str | None, folder: StudyFolder) -> Loggers | None:
    """Return a factory of loggers for the runs of a study.

    ``name`` is one of `NAMES`, or the import path of any logger class of Lightning.
    """
    if name is None:
        return None
    # Imported lazily: loads torch
    from pytorch_lightning.loggers import Logger, TensorBoardLogger

    # Find the class
    path = NAMES.get(name) or import_path(name) or name
    kind = pydoc.locate(path)
    if not (isinstance(kind, type) and issubclass(kind, Logger)):
        raise ActlabError(
            f"--logger: expected {', '.join(NAMES)} or the import path of a Lightning logger, such "
            f"as {NAMES['csv']}, got {name!r}."
        )
    # Report a missing package before any run is trained
    has_tensorboard = find_spec("tensorboard") or find_spec("tensorboardX")
    if issubclass(kind, TensorBoardLogger) and not has_tensorboard:
        raise ActlabError(
            f"--logger {name} requires the package tensorboard, which is not installed. Install "
            "the extra `tensorboard`: pip install 'actlab[tensorboard]'."
        )

    # Collect what the loggers of all runs share
    study = folder.study
    modes = {metric: mode for metric, mode in study.modes.items() if mode}
    texts = _distinct_texts(study.runs())
    return Loggers(path, study.name, folder.path, study.tags, modes, texts)


def unlogged(stages: Sequence[StudyFolder]) -> str:
    """Return a line about the finished runs that no logger has logged; empty without any."""
    finished = []
    for stage in stages:
        finished += [run for run in stage.runs if run.finished]
    # An id marks a run as logged
    names = [run.id for run in finished if not has_id(run.path)]
    if not names:
        return ""
    return (
        f"{len(names)} of {len(finished)} finished runs have no log, because they were trained "
        f"without --logger: {few(names)}. Use another --runs-dir to train and log them again."
    )


def _distinct_texts(runs: Sequence[Run]) -> dict[str, str]:
    """Return the shortest endings of paths that distinguish grid values of one label."""
    # Labels need to differ only within a key
    values_by_key: dict[str, list[Any]] = defaultdict(list)
    for run in runs:
        for key, value in run.point.items():
            values_by_key[key].append(value)

    texts: dict[str, str] = {}
    for values in values_by_key.values():
        # Find the values whose label is ambiguous
        write = printer(values)
        full_texts = {}
        for value in values:
            if write(value) != label(value):
                full_texts[canonical(value)] = write(value)

        # Lengthen the endings until they differ
        number = len(set(full_texts.values()))
        length = 1
        endings = _endings(full_texts, length)
        while len(set(endings.values())) < number:
            length += 1
            endings = _endings(full_texts, length)
        texts |= endings
    return texts


def _endings(paths: Mapping[str, str], length: int) -> dict[str, str]:
    """Return the last parts of paths, ``length`` of each."""
    return {key: "/".join(path.split("/")[-length:]) for key, path in paths.items()}
