"""Build a stack from the configs of its runs, with one Trainer and one datamodule."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning_fabric.utilities.seed import seed_everything
from pytorch_lightning.callbacks import Checkpoint

from actlab import experiments
from actlab.config import sections
from actlab.config.messages import one_line_errors
from actlab.config.plain_values import plain
from actlab.config.record import with_digests
from actlab.config.resolved import parser_of, run_seed, typed
from actlab.datamodules.base import TensorDataModule
from actlab.experiments import Experiment
from actlab.runtime import matmul
from actlab.stacking.task import StackedTask, has_forms, matmul_of
from actlab.storage.checkpoints import AtomicCheckpointIO
from actlab.storage.contents import ContentsByText
from actlab.tasks import Task


def assemble(
    configs: Sequence[Mapping[str, Any]],
    recorder: Checkpoint,
    path: Path,
    stacked: bool | None = None,
) -> Experiment:
    """Build the Trainer, the datamodule and the stacked task of some runs.

    A single run may have its plain task instead: by default, if its network has no stacked forms.
    Sets the matmul backend of this process to the one for the network.
    """
    # Build the first run, which tells whether there are stacked forms.
    digests: ContentsByText = {}
    config = copy.deepcopy(dict(configs[0]))
    experiment = experiments.build(
        config, digests, callbacks=[recorder], default_root_dir=str(path)
    )
    task = experiment.task
    matmul.use(matmul_of(task))
    # A single run uses stacked forms, too, if there are any.
    if stacked is None:
        stacked = len(configs) > 1 or (isinstance(task, Task) and has_forms(task))
    if not stacked:
        return experiment

    # Add the tasks of the other runs.
    assert isinstance(task, Task)  # no other can be stacked
    tasks = [task, *build_tasks(configs[1:], experiment, digests)]
    return stack_of(tasks, experiment, [config[sections.SEED] for config in configs])


def stack_of(
    tasks: Sequence[Task], experiment: Experiment, seeds: list[int]
) -> Experiment:
    """Return a stack of tasks with Trainer and data of an ``experiment``, which it changes."""
    trainer, _, data = experiment

    # The stack's checkpoint holds the configs of all members.
    writer = trainer.strategy.checkpoint_io
    if isinstance(writer, AtomicCheckpointIO):
        writer.config = None
    assert isinstance(data, TensorDataModule)  # only these datamodules are stackable
    data.seed = seeds
    return Experiment(trainer, StackedTask(tasks), data)


def build_tasks(
    configs: Sequence[Mapping[str, Any]],
    experiment: Experiment,
    digests: ContentsByText | None = None,
) -> Iterator[Task]:
    """Yield the task of each config, as `actlab.experiments.build` builds it.

    The configs are complete, and differ from the config of the ``experiment`` only in the seed and
    below ``model``.
    """
    shared: Mapping[str, Any] = getattr(experiment.task, "config", None) or {}
    for config in configs:
        with one_line_errors(config):
            sections.check(config)
            seed = run_seed(config.get(sections.SEED) or 0)
            linked = sections.linked_shapes(config)
            model = typed(config, "model", seed, linked)
            # All runs read the same data, so they share its shapes.
            for name in linked:
                model.init_args[name] = shared["model"]["init_args"][name]

            # Build the task, with its record.
            seed_everything(seed, verbose=False)
            arguments = Namespace(model=model)  # type: ignore[no-untyped-call]
            task = parser_of("model").instantiate(arguments).model
            assert isinstance(task, Task)
            recorded = plain(model)
            # `rebuilt` sets it from the config's seed.
            recorded["init_args"].pop("seed")
            task.config = {**shared, sections.SEED: seed, "model": recorded}
            if digests is not None:
                task.config = with_digests(task.config, digests)
        yield task
