"""Tasks of further runs beside a built one: the members of a stack, without a Trainer and data for each."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
from lightning_fabric.utilities.seed import seed_everything
from pytorch_lightning.cli import LightningArgumentParser

from actlab import configs, records
from actlab.errors import ActlabError
from actlab.experiments import Experiment, run_seed
from actlab.mistakes import one_line_errors
from actlab.parsing import parsed
from actlab.tasks import Task


def build_tasks(given: Sequence[Mapping[str, Any]], first: Experiment) -> Iterator[Task]:
    """The tasks of some configs, as `actlab.experiments.build` makes them, at a fifth of its time.

    Args:
        given: complete configs that differ from the first one's in seed, length and below ``model`` alone.
        first: an experiment built from a config like them, whose task is an `actlab.tasks.Task`.

    Raises:
        ActlabError: for a key or value that a config cannot have.
    """
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_lightning_class_args(pl.LightningModule, "model", subclass_mode=True)
    for config in given:
        with one_line_errors(config):
            yield _task(parser, config, first)


def _task(parser: LightningArgumentParser, config: Mapping[str, Any], first: Experiment) -> Task:
    configs.check(config)
    known: Mapping[str, Any] = getattr(first.task, "config", None) or {}
    seed = run_seed(config.get(configs.SEED) or 0)
    model = copy.deepcopy(dict(config["model"]))
    arguments = dict(model.get("init_args") or {})
    shapes = {name: value for name, value in known["model"]["init_args"].items() if name in configs.SHAPES}
    given = {
        name: value for name, value in arguments.items() if value is not None or name not in configs.SHAPES
    }
    told = {"model": {**model, "init_args": {**shapes, **given, "seed": seed}}}
    found = parsed(told, seed, parser.parse_object)
    seed_everything(seed, verbose=False)
    task = parser.instantiate_classes(found).model
    if not isinstance(task, Task):
        raise ActlabError(f"{model['class_path']} is no actlab.tasks.Task: it cannot be a member of a stack")
    trained = records.plain(found.model)
    trained["init_args"].pop("seed")  # it follows the config's seed
    record = {**known, configs.SEED: seed, "model": trained}
    task.config = {**record, records.CODE: records.code_of(record)}
    return task
