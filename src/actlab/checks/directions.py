"""Ask modules which values of their metrics are better, by the metric objects that their validation logs."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl

from actlab import experiments
from actlab.analysis.columns import columns_of, undirected
from actlab.config.keys import class_of, set_dotted
from actlab.config.metrics import mode_of, no_direction, quantity
from actlab.stages.opening import whole
from actlab.studies.folders import DIRECTIONS, StudyFolder
from actlab.studies.groups import of_each_value
from actlab.studies.plan import Run

_TRAINER: dict[str, Any] = {"num_sanity_val_steps": 2, "min_epochs": None, "min_steps": None}
_TRAINER |= {"devices": 1, "num_nodes": 1, "strategy": "auto"}


def direct(folder: StudyFolder) -> None:
    """Store the directions that only the modules of a study know, if any is needed, before anything trains.

    Raises:
        ActlabError: for a metric whose direction nothing says, and that is ranked, read at its best or selects.
    """
    if not undirected(folder.study, columns_of(folder.study)):
        return
    known = folder.directed
    study = known.study
    grid = known.of(whole(study, study.stages[0])) if study.stages else known
    if undirected(study, columns_of(study)) or not all(run.finished for run in grid.runs):
        print("asking the module which values of its metrics are better …")
        directed = directions(grid.study.runs())
        study = replace(study, directions=directed)
        if unknown := undirected(study, columns_of(study)):
            raise no_direction(unknown[0])
        folder.store(DIRECTIONS, directed)


def directions(runs: Iterable[Run]) -> dict[str, str]:
    """Return ``min`` or ``max`` by metric and by quantity, of metrics whose name does not say it.

    Of each module the first run that works is validated on two batches, as before a fit; the error of a module
    whose runs all fail is raised. Quantities of metrics with different directions are left out.
    """
    modes_of: dict[str, set[str]] = {}
    failures: dict[str, Exception | None] = {}
    for run in of_each_value(runs):
        if failures.get(module := str(class_of(run.config["model"])), True) is None:
            continue
        try:
            modes, failures[module] = _logged(run), None
        except Exception as error:  # third-party code may raise anything, of an activation too
            failures[module] = error
            continue
        for name, mode in modes.items():
            for key in {name, quantity(name)} if not mode_of(name) else ():
                modes_of.setdefault(key, set()).add(mode)
    for failure in filter(None, failures.values()):
        raise failure
    return {name: mode for name, (mode, *others) in modes_of.items() if not others}


def _logged(run: Run) -> dict[str, str]:
    config, seen = copy.deepcopy(run.config), _Seen()
    for key, value in _TRAINER.items():
        set_dotted(config, f"trainer.{key}", value)
    with tempfile.TemporaryDirectory() as folder:
        trainer, task, data = experiments.build(config, callbacks=[seen], default_root_dir=folder)
        trainer.fit(task, datamodule=data)
    return seen.modes


class _Seen(pl.Callback):
    """Reads the metric objects of the validation before a fit, which ends before its first update."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.modes: dict[str, str] = {}
        trainer.should_stop = True

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        results: Any = trainer.fit_loop.epoch_loop.val_loop._results
        for result in results.values():
            better = None if result.is_tensor else getattr(result.value, "higher_is_better", None)
            if better is not None:
                self.modes[result.meta.name] = "max" if better else "min"
