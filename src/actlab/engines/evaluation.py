"""Probes are runs' second life: evaluations of their checkpoints, after training and without touching it.

A probe of a run is a file in its folder (`actlab.studies.probe_files`). Where it holds what is asked nothing is
done, so a probe may be added to finished runs, and an interrupted study goes on with those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.core.hooks import DataHooks
from pytorch_lightning.plugins import MixedPrecision
from torch import Tensor, nn

from actlab import experiments
from actlab.config.signatures import find, parameters
from actlab.engines import compatibility, packing
from actlab.engines.recording import best_of, checkpoint_name
from actlab.errors import ActlabError, RunError, described, one_line, unknown
from actlab.experiments import Experiment
from actlab.probes import Measured
from actlab.runtime import signals
from actlab.runtime.third_party import calling
from actlab.stacking import StackedTask
from actlab.stacking.task import stacked_quantity
from actlab.storage import checkpoints, series
from actlab.studies import probe_files
from actlab.studies.folders import Row, RunFolder
from actlab.studies.locks import holding
from actlab.studies.plan import Probe, Run
from actlab.tasks import Batch, Quantity, Task
from actlab.tasks.restoring import as_precise_as

TOGETHER = 15  # most runs that are evaluated as one
_TRANSFERS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


def missing(runs: Iterable[Run], root: Path, probes: Iterable[Probe]) -> list[tuple[Probe, list[Run]]]:
    """Which finished runs each probe has still to be evaluated on."""
    finished = [run for run in runs if RunFolder(root, run).finished]
    found = []
    for probe in probes:
        left = [
            run
            for run in finished
            if not probe_files.answers(probe_files.file_of(root / run.id, probe.name), *_asked(probe, run))
        ]
        if left:
            found.append((probe, left))
    return found


def execute(runs: Sequence[Run], root: Path, probes: Iterable[Probe], say: Callable[[str], None]) -> int:
    """Evaluate what is missing.

    Args:
        runs: of one study.
        root: the study's folder.
        probes: of the study.
        say: takes a line about what is left out, or failed, and why.

    Returns:
        How many evaluations failed; the next start tries them again.

    Raises:
        ActlabError: for a probe that cannot be made.
    """
    failed = 0
    for probe, left in missing(runs, root, probes):
        evaluate = made(probe)
        for group in _groups(left, root):
            for part in packing.even_parts(group, TOGETHER):
                signals.check()
                with holding(root, part) as held:
                    if held and (fault := _fault_of(probe, evaluate, part, root, say)):
                        say(f"probe {probe.name} failed on {len(part)} runs such as {part[0].id}: {fault}")
                        failed += 1
    return failed


def _fault_of(
    probe: Probe, evaluate: Any, runs: Sequence[Run], root: Path, say: Callable[[str], None]
) -> str | None:
    """Evaluate one probe on some runs; what went wrong in third-party code, or None."""
    try:
        _measure(probe, evaluate, runs, root, say)
    except RunError as error:
        return str(error)
    except (ActlabError, OSError):
        raise
    except Exception as error:  # third-party activations and probes may raise anything
        return described(error)
    return None


def made(probe: Probe) -> Any:
    """The probe as its class and arguments say.

    Raises:
        ActlabError: for a class that is none, or an argument that it does not take.
    """
    where = f"probe {probe.name!r}"
    kind = find(probe.class_path, (object,), where)
    takes = parameters(kind)
    for name in probe.init_args:
        if takes is not None and name not in takes:
            raise unknown("argument", name, takes, f"In {where}, {probe.class_path}.")
    try:
        return kind(**probe.init_args)
    except TypeError as error:
        raise ActlabError(f"{where} cannot be made: {one_line(error)}") from error


def _groups(runs: Sequence[Run], root: Path) -> list[list[Run]]:
    """Runs that were trained in stacks, and so have been tried in one, by likeness; others by themselves."""
    stacked = [run for run in runs if RunFolder(root, run).result()["engine"] == "stacked"]
    together = [*compatibility.similar(stacked).values()]
    placed = {run.id for group in together for run in group}
    return [*together, *([run] for run in runs if run.id not in placed)]


def _measure(probe: Probe, evaluate: Any, runs: Sequence[Run], root: Path, say: Callable[[str], None]) -> None:
    """Evaluate one probe on some runs of equal structure and write their files."""
    built = [experiments.build(run.config) for run in runs]
    rows: dict[str, list[Row]] = {run.id: [] for run in runs}
    for at in probe.at:
        name = checkpoint_name(at) if isinstance(at, int) else at
        there = [r for r, run in enumerate(runs) if _kept(RunFolder(root, run), name)]
        for r in set(range(len(runs))) - set(there):
            say(f"probe {probe.name}: {runs[r].id} kept no checkpoint {name!r}; only training it anew would")
        if there:
            folders = [RunFolder(root, runs[r]) for r in there]
            paths = [f.checked(f.kept(name)) for f in folders]
            moments = [_load(built[r], path) for r, path in zip(there, paths, strict=True)]
            for measured in _evaluated(evaluate, [built[r] for r in there]):
                _add(rows, [runs[r].id for r in there], moments, measured)
    for run in runs:
        probe_files.write(probe_files.file_of(root / run.id, probe.name), rows[run.id], *_asked(probe, run))


def _kept(folder: RunFolder, name: str) -> bool:
    """Whether a finished run kept a checkpoint; its best one by the rule that holds now."""
    path, keep = folder.kept(name), folder.run.keep
    if not path.exists() or name != "best" or keep.best is None:
        return path.exists()
    rows = series.table_of(folder.metrics, Row._fields, Row._fields).to_pylist()
    best = best_of(keep, (Row(**{**row, "condition": row.get("condition") or ""}) for row in rows))
    return best is not None and best[0] == checkpoints.epochs_of(checkpoints.read(path))


def _evaluated(evaluate: Any, built: Sequence[Experiment]) -> Iterable[Measured]:
    trainer, task, data = built[0]
    tasks = [experiment.task for experiment in built]
    for one in (task, data):
        if changed := [name for name in _TRANSFERS if _has_own(one, name)]:
            raise ActlabError(
                f"{type(one).__name__} changes batches in {changed[0]}, which probes would leave out: let its "
                "loaders do it, or the network"
            )
    data.prepare_data()
    data.setup("test")
    plugin = trainer.precision_plugin
    subject = together(tasks)
    plugin.convert_module(subject).to(trainer.strategy.root_device).eval()
    _convert_batches(subject, plugin)
    mixed = plugin.forward_context() if isinstance(plugin, MixedPrecision) else nullcontext()
    with torch.no_grad(), mixed:  # the other precisions' contexts change what loaders make
        yield from evaluate(subject, data)


def _convert_batches(subject: StackedTask | Apart, plugin: Any) -> None:
    """Let a subject take batches as a Trainer of this precision gives them to its task."""
    of_batch = subject.measured

    def measured(batch: Batch, shared: bool) -> dict[str, Quantity]:
        with plugin.forward_context():
            return of_batch(plugin.convert_input(batch), shared)

    subject.measured = measured  # type: ignore[method-assign]


def _has_own(one: object, name: str) -> bool:
    return getattr(type(one), name, None) is not getattr(DataHooks, name)


class Apart(nn.Module):
    """Networks that cannot be stacked, evaluated one after the other."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.tasks = nn.ModuleList(tasks)

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return next(self.parameters()).device

    @calling
    def measured(self, batch: Batch, shared: bool) -> dict[str, Quantity]:
        """What a batch that all share says of each run: values ``(R, B, *)``."""
        found = [m.quantities(m(*m.inputs(batch)), batch) for m in self.tasks if isinstance(m, Task)]
        return {name: stacked_quantity([quantities[name] for quantities in found]) for name in found[0]}

    def apart(self) -> Iterable[Task]:
        """The task of each run by itself."""
        return [task for task in self.tasks if isinstance(task, Task)]


