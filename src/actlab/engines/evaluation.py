"""Evaluate probes on the checkpoints of finished runs that lack their results (`studies.probe_files`)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins import MixedPrecision
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import nn

from actlab import experiments
from actlab.analysis.wording import plural
from actlab.checks.configs import made
from actlab.checks.facts import Known
from actlab.config.signatures import find
from actlab.engines import compatibility, trials
from actlab.engines.jobs import even_parts
from actlab.engines.stored_weights import best_epoch
from actlab.errors import ActlabError, RunError
from actlab.errors.messages import described
from actlab.experiments import Experiment
from actlab.probes import Measured
from actlab.runtime import matmul, signals
from actlab.runtime.devices import threads
from actlab.runtime.third_party import calling
from actlab.stacking import StackedTask
from actlab.stacking.task import has_forms, matmul_of, stacked_quantity
from actlab.storage import checkpoints, series
from actlab.storage.files import DamagedError
from actlab.studies import probe_files
from actlab.studies.locks import PAUSE, holding
from actlab.studies.plan import Run
from actlab.studies.rows import Row, split_name
from actlab.studies.run_folder import RunFolder
from actlab.studies.schema import ProbePart
from actlab.studies.states import DIVERGED, FINISHED
from actlab.tasks import Batch, Quantity, Task
from actlab.tasks.restoring import as_precise_as

TOGETHER = 15  # largest number of runs evaluated in one stack
_TRANSFERS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


@threads(1)
def execute(
    runs: Sequence[Run],
    root: Path,
    probes: Sequence[ProbePart],
    wait: bool = False,
    locked: bool = True,
) -> int:
    """Evaluate each probe on the finished runs that lack its results.

    Prints a line for each checkpoint that is missing and each evaluation that failed, and returns
    how many failed; the next start of the study tries them again. With ``wait`` the runs that other
    processes evaluate are awaited, and evaluated if these end. A shard does not need the runs to be
    ``locked``.
    """
    digests: dict[str, str | None] = {}  # of data and code: a large folder takes minutes to read
    evaluations = [_ProbeOfStudy(probe, root, digests) for probe in probes]
    # tried: probe and id of each run that was evaluated here
    failed, tried = (
        0,
        set[tuple[str, str]](),
    )
    while True:
        busy = False
        finished = [run for run in runs if RunFolder(root, run).state.kind in (FINISHED, DIVERGED)]
        for evaluation in evaluations:
            name = evaluation.probe.name
            left = [run for run in evaluation.missing(finished) if (name, run.id) not in tried]
            for part in (
                part for group in _groups(left, root) for part in even_parts(group, TOGETHER)
            ):
                with holding(root, [run.id for run in part if locked]) as held:
                    busy = busy or not held
                    if held:
                        failed += evaluation.failures(part)
                        tried.update((name, run.id) for run in part)
        if not busy or not wait:
            return failed
        signals.check()
        time.sleep(PAUSE)


def _groups(runs: Sequence[Run], root: Path) -> list[list[Run]]:
    """Group runs that in a stack equal each alone; each other run is a group of its own."""
    stacked = [run for run in runs if _was_stacked(run, root)]
    similar = compatibility.similar(stacked, Known())
    together = [group for key, group in similar.items() if trials.are_equal(root, key)]
    placed = {run.id for group in together for run in group}
    return [*together, *([run] for run in runs if run.id not in placed)]


def _was_stacked(run: Run, root: Path) -> bool:
    return RunFolder(root, run).result().get("engine") == "stacked"


class _ProbeOfStudy:
    """One probe of a study; ``digests`` of data and code that are known are not computed again."""

    def __init__(self, probe: ProbePart, root: Path, digests: dict[str, str | None]) -> None:
        self.probe, self.root, self.digests = probe, root, digests
        self.evaluate = made(probe)

    def _request(self, run: Run) -> tuple[str, list[Any], list[Any]]:
        """Return the probe's name, what it shall measure, and the ``version`` of its class, if any."""
        version = getattr(find(self.probe.class_path, (object,), "probe"), "version", None)
        request = probe_files.request_of(self.probe, run.keep, self.digests)
        return self.probe.name, request, [] if version is None else [version]

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the finished runs on which the probe has not been evaluated yet."""
        return [
            run for run in runs if not probe_files.answers(self.root / run.id, *self._request(run))
        ]

    def failures(self, part: Sequence[Run]) -> int:
        """Evaluate runs of one group, whose locks are held; print what failed, and return how often."""
        signals.check()
        runs = self.missing(part)  # others may have been evaluated meanwhile
        try:
            return self._measure(runs)
        except RunError as error:
            fault = str(error)
        except (ActlabError, OSError):
            raise
        except Exception as error:  # third-party activations and probes may raise anything
            fault = described(error)
        print(
            f"probe {self.probe.name} failed on {plural(len(runs), 'run')} such as {runs[0].id}: {fault}"
        )
        return 1

    def _measure(self, runs: Sequence[Run]) -> int:
        """Evaluate runs of one group and write a file for each run; return how many are damaged."""
        built = [experiments.build(run.config, self.digests) for run in runs]
        rows: list[list[Row]] = [[] for _ in runs]
        damaged = set[int]()
        for at in self.probe.places:
            moments = dict[int, tuple[float, int]]()  # by index of the run
            for r, run in enumerate(runs):
                folder = RunFolder(self.root, run)
                try:
                    moment = _load(built[r], folder, at)
                except DamagedError as error:
                    damaged.add(r)
                    print(f"probe {self.probe.name} failed on {run.id}: {error}")
                    continue
                if moment is not None:
                    moments[r] = moment
                else:
                    lost = f"kept no checkpoint {folder.checkpoint_at(at).stem!r}; train the run again to get it"
                    print(f"probe {self.probe.name}: {run.id} {lost}")
            stacked = _was_stacked(runs[0], self.root)
            some = [built[r] for r in moments]
            for measured in _evaluated(self.evaluate, some, stacked) if some else ():
                values = measured.values.flatten().tolist()
                if len(values) != len(moments):
                    raise ActlabError(
                        f"a probe returned {len(values)} values of {measured.metric!r} for {len(moments)} runs"
                    )
                for (r, moment), value in zip(moments.items(), values, strict=True):
                    rows[r].append(
                        Row(*moment, measured.split, measured.metric, measured.condition, value)
                    )
        for r, run in enumerate(runs):
            if r not in damaged:
                probe_files.write(
                    probe_files.file_of(self.root / run.id, *self._request(run)), rows[r]
                )
        return len(damaged)


def _evaluated(evaluate: Any, built: Sequence[Experiment], stacked: bool) -> Iterable[Measured]:
    trainer, task, data = built[0]
    for part, hook in itertools.product((task, data), _TRANSFERS):
        if is_overridden(hook, part):
            raise ActlabError(
                f"{type(part).__name__} changes batches in {hook}, but probes do not call this hook: "
                "change batches in the data loader or in the network"
            )
    built[0].attach()
    experiments.prepare(data)
    data.setup("test")
    plugin = trainer.precision_plugin
    subject = together([experiment.task for experiment in built], stacked)
    plugin.convert_module(subject).to(trainer.strategy.root_device).eval()
    of_batch = subject.measured

    def measured(batch: Batch, shared: bool) -> dict[str, Quantity]:
        """Convert the batch as a Trainer of this precision does."""
        with plugin.forward_context():
            return of_batch(plugin.convert_input(batch), shared)

    subject.measured = measured  # type: ignore[method-assign]
    mixed = plugin.forward_context() if isinstance(plugin, MixedPrecision) else nullcontext()
    # Contexts of other precisions would change the output of data loaders
    with (
        torch.no_grad(),
        mixed,
    ):
        yield from evaluate(subject, data)


class Apart(pl.LightningModule):
    """Networks that are not stacked, evaluated one after the other."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.members = list(tasks)
        self.tasks = nn.ModuleList(tasks)  # which are moved and converted with it

    @calling()
    def measured(self, batch: Batch, shared: bool) -> dict[str, Quantity]:
        """Return the quantities of each run for a batch that all runs share, with values ``(R, B, *)``."""
        by_run = [task.measured(batch) for task in self.members]
        return {
            name: stacked_quantity([quantities[name] for quantities in by_run])
            for name in by_run[0]
        }

    def apart(self) -> Iterable[Task]:
        """Return the task of each run."""
        return self.members


