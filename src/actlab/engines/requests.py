"""What a worker can be asked: each function is called in a worker with ``report``, which sends messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.config.keys import class_of, get_dotted
from actlab.config.values import canonical, label
from actlab.engines.jobs import Job, Shard
from actlab.engines.settings import Settings
from actlab.errors import ActlabError
from actlab.studies.plan import Run, Study
from actlab.studies.schema import Probe

if TYPE_CHECKING:
    from actlab.engines.recording import LoggerFactory
    from actlab.engines.state_trial import Builds
    from actlab.engines.workers import Report

Faults = dict[str, str | None]
"""The fault of each case, an activation in a network, by its key; None if it has none."""
Cases = dict[str, tuple[Run, bytes]]
"""A run of each case, and pickled samples: none of a third-party module, of which only weights are compared."""
_DEVICES = ("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy")


class Arranged(NamedTuple):
    """How the runs of a study will be trained.

    Args:
        jobs: the runs and stacks, each trained by one Trainer.
        settings: execution settings of the processes.
        single: whether each run uses a single device.
        said: lines to print about jobs and settings.
        untimed: groups of runs whose updates should be timed first, by key; see `time_updates`.
    """

    jobs: list[Job]
    settings: Settings
    single: bool
    said: list[str]
    untimed: Mapping[str, Sequence[Run]] = {}

    @property
    def apart(self) -> Settings | None:
        """Settings of the process of each run, if it uses several devices."""
        return None if self.single else self.settings


class Asked(NamedTuple):
    """What the user asks of the arrangement.

    Args:
        stacked: whether to form new stacks.
        max_stack: largest number of runs in one stack.
        jobs: number of processes; None for the default.
        shard: the share of this start; None if it takes all jobs.
    """

    stacked: bool
    max_stack: int
    jobs: int | None
    shard: Shard | None = None


def check(report: Report, study: Study) -> list[str]:
    """Check a study, and create its probes, before anything is trained; see `actlab.engines.checking.check`."""
    from actlab.engines import checking
    from actlab.engines.evaluation import made

    lines = checking.check(study)
    for probe in study.probes:
        made(probe)
    return lines


def prepare(report: Report, runs: Sequence[Run]) -> None:
    """Prepare each dataset of some runs, with all threads; an error comes again where a run is built."""
    from actlab import experiments

    for run in {canonical(run.config.get("data")): run for run in runs}.values():
        with suppress(Exception):  # third-party data may raise anything
            experiments.prepare(experiments.data_of(run.config))


def directions(report: Report, runs: Sequence[Run]) -> dict[str, str]:
    """Return which values of metrics are better; see `actlab.engines.sanity.directions`."""
    from actlab.engines import sanity

    return sanity.directions(runs)


def key_of(run: Run) -> str:
    """Return the key of a run's case: equal for runs with one activation in one network."""
    data = class_of(run.config.get("data"))
    return canonical([run.unit, class_of(run.config["model"]), get_dotted(run.config, "model.network"), data])


def try_units(report: Report, runs: Sequence[Run], known: Faults, hints: bool) -> tuple[Faults, Cases]:
    """Try each activation of some runs; see `actlab.engines.activation_trial.try_units`."""
    from actlab.engines import activation_trial

    return activation_trial.try_units(report, runs, known, hints)


def build(report: Report, cases: Cases, backwards: bool) -> dict[str, Builds]:
    """Build the network of each case twice; see `actlab.engines.state_trial.build`."""
    from actlab.engines import state_trial

    found = {}
    for key, (run, samples) in cases.items():
        report("trying", key, f"activation {label(run.unit)}")
        found[key] = state_trial.build(run, samples, backwards)
    return found


def compare(report: Report, cases: Cases, one: Mapping[str, Builds], other: Mapping[str, Builds]) -> Faults:
    """Return the faults of cases that two processes have built in opposite orders; print hints on resumes."""
    from actlab.engines import state_trial

    faults = {key: state_trial.fault_of(run, one[key], other[key]) for key, (run, _) in cases.items()}
    for line in dict.fromkeys(one[key][2] for key, fault in faults.items() if fault is None and one[key][2]):
        print(line)
    return faults


