"""What a study lets a helper call: all that imports, builds or runs code which the study names.

The helper is a child process where some of that code comes from outside actlab.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.config.keys import canonical, get_dotted
from actlab.errors import ActlabError
from actlab.studies.plan import Probe, Run, Study

_DEVICES = ("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy")

if TYPE_CHECKING:
    from actlab.engines.packing import Job
    from actlab.engines.processes import Child, Here, Report
    from actlab.engines.settings import Settings
    from actlab.experiments import Experiment


def helper_for(study: Study) -> Child | Here:
    """What calls the code that a study names: a process of its own where some of it comes from outside actlab.

    Such code may end its process at any moment, by an exit or a crash; this process then says so.
    """
    from actlab.engines.processes import Child, Here
    from actlab.storage import contents

    probes = [probe.class_path for probe in study.probes]
    named = any(contents.content_of(name, of_data=False) for name in probes)
    outside = named or any(run.sources for run in study.runs())
    return Child() if outside else Here()


def make_probes(report: Report, probes: Sequence[Probe]) -> None:
    """Make probes, in a helper, so that a mistake shows before anything is trained."""
    from actlab.engines.evaluation import made

    for probe in probes:
        made(probe)


def measure_costs(
    helper: Child | Here, runs: Sequence[Run], study: Study, tuned: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """What `actlab.engines.cost.measure` measures, in a helper; nothing where that ends its process."""
    from actlab.engines.processes import EndedError

    try:
        found: list[dict[str, Any]] = helper.call(_measure, runs, study.compare, study.reference, tuned, rounds)
    except EndedError as ended:
        print(f"no costs: the process that measured them {ended.how}")
        return []
    return found


def _measure(
    report: Report, runs: Sequence[Run], key: str, reference: Any, tuned: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """Measure costs, in a helper."""
    from actlab.engines import cost

    return cost.measure(runs, key, reference, tuned, rounds=rounds)


def evaluate(helper: Child | Here, runs: Sequence[Run], root: Path, probes: Sequence[Probe]) -> int:
    """Evaluate probes, in a helper; how many evaluations failed."""
    from actlab.engines.processes import EndedError

    try:
        failed: int = helper.call(_evaluate, runs, root, probes)
    except EndedError as ended:
        print(f"the process that evaluated probes {ended.how}; the others are left to the next start")
        return 1
    return failed


def _evaluate(report: Report, runs: Sequence[Run], root: Path, probes: Sequence[Probe]) -> int:
    """Evaluate probes, in a helper."""
    from actlab.engines.evaluation import execute

    return execute(runs, root, probes, print)


class Arranged(NamedTuple):
    """How runs will be trained.

    Args:
        jobs: who shares a Trainer.
        settings: how processes compute.
        single: whether each run has one device.
        said: lines about both.
    """

    jobs: list[Job]
    settings: Settings
    single: bool
    said: list[str]


def arrange(
    report: Report,
    runs: Sequence[Run],
    todo: Sequence[Run],
    root: Path,
    stacked: bool,
    max_stack: int,
    jobs: int | None,
) -> Arranged:
    """Decide how runs will be trained, in a helper: who is stacked is tried.

    Args:
        report: takes nothing.
        runs: of the study, but for those that cannot be trained.
        todo: those that are unfinished.
        root: the study's folder.
        stacked: whether new stacks are formed.
        max_stack: most runs in one stack.
        jobs: number of processes, where the user says so.

    Raises:
        ActlabError: for runs on different devices.
    """
    from actlab import experiments
    from actlab.engines import packing, settings

    if len({canonical([get_dotted(run.config, key) for key in _DEVICES]) for run in runs}) > 1:
        raise ActlabError(f"the runs of a study have the same devices: {', '.join(_DEVICES)} cannot differ")
    first = experiments.build(todo[0].config)
    per_epoch, single = updates_per_epoch(first), first.trainer.world_size == 1
    updates = sum((r.epochs or 1) * (per_epoch or 1) for r in todo)
    chosen, said = settings.decide(root, updates, jobs, single)
    packed = packing.pack(runs, root, max_stack, stacked, chosen)
    reasons = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]
    return Arranged(packed.jobs, chosen, single, [*said, *reasons])


def faults_of(runs: Sequence[Run], helper: Child | Here) -> dict[str, str]:
    """Try each unit, and build one run for each value of each grid key, before anything is trained.

    Args:
        runs: of one study.
        helper: calls them.

    Returns:
        What is wrong with units that can be built but not trained, or that end their process, by run id.

    Raises:
        ActlabError: for a mistake in a config.
    """
    from actlab.engines.activation_trial import try_units
    from actlab.engines.processes import EndedError

    ended: dict[str, str] = {}
    tried: list[tuple[str, str]] = []
    while True:
        try:
            faults = helper.call(
                try_units, runs, ended, on=lambda kind, *unit: tried.append((unit[0], unit[1]))
            )
            return {run.id: fault for run in runs if (fault := faults.get(canonical(run.unit)))}
        except EndedError as how:
            unit, name = tried[-1]
            ended[unit] = f"{name} cannot be tried: the process {how.how}"


def updates_of(report: Report, run: Run) -> int | None:
    """`updates_per_epoch` of a run, in a helper."""
    from actlab import experiments

    return updates_per_epoch(experiments.build(run.config))


def updates_per_epoch(experiment: Experiment) -> int | None:
    """Number of training batches, from the data; None where the data does not know it."""
    trainer, _, data = experiment
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    batches = len(loader) if isinstance(loader, Sized) else None
    limit = trainer.limit_train_batches
    return min(batches, limit) if batches and isinstance(limit, int) else batches