def together(tasks: Sequence[pl.LightningModule]) -> StackedTask | Apart:
    """Networks that have been tried in a stack, or a single one, as one subject.

    Raises:
        ActlabError: for a module that is no task.
    """
    ours = [task for task in tasks if isinstance(task, Task)]
    if len(ours) < len(tasks):
        raise ActlabError(f"probes evaluate tasks of actlab.tasks, not {type(tasks[0]).__name__}")
    return StackedTask(ours) if len(ours) > 1 else Apart(ours)


def _load(experiment: Experiment, path: Path) -> tuple[float, int]:
    """Give a task the weights of a checkpoint; how many epochs and updates it was trained by then."""
    checkpoint = checkpoints.read(path)
    as_precise_as(experiment.task, checkpoint)
    experiment.task.load_state_dict(checkpoint["state_dict"])
    return float(checkpoints.epochs_of(checkpoint)), int(checkpoint["global_step"])


def _add(
    rows: dict[str, list[Row]], runs: Sequence[str], moments: Sequence[tuple[float, int]], measured: Measured
) -> None:
    values: Tensor = measured.values.flatten()
    if len(values) != len(runs):
        raise ActlabError(f"a probe gave {len(values)} values of {measured.metric!r} for {len(runs)} runs")
    for run, (epoch, step), value in zip(runs, moments, values.tolist(), strict=True):
        rows[run].append(Row(epoch, step, measured.split, measured.metric, measured.condition, value))


def _asked(probe: Probe, run: Run) -> tuple[list[Any], list[Any]]:
    """What is asked of a run, and the ``version`` by which a class says that it measures anew."""
    version = getattr(find(probe.class_path, (object,), "probe"), "version", None)
    return probe_files.asked(probe, run.keep), [] if version is None else [version]
