"""Evaluate probes on checkpoints of finished runs that lack results in `studies.probe_files`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
from actlab.checks.facts import BuiltFacts
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
from actlab.storage.contents import ContentsByText
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

LARGEST_STACK = 15  # runs that are evaluated together
_TRANSFERS = (
    "on_before_batch_transfer",
    "transfer_batch_to_device",
    "on_after_batch_transfer",
)


@threads(1)
def execute(
    runs: Sequence[Run],
    root: Path,
    probes: Sequence[ProbePart],
    wait: bool = False,
    locked: bool = True,
) -> int:
    """Evaluate each probe on the finished runs that lack its results.

    Prints a line for each checkpoint that is missing and each evaluation that failed. The next
    start of the study tries these again.

    Args:
        runs: runs of the study, also unfinished ones, which are skipped.
        root: folder of the study.
        probes: probes from the study file.
        wait: whether to wait for the runs that other processes evaluate, and to evaluate these
            runs if the other processes end.
        locked: whether to hold the locks of the runs. A shard does not need them.

    Returns:
        The number of evaluations that failed.
    """
    digests: ContentsByText = {}  # of data and code: a large folder takes minutes to read
    evaluations = [_ProbeOfStudy(probe, root, digests) for probe in probes]

    failed = 0
    tried = set[tuple[str, str]]()  # probe and id of each run that was evaluated here
    while True:
        # Find the finished runs
        busy = False
        finished = []
        for run in runs:
            state = RunFolder(root, run).state
            if state.kind in (FINISHED, DIVERGED):
                finished.append(run)

        for evaluation in evaluations:
            # Leave out the runs that failed a moment ago
            name = evaluation.probe.name
            untried = []
            for run in evaluation.missing(finished):
                if (name, run.id) not in tried:
                    untried.append(run)

            # Evaluate the parts that no other process evaluates
            for part in _parts(untried, root):
                ids = [run.id for run in part]
                with holding(root, ids if locked else []) as is_held:
                    if is_held:
                        failed += evaluation.failures(part)
                        tried.update((name, run_id) for run_id in ids)
                    else:
                        busy = True

        # Wait for the runs of other processes
        if not busy or not wait:
            return failed
        signals.check()
        time.sleep(PAUSE)


def _parts(runs: Sequence[Run], root: Path) -> list[Sequence[Run]]:
    """Split runs into stacks whose members equal the runs alone; each other run is a part."""
    # Stack the groups in whose trial runs together equaled each alone
    stacked = [run for run in runs if _was_stacked(run, root)]
    parts: list[Sequence[Run]] = []
    grouped = set[str]()
    for key, group in compatibility.similar(stacked, BuiltFacts()).items():
        if trials.are_equal(root, key):
            parts += even_parts(group, LARGEST_STACK)
            grouped.update(run.id for run in group)

    # Evaluate all other runs one by one
    for run in runs:
        if run.id not in grouped:
            parts.append([run])
    return parts


def _was_stacked(run: Run, root: Path) -> bool:
    return RunFolder(root, run).result().get("engine") == "stacked"


class _ProbeOfStudy:
    """One probe of a study, on the runs that lack its results.

    It writes the results of the probe. `execute` decides which runs are evaluated together, and
    holds their locks. ``digests`` are the computed digests of data and code, to which it adds.
    """

    def __init__(self, probe: ProbePart, root: Path, digests: ContentsByText) -> None:
        self.probe = probe
        self.root = root
        self.digests = digests
        self.evaluate = made(probe)

    def _request(self, run: Run) -> tuple[str, list[Any], list[Any]]:
        """Return the probe's name, what it measures, and the ``version`` of its class, if any."""
        request = probe_files.request_of(self.probe, run.keep, self.digests)

        probe_class = find(self.probe.class_path, (object,), "probe")
        version = getattr(probe_class, "version", None)
        versions = []
        if version is not None:
            versions.append(version)
        return self.probe.name, request, versions

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the finished runs on which the probe has not been evaluated yet."""
        missing = []
        for run in runs:
            request = self._request(run)
            if not probe_files.answers(self.root / run.id, *request):
                missing.append(run)
        return missing

    def failures(self, part: Sequence[Run]) -> int:
        """Evaluate runs of one part, whose locks are held; print failures and return how many."""
        signals.check()
        runs = self.missing(part)  # another process may have evaluated some meanwhile
        try:
            return self._measure(runs)
        except RunError as error:
            fault = str(error)
        except (ActlabError, OSError):
            raise
        except Exception as error:
            # Third-party activations and probes may raise anything.
            fault = described(error)

        # Report one fault for all runs of the part
        examples = f"{plural(len(runs), 'run')} such as {runs[0].id}"
        print(f"probe {self.probe.name} failed on {examples}: {fault}")
        return 1

    def _measure(self, runs: Sequence[Run]) -> int:
        """Evaluate runs of one part and write a file for each; return how many are damaged."""
        experiments_of_runs = [
            experiments.build(run.config, self.digests) for run in runs
        ]
        is_stacked = _was_stacked(runs[0], self.root)
        rows: list[list[Row]] = [[] for _ in runs]
        damaged = set[int]()
        for place in self.probe.places:
            # Load the weights of each run that stored them
            moments = dict[
                int, tuple[float, int]
            ]()  # epochs and updates, by index of the run
            for index, run in enumerate(runs):
                folder = RunFolder(self.root, run)
                try:
                    moment = _load(experiments_of_runs[index], folder, place)
                except DamagedError as error:
                    damaged.add(index)
                    print(f"probe {self.probe.name} failed on {run.id}: {error}")
                    continue
                if moment is None:
                    missing = f"has no checkpoint {folder.checkpoint_at(place).stem!r}"
                    remedy = "Train the run again to get it."
                    print(f"probe {self.probe.name}: {run.id} {missing}. {remedy}")
                else:
                    moments[index] = moment
            if not moments:
                continue

            # Measure these runs together
            loaded = [experiments_of_runs[index] for index in moments]
            for measured in _evaluated(self.evaluate, loaded, is_stacked):
                for index, row in _rows(measured, moments):
                    rows[index].append(row)

        # Write the results of each undamaged run
        for index, run in enumerate(runs):
            if index not in damaged:
                request = self._request(run)
                file = probe_files.file_of(self.root / run.id, *request)
                probe_files.write(file, rows[index])
        return len(damaged)


def _rows(
    measured: Measured, moments: Mapping[int, tuple[float, int]]
) -> Iterator[tuple[int, Row]]:
    """Yield the index and the row of each run, measured after these epochs and updates."""
    values = measured.values.flatten().tolist()
    if len(values) != len(moments):
        raise ActlabError(
            f"{measured.metric} of a probe: expected {len(moments)} values, one per run, got "
            f"{len(values)}"
        )

    for (index, moment), value in zip(moments.items(), values, strict=True):
        row = Row(*moment, measured.split, measured.metric, measured.condition, value)
        yield index, row


def _evaluated(
    evaluate: Any, experiments_of_runs: Sequence[Experiment], stacked: bool
) -> Iterator[Measured]:
    """Yield what a probe measures on runs, with the data and the precision of their Trainer."""
    # Reject hooks that probes would skip
    trainer, task, data = experiments_of_runs[0]
    for part, hook in itertools.product((task, data), _TRANSFERS):
        if is_overridden(hook, part):
            raise ActlabError(
                f"{type(part).__name__} changes batches in {hook}, but probes do not call this "
                "hook. Change batches in the data loader or in the network."
            )

    # Prepare the data
    experiments_of_runs[0].attach()
    experiments.prepare(data)
    data.setup("test")

    # Move the networks, in the precision of the Trainer
    plugin = trainer.precision_plugin
    tasks = [experiment.task for experiment in experiments_of_runs]
    subject = subject_of(tasks, stacked)
    module = plugin.convert_module(subject)
    module.to(trainer.strategy.root_device).eval()
    measure_batch = subject.measured

    # Wrap the measurement, since probes run without the Trainer
    def measured(batch: Batch, shared: bool) -> dict[str, Quantity]:
        """Convert the batch as a Trainer of this precision does."""
        with plugin.forward_context():
            return measure_batch(plugin.convert_input(batch), shared)

    subject.measured = measured  # type: ignore[method-assign]

    # Contexts of other precisions would change the output of data loaders.
    context: AbstractContextManager[Any] = nullcontext()
    if isinstance(plugin, MixedPrecision):
        context = plugin.forward_context()
    with torch.no_grad(), context:
        yield from evaluate(subject, data)


class UnstackedTasks(pl.LightningModule):
    """Networks that are not stacked, evaluated one after the other."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.members = list(tasks)
        self.tasks = nn.ModuleList(tasks)  # which are moved and converted with it

    @calling()
    def measured(self, batch: Batch, shared: bool) -> dict[str, Quantity]:
        """Return the quantities of each run for a shared batch, with values ``(R, B, *)``."""
        by_run = [task.measured(batch) for task in self.members]
        stacked = {}
        for name in by_run[0]:
            stacked[name] = stacked_quantity(
                [quantities[name] for quantities in by_run]
            )
        return stacked

    def apart(self) -> Iterable[Task]:
        """Return the task of each run."""
        return self.members


