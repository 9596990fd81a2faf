"""Build, try and evaluate what a study names, in a helper.

The helper is a child process if the study names third-party code, otherwise this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.config.keys import canonical, get_dotted
from actlab.errors import ActlabError
from actlab.studies.plan import Probe, Run, Study

_DEVICES = ("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy")

if TYPE_CHECKING:
    from actlab.engines.jobs import Job
    from actlab.engines.processes import Child, EndedError, Here, Report
    from actlab.engines.settings import Settings


def helper_for(study: Study) -> Child | Here:
    """Return the process that calls a study's code: a child process for third-party code, else this one.

    Third-party code may end its process at any time, by an exit or a crash. This process then reports it.
    """
    from actlab.engines.processes import Child, Here
    from actlab.storage import contents

    probes = [probe.class_path for probe in study.probes]
    named = any(contents.content_of(name, of_data=False) for name in probes)
    outside = named or any(run.sources for run in study.runs())
    return Child() if outside else Here()


def make_probes(report: Report, probes: Sequence[Probe]) -> None:
    """Create probes in a helper, so that mistakes are reported before training.

    Args:
        report: unused.
        probes: probes of the study.
    """
    from actlab.engines.evaluation import made

    for probe in probes:
        made(probe)


def measure_costs(
    helper: Child | Here, runs: Sequence[Run], study: Study, tuned: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """Run `actlab.engines.cost.measure` in a helper; return no entries if that ends the helper's process."""
    from actlab.engines.processes import EndedError

    try:
        found: list[dict[str, Any]] = helper.call(_measure, runs, study.compare, study.reference, tuned, rounds)
    except EndedError as ended:
        print(f"costs were not measured: the process that measured them {ended.how}")
        return []
    return found


def _measure(
    report: Report, runs: Sequence[Run], key: str, reference: Any, tuned: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """Called in the helper by `measure_costs`."""
    from actlab.engines import cost

    return cost.measure(runs, key, reference, tuned, rounds=rounds)


def evaluate(
    helper: Child | Here, runs: Sequence[Run], root: Path, probes: Sequence[Probe], wait: bool = False
) -> int:
    """Evaluate probes in a helper; return the number of evaluations that failed."""
    from actlab.engines.processes import EndedError

    try:
        failed: int = helper.call(_evaluate, runs, root, probes, wait)
    except EndedError as ended:
        print(f"the process that evaluated probes {ended.how}; start the study again for the remaining probes")
        return 1
    return failed


def _evaluate(report: Report, runs: Sequence[Run], root: Path, probes: Sequence[Probe], wait: bool) -> int:
    """Called in the helper by `evaluate`."""
    from actlab.engines.evaluation import execute

    return execute(runs, root, probes, print, wait)


class Arranged(NamedTuple):
    """How the runs of a study will be trained.

    Args:
        jobs: the runs and stacks, each trained by one Trainer.
        settings: execution settings of the processes.
        single: whether each run uses a single device.
        said: lines to print about jobs and settings.
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
    """Decide in a helper how runs will be trained; try stacks before forming them.

    Args:
        report: unused.
        runs: runs of the study, without those that cannot be trained.
        todo: the unfinished runs among them.
        root: the study's folder.
        stacked: whether to form new stacks.
        max_stack: largest number of runs in one stack.
        jobs: number of processes requested by the user; None for the default.

    Raises:
        ActlabError: if the runs use different devices.
    """
    from actlab import experiments
    from actlab.engines import packing, settings

    if len({canonical([get_dotted(run.config, key) for key in _DEVICES]) for run in runs}) > 1:
        raise ActlabError(
            f"the runs of a study must use the same devices: {', '.join(_DEVICES)} must not differ"
        )
    first = experiments.build(todo[0].config)
    per_epoch, single = first.updates_per_epoch(), first.trainer.world_size == 1
    updates = sum((r.epochs or 1) * (per_epoch or 1) for r in todo)
    chosen, said = settings.decide(root, updates, jobs, single)
    packed = packing.pack(runs, root, max_stack, stacked, chosen)
    reasons = [f"one by one instead of stacked: {reason}" for reason in packed.reasons]
    return Arranged(packed.jobs, chosen, single, [*said, *reasons])


def faults_of(runs: Sequence[Run], helper: Child | Here, hints: bool = True) -> dict[str, str]:
    """Try each activation, and build one run for each value of each grid key, before training.

    Args:
        runs: runs of one study.
        helper: the process that builds and tries them.
        hints: whether to print hints about declarations, state and time.

    Returns:
        Faults by run id, for activations that can be built but not trained, or that end their process.

    Raises:
        ActlabError: if a config is invalid.
    """
    from actlab.engines.activation_trial import try_units
    from actlab.engines.processes import EndedError

    ended: dict[str, str] = {}
    tried: list[tuple[str, str]] = []
    while True:
        try:
            faults = helper.call(
                try_units, runs, ended, hints, on=lambda kind, *unit: tried.append((unit[0], unit[1]))
            )
            return {run.id: fault for run in runs if (fault := faults.get(canonical(run.unit)))}
        except EndedError as how:
            unit, name = tried[-1]
            ended[unit] = untried(name, how)


def untried(name: str, ended: EndedError) -> str:
    """Return the fault of an activation whose code has ended the process that tried it."""
    return f"{name} cannot be tried: the process {ended.how}. An activation must return, not exit or crash"


def measure_properties(report: Report, spec: Any) -> None:
    """Report each property of an activation, as ``("measured", property)``; called in a helper."""
    from actlab.engines import properties

    for found in properties.measure(spec):
        report("measured", found)


def updates_of(report: Report, run: Run) -> int | None:
    """Return the number of updates per epoch of a run; called in a helper."""
    from actlab import experiments

    return experiments.build(run.config).updates_per_epoch()