def arrange(report: Report, runs: Sequence[Run], todo: Sequence[Run], root: Path, asked: Asked) -> Arranged:
    """Decide how the unfinished runs ``todo`` of ``runs`` will be trained; try stacks before forming them."""
    from actlab import experiments
    from actlab.engines import packing, settings

    if len({canonical([get_dotted(run.config, key) for key in _DEVICES]) for run in runs}) > 1:
        raise ActlabError(
            f"the runs of a study must use the same devices: {', '.join(_DEVICES)} must not differ"
        )
    first = experiments.build(todo[0].config)
    per_epoch, single = first.updates_per_epoch(), first.trainer.world_size == 1
    updates = sum((r.epochs or 1) * (per_epoch or 1) for r in runs)
    chosen = settings.decide(root, len(runs), updates, asked.jobs, single, asked.shard is not None)
    packed = packing.pack(runs, root, asked.max_stack, asked.stacked, chosen, asked.shard, todo)
    reasons = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]
    untimed: dict[str, list[Run]] = {}
    if updates >= settings.LONG and single and chosen.jobs and asked.shard is None:
        untimed = {key: group for key, group in packed.groups.items() if key not in chosen.stacks}
        if chosen.products == settings.UNTIMED and not untimed:
            untimed[""] = [todo[0]]
    return Arranged(packed.jobs, chosen, single, reasons, untimed)


def time_updates(report: Report, groups: Mapping[str, Sequence[Run]], chosen: Settings) -> Settings:
    """Return the settings with a size of stacks for each group; see `actlab.engines.timing.measure`."""
    from actlab.engines import timing

    return timing.measure(groups, chosen)


def train(
    report: Report, job: Job, root: Path, apart: Settings | None, logger: LoggerFactory | None, locked: bool
) -> bool:
    """Train a job; report ``("progress", run id, completed fraction)`` after each epoch.

    ``apart`` are settings of the process that trains a run on several devices. Returns whether the job is over:
    False if another start is training it.
    """
    from actlab.engines import multi_device, training

    def progress(run: Run, fraction: float) -> None:
        report("progress", run.id, fraction)

    if apart is not None:
        return multi_device.work(job, root, progress, logger, locked, apart)
    return training.work(job, root, progress, logger, locked)


def unmeasured(report: Report, runs: Sequence[Run]) -> str:
    """Return a line that says why no costs can be measured; empty if those of a run can be."""
    from actlab.engines.cost import model_of
    from actlab.tasks import Task

    models = {model_of(run) for run in runs}
    if any(issubclass(model, Task) for model in models):
        return ""
    names = ", ".join(sorted(model.__name__ for model in models))
    return f"costs are not measured: only a Trainer can run an update of {names}, which is no actlab.tasks.Task"


def measure(
    report: Report, runs: Sequence[Run], key: str, reference: Any, tuned: Sequence[str], rounds: int | None
) -> list[dict[str, Any]]:
    """Measure costs; see `actlab.engines.cost.measure`."""
    from actlab.engines import cost

    return cost.measure(runs, key, reference, tuned, rounds=rounds or cost.ROUNDS)


def evaluate(
    report: Report, runs: Sequence[Run], root: Path, probes: Sequence[Probe], wait: bool, locked: bool
) -> int:
    """Evaluate probes; return the number of evaluations that failed."""
    from actlab.engines.evaluation import execute

    return execute(runs, root, probes, print, wait, locked)


def measure_properties(report: Report, spec: Any) -> None:
    """Report each property of an activation, as ``("measured", property)``."""
    from actlab.engines import properties

    for found in properties.measure(spec):
        report("measured", found)


def faults_of_creation(report: Report, units: Sequence[Any]) -> list[str | None]:
    """Return why each activation cannot be created; None if it can."""
    from actlab.engines.activation_trial import fault_of_creation

    return [fault_of_creation(unit) for unit in units]


def updates_of(report: Report, run: Run) -> int | None:
    """Return the number of updates per epoch of a run."""
    from actlab import experiments

    return experiments.build(run.config).updates_per_epoch()
