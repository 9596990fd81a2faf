"""Ask modules which values of their metrics are better, by the metric objects that their validation logs."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable
from typing import Any

import pytorch_lightning as pl

from actlab import experiments
from actlab.config.keys import class_of, set_dotted
from actlab.config.metrics import mode_of, quantity
from actlab.studies.groups import of_each_value
from actlab.studies.plan import Run

_BATCHES = 2  # as in Lightning
_SET = {
    **{"num_sanity_val_steps": _BATCHES, "min_epochs": None, "min_steps": None},
    **{"devices": 1, "num_nodes": 1, "strategy": "auto"},
}


def directions(runs: Iterable[Run]) -> dict[str, str]:
    """Return ``min`` or ``max`` by metric and by quantity, of metrics whose name does not say it.

    Of each module the first run that can be built is validated on a few batches, as before a fit; nothing is
    trained. Objects of torchmetrics that it logs say which values are better. A quantity of metrics with
    different directions is left out.

    Raises:
        Exception: the error of a module that no run can validate.
    """
    found: dict[str, set[str]] = {}
    seen: set[str] = set()
    failures: dict[str, Exception] = {}
    for run in of_each_value(runs):
        if (module := str(class_of(run.config["model"]))) in seen:
            continue
        try:
            modes = _logged(run)
        except Exception as error:  # third-party code may raise anything, of an activation too
            failures.setdefault(module, error)
            continue
        seen.add(module)
        for name, mode in modes.items():
            for key in {name, quantity(name)} if not mode_of(name) else ():
                found.setdefault(key, set()).add(mode)
    for module in failures.keys() - seen:
        raise failures[module]
    return {name: mode for name, (mode, *others) in found.items() if not others}


def _logged(run: Run) -> dict[str, str]:
    """Return the direction of each metric object that the validation of a run logs."""
    config, seen = copy.deepcopy(run.config), Seen()
    for key, value in _SET.items():
        set_dotted(config, f"trainer.{key}", value)
    with tempfile.TemporaryDirectory() as folder:
        trainer, task, data = experiments.build(config, callbacks=[seen], default_root_dir=folder)
        trainer.fit(task, datamodule=data)
    return seen.modes


class Seen(pl.Callback):
    """Reads the metric objects of the validation before a fit, and ends the fit before its first update."""

    def __init__(self) -> None:
        self.modes: dict[str, str] = {}

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the direction of each metric that was logged as an object."""
        results: Any = trainer.fit_loop.epoch_loop.val_loop._results
        for logged in results.values():
            better = None if logged.is_tensor else getattr(logged.value, "higher_is_better", None)
            if better is not None:
                self.modes[logged.meta.name] = "max" if better else "min"
        trainer.should_stop = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End a fit without validation."""
        trainer.should_stop = True