def subject_of(
    tasks: Sequence[pl.LightningModule], stacked: bool
) -> StackedTask | UnstackedTasks:
    """Combine tasks that were trained ``stacked``, or one task, into one subject for probes.

    Sets the matmul backend of this process to the backend of the network. Probes may hook
    activations, so networks without stacked forms are evaluated one after the other.
    """
    members = []
    for task in tasks:
        if not isinstance(task, Task):
            raise ActlabError(
                f"probes: expected a task of actlab.tasks, got {type(task).__name__}"
            )
        members.append(task)

    matmul.use(matmul_of(members[0]))
    if stacked and has_forms(members[0]):
        return StackedTask(members)
    return UnstackedTasks(members)


def _load(
    experiment: Experiment, folder: RunFolder, at: str | int
) -> tuple[float, int] | None:
    """Load the weights of a checkpoint; return its numbers of epochs and updates.

    None if the run has no such checkpoint.
    """
    # Read the checkpoint, unless the run has none
    path = folder.checkpoint_at(at)
    if not path.exists():
        return None
    checkpoint = checkpoints.read(path, remedy=folder.remedy)
    epoch = checkpoints.epochs_of(checkpoint)

    # The best checkpoint must be best by the study's current rule
    keep = folder.run.keep
    if at == "best" and keep.best is not None:
        epochs, values = series.read(folder.metrics).get((keep.best, ""), ((), ()))
        name = split_name(keep.best)
        rows = []
        for recorded_epoch, value in zip(epochs, values, strict=True):
            row = Row(recorded_epoch, 0, *name, value)
            rows.append(row)
        if epoch != best_epoch(keep, rows):
            return None

    # Match the precision first, since loading does not change it
    as_precise_as(experiment.task, checkpoint)
    experiment.task.load_state_dict(checkpoint["state_dict"])
    return float(epoch), int(checkpoint["global_step"])
