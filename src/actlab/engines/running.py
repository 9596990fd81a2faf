"""Run a study: stage by stage, train the unfinished runs, then evaluate probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.analysis import looks
from actlab.analysis.points import plural
from actlab.analysis.reading import costs, timed_together
from actlab.config.keys import canonical, is_rate, priced
from actlab.engines import reuse, stages
from actlab.engines.preparation import (
    Arranged,
    arrange,
    evaluate,
    faults_of,
    helper_for,
    make_probes,
    measure_costs,
)
from actlab.engines.progress import Display, phase
from actlab.storage.files import DamagedError
from actlab.studies import locks
from actlab.studies.folders import RunFolder, finished_in
from actlab.studies.formats import Cost
from actlab.studies.groups import groups
from actlab.studies.plan import MAX_STACK, Run, Study
from actlab.studies.states import FAILED, state_of

if TYPE_CHECKING:
    from actlab.engines.cluster import Cluster
    from actlab.engines.jobs import Job
    from actlab.engines.processes import Child, Here
    from actlab.engines.recording import Progress


class Engine(NamedTuple):
    """How runs are executed.

    Args:
        stacked: whether to train runs that differ only in seed or settings as stacks; otherwise one by one.
        max_stack: largest number of runs in one stack.
        logger: creates a Lightning logger for a run; each member of a stack has its own.
        jobs: number of training processes; by default one per accelerator or core in a long study, else one.
        wait: whether to wait for runs that other processes train, and to train them if these processes end.
        hints: whether to print hints about the activations, which a command that runs several studies with the
            same activations prints once.
        cluster: trains the jobs on its nodes; by default this machine trains them.
    """

    stacked: bool = True
    max_stack: int = MAX_STACK
    logger: Callable[[Run], Any] | None = None
    jobs: int | None = None
    wait: bool = False
    hints: bool = True
    cluster: Cluster | None = None


def run(study: Study, root: Path, engine: Engine, only: str | None = None) -> int:
    """Train every unfinished run of a study, stage by stage, and evaluate its probes.

    Args:
        study: the study to run.
        root: the study's folder.
        engine: how runs are executed.
        only: name of a single stage to run, at the settings selected for it; by default all stages are run.

    Returns:
        Number of runs and evaluations that failed.

    Raises:
        ActlabError: if a config or dataset is invalid, or if the stage ``only`` cannot be run yet.
    """
    if engine.wait and (line := locks.settle(root)):
        print(line)
    if only is not None:
        return run_stage(stages.until(study, root, only)[-1], root, engine, only)
    number = failed = 0
    while number < len(ready := stages.opened(study, root)):
        names = [stage.name for stage in study.stages] or [""]
        for stage, name in zip(ready[number:], names[number:], strict=False):  # later stages open later
            failed += run_stage(stage, root, engine, name)
        number = len(ready)
    if number < len(study.stages):
        print(f"stage {study.stages[number].name} starts when all runs of the stages before it have ended")
    return failed


def run_stage(study: Study, root: Path, engine: Engine, name: str = "") -> int:
    """Train the unfinished runs of one stage and evaluate its probes.

    Args:
        study: the stage as a study, or a study without stages.
        root: the study's folder.
        engine: how runs are executed.
        name: of the stage, for the printed line; empty without stages.

    Returns:
        Number of runs and evaluations that failed.
    """
    runs = study.runs()
    for run in runs:
        RunFolder(root, run).tidy()
    todo = unfinished(runs, root)
    if todo:
        with locks.alone(root, locks.DECIDING):
            looks.record(study, root)
            taken = reuse.take(todo, root)
        for name, number in taken.items():
            print(f"{plural(number, 'run')} copied from {root.parent / name}")
        todo = unfinished(todo, root)
    where = f"{study.name}, stage {name}" if name else study.name
    print(f"{where}: {len(runs)} runs, {len(runs) - len(todo)} finished, {len(todo)} to run, in {root}")
    if line := ignored(runs, root):
        print(line)
    if not todo and not study.probes and not uncosted(study, root):
        return 0
    from actlab.engines import cost
    from actlab.engines.settings import quiet

    failed = 0
    with quiet(), helper_for(study) as helper:
        helper.call(make_probes, study.probes)
        if todo:
            failed += train(study, todo, root, engine, helper)
        with locks.alone(root, locks.MEASURING):
            if unknown := uncosted(study, root):
                rounds = 1 if study.smoke else cost.ROUNDS
                with phase("measuring the time and memory of an update"):
                    tuned = list(filter(is_rate, study.select.tune))
                    measured = measure_costs(helper, unknown, study, tuned, rounds)
                cost.write(measured, root, kept=_costs(root))
                failed += not measured
        if study.probes:
            with phase("evaluating probes"):
                failed += evaluate(helper, runs, root, study.probes, engine.wait)
    return failed


def unfinished(runs: Sequence[Run], root: Path) -> list[Run]:
    """Return the runs that have neither reached their last epoch nor diverged."""
    return [run for run in runs if not RunFolder(root, run).finished]


def uncosted(study: Study, root: Path) -> list[Run]:
    """Return the finished runs unless the costs of all their grid points were measured together.

    Points that differ only in a learning rate have the same cost.
    """
    if not study.reference:
        return []
    together = [{entry["run"] for entry in entries} for entries in timed_together(_costs(root))]
    finished = {run.id: run for run in study.runs() if RunFolder(root, run).finished}
    alike: dict[str, set[str]] = {}
    for number, group in enumerate(groups(study)):
        for setting in group.settings:
            alike.setdefault(f"{number} {canonical(priced(setting.tuned))}", set()).update(
                r.id for r in setting.runs
            )
    wanted = [runs for runs in alike.values() if runs & finished.keys()]
    known = not wanted or any(all(runs & timed for runs in wanted) for timed in together)
    return [] if known else list(finished.values())


def _costs(root: Path) -> list[Cost]:
    """Return the measured costs; empty if the file is damaged, so that costs are measured again."""
    try:
        return costs(root)
    except DamagedError:
        return []


def unlike(runs: Sequence[Run], root: Path) -> list[str]:
    """Return the ids of finished runs that share a name with ``runs``, but not settings, data or code."""
    names = {run.id for run in runs}
    alike = {name.rpartition("-")[0] for name in names}
    return [name for name in finished_in(root) if name not in names and name.rpartition("-")[0] in alike]


def ignored(runs: Sequence[Run], root: Path) -> str:
    """Return a line about finished runs that share names with ``runs`` but differ; empty without any."""
    if not (number := len(unlike(runs, root))):
        return ""
    return f"{number} finished runs in {root} have other settings, data or code; they are ignored"


def train(study: Study, todo: Sequence[Run], root: Path, engine: Engine, helper: Child | Here) -> int:
    """Train runs, in stacks where possible; return how many runs failed."""
    from actlab.engines import queue

    for run in todo:
        RunFolder(root, run).try_again()
    with phase("trying each activation on a few samples"):
        faults = faults_of(todo, helper, engine.hints)
    for run in (run for run in todo if run.id in faults):
        RunFolder(root, run).fail(faults[run.id])
    for fault, number in Counter(faults.values()).items():
        print(f"{fault.rstrip('.')}; its {number} run{'s are' if number > 1 else ' is'} left out")
    todo = [run for run in todo if run.id not in faults]
    if not todo:
        return len(faults)
    runs = [run for run in study.runs() if run.id not in faults]
    with phase("trying stacks against runs alone"):
        found = _arrangement(helper, runs, todo, root, engine)
    for line in found.said:
        print(line)
    sizes = [len(job.runs) for job in found.jobs if len(job.runs) > 1]
    some = f", {sum(sizes)} of them" if sum(sizes) < len(todo) else ""
    stacks = f"{some} in {plural(len(sizes), 'stack')}" if sizes else ""
    workplace = f", {found.settings.jobs} processes" if found.settings.jobs > 1 else ""
    print(f"training {plural(len(todo), 'run')}{stacks}{workplace}", flush=True)
    with Display(todo, root, study.select) as display:
        busy = _work(found.jobs, root, display, found, engine, helper)
        while busy and engine.wait:
            busy = _work(queue.freed(busy, root, display), root, display, found, engine, helper)
    if busy:
        number = sum(len(job.runs) for job in busy)
        print(
            f"{plural(number, 'run')} {'is' if number == 1 else 'are'} being trained by another process; start "
            "the study again when it has ended, or wait for it with --wait"
        )
    states = {run.id: state_of(RunFolder(root, run)) for run in todo}
    failed = {name: state.reason for name, state in states.items() if state.kind == FAILED}
    for name, failure in failed.items():
        print(f"{name} failed: {failure}")
    return len(faults) + len(failed)


def _work(
    jobs: Sequence[Job], root: Path, progress: Progress, found: Arranged, engine: Engine, helper: Child | Here
) -> list[Job]:
    """Train the jobs that no other process is training; return those that are not over."""
    from actlab.engines import home, multi_device, processes, queue, workers

    settings, logger = found.settings, engine.logger
    if engine.cluster is not None:
        return home.work(engine.cluster, found._replace(jobs=[*jobs]), root, progress, logger)
    if settings.jobs > 1 and len(jobs) > 1:
        return workers.work(jobs, root, progress, settings, logger)
    if found.single and isinstance(helper, processes.Child):
        helper.settings = settings
        return workers.work(jobs, root, progress, settings, logger, helper)
    if found.single:
        return queue.work(jobs, root, progress, logger)
    return multi_device.work(jobs, root, progress, settings, logger)


def _arrangement(
    helper: Child | Here, runs: Sequence[Run], todo: Sequence[Run], root: Path, engine: Engine
) -> Arranged:
    """Return the result of `arrange`; without stacks if trying one has ended the helper's process."""
    from actlab.engines.processes import EndedError

    what, asked = (runs, todo, root), (engine.max_stack, engine.jobs)
    with locks.alone(root, locks.DECIDING):
        try:
            found: Arranged = helper.call(arrange, *what, engine.stacked, *asked)
        except EndedError as ended:
            print(f"one by one instead of stacked: the process that tried stacks {ended.how}")
            found = helper.call(arrange, *what, False, *asked)
    return found
