"""What ``result.json`` says of how a run was trained."""

from __future__ import annotations

from math import isfinite
from typing import Any

from pytorch_lightning import Trainer

from actlab.activations import has_surrogate_gradient
from actlab.engines.run_records import JobRecord, RunRecord, of_run
from actlab.runtime import matmul
from actlab.runtime.devices import name_of
from actlab.tasks.training import Training


def training_facts(
    trainer: Trainer,
    record: JobRecord,
    run: RunRecord,
    stacked: bool,
) -> dict[str, Any]:
    """Return the facts of a run at the end of its training."""
    task = trainer.lightning_module
    size = len(record.runs)
    epoch, updates = run.divergence or (trainer.current_epoch, trainer.global_step)
    revisions = getattr(trainer.datamodule, "revisions", {})  # type: ignore[attr-defined]

    # Facts that all runs have
    facts: dict[str, Any] = {"engine": "stacked" if stacked else "sequential"}
    facts["last_good_epoch"] = epoch
    facts["updates"] = updates
    facts["scored"] = record.scored
    facts["matmul"] = matmul.backend()
    facts["revisions"] = dict(revisions)
    facts["seconds"] = round(record.seconds / size, 3)
    facts["hardware"] = name_of(trainer.strategy.root_device)

    # Facts that some runs have
    optional: dict[str, Any] = {}
    if not run.divergence:
        errors = of_run(record.sampling_errors, run.index)
        finite = {name: error for name, error in errors.items() if isfinite(error)}
        optional["sampling_errors"] = finite
    if stacked:
        optional["stack"] = {"size": size}
    optional["initial_parameters"] = run.initial
    if isinstance(task, Training):
        activations = task.members[run.index].activations
        optional["surrogate_gradient"] = any(map(has_surrogate_gradient, activations))
        optional["single_updates"] = task.single_updates
        optional["not_replayed"] = task.not_replayed
    return facts | {name: fact for name, fact in optional.items() if fact}