def together(tasks: Sequence[pl.LightningModule], stacked: bool) -> StackedTask | Apart:
    """Combine tasks that were trained ``stacked``, or one task, into one subject for probes.

    Sets the matmul backend of this process to that of the network. Probes may hook activations, so
    networks without stacked forms are evaluated one after the other.
    """
    ours = [task for task in tasks if isinstance(task, Task)]
    if len(ours) < len(tasks):
        raise ActlabError(f"probes evaluate tasks of actlab.tasks, not {type(tasks[0]).__name__}")
    matmul.use(matmul_of(ours[0]))
    return StackedTask(ours) if stacked and has_forms(ours[0]) else Apart(ours)


def _load(experiment: Experiment, folder: RunFolder, at: str | int) -> tuple[float, int] | None:
    """Load the weights of a checkpoint; return its numbers of epochs and updates, None if not kept."""
    path, keep = folder.checkpoint_at(at), folder.run.keep
    if not path.exists():
        return None
    checkpoint = checkpoints.read(path, remedy=folder.remedy)
    epoch = checkpoints.epochs_of(checkpoint)
    if at == "best" and keep.best is not None:  # must be best by the study's current rule
        recorded = series.read(folder.metrics).get((keep.best, ""), ((), ()))
        name = split_name(keep.best)
        if epoch != best_epoch(keep, (Row(e, 0, *name, v) for e, v in zip(*recorded, strict=True))):
            return None
    as_precise_as(experiment.task, checkpoint)
    experiment.task.load_state_dict(checkpoint["state_dict"])
    return float(epoch), int(checkpoint["global_step"])
