"""Run a study: stage by stage, train the unfinished runs, then measure costs and evaluate probes.

This process stays light: it plans, asks workers (`actlab.engines.workers`), and shows progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.analysis import looks
from actlab.analysis.points import plural
from actlab.analysis.reading import costs, timed_together
from actlab.config.keys import canonical, label, priced, short
from actlab.engines import pool, requests, reuse, search, stages
from actlab.engines.jobs import Shard
from actlab.engines.pool import Pool
from actlab.engines.progress import Display, phase
from actlab.engines.requests import Arranged, Asked
from actlab.engines.settings import check_jobs
from actlab.engines.workers import STALLED, EndedError, Inline, Worker
from actlab.errors import ActlabError
from actlab.storage.files import DamagedError, write_json
from actlab.studies import locks, stacks
from actlab.studies.folders import COSTS, RunFolder, finished_in
from actlab.studies.formats import Cost
from actlab.studies.groups import groups
from actlab.studies.plan import MAX_STACK, Run, Study
from actlab.studies.states import FAILED, state_of

if TYPE_CHECKING:
    from actlab.engines.cluster import Cluster
    from actlab.engines.jobs import Job
    from actlab.engines.recording import Progress


class Engine(NamedTuple):
    """How runs are executed.

    Args:
        stacked: whether to train runs that differ only in seed or settings as stacks; otherwise one by one.
        max_stack: largest number of runs in one stack.
        logger: creates a Lightning logger for a run; each member of a stack has its own.
        jobs: number of training processes, 0 to train in this process; by default one per accelerator or core
            in a long study, else one.
        wait: whether to wait for runs that other processes train, and to train them if these processes end.
        hints: whether to print hints about the activations, which a command that runs several studies with the
            same activations prints once.
        cluster: trains the jobs on its nodes; by default this machine trains them.
        shard: trains a share of the jobs without locks; by default all jobs, each run locked.
        stalled: least seconds without progress after which a worker is ended.
    """

    stacked: bool = True
    max_stack: int = MAX_STACK
    logger: Callable[[Run], Any] | None = None
    jobs: int | None = None
    wait: bool = False
    hints: bool = True
    cluster: Cluster | None = None
    shard: Shard | None = None
    stalled: float = STALLED

    def worker(self) -> Worker | Inline:
        """Return a worker for everything but training."""
        return Inline() if self.jobs == 0 else Worker(stalled=self.stalled)


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
    check_jobs(engine.jobs)
    if engine.shard and any(stage.search for stage in study.stages):
        raise ActlabError(
            f"--shard: {study.name} searches, and each batch needs the results of all batches before"
        )
    if engine.wait or engine.cluster:
        locks.check(root)
    with engine.worker() as worker:
        for line in worker.call(requests.check, study):
            print(line)
        if only is not None:
            stages.until(study, root, only)
        failed, said = 0, set[str]()
        for name, stage in stages.in_turn(study, root):
            if only in (None, name):
                failed += run_stage(stage, root, engine, worker, name)
            for line in search.lines(*stages.searched(study, root)):
                if line not in said:
                    print(line, flush=True)
                said.add(line)
    if only is None and (later := study.stages[len(stages.opened(study, root)) :]):
        print(f"stage {later[0].name} starts when all runs of the stages before it have ended")
    return failed


def run_stage(study: Study, root: Path, engine: Engine, worker: Worker | Inline, name: str = "") -> int:
    """Train the unfinished runs of one stage and evaluate its probes.

    Args:
        study: the stage as a study, or a study without stages.
        root: the study's folder.
        engine: how runs are executed.
        worker: tries, measures and evaluates.
        name: of the stage, for the printed line; empty without stages.

    Returns:
        Number of runs and evaluations that failed.
    """
    runs = study.runs()
    _tidy(runs, root)
    todo = unfinished(runs, root)
    if todo and engine.shard is None:
        with locks.alone(root, locks.DECIDING):
            looks.record(study, root)
            taken = reuse.take(todo, root)
        for other, number in taken.items():
            print(f"{plural(number, 'run')} copied from {root.parent / other}")
        todo = unfinished(todo, root)
    where = f"{study.name}, stage {name}" if name else study.name
    print(f"{where}: {len(runs)} runs, {len(runs) - len(todo)} finished, {len(todo)} to run, in {root}")
    if line := ignored(runs, root):
        print(line)
    failed = train(study, todo, root, engine, worker) if todo else 0
    _tidy(runs, root)
    if engine.shard is None:
        failed += measure(study, root, worker)
    if study.probes:
        with phase("evaluating probes"):
            failed += evaluate(study, runs, root, engine, worker)
    return failed


def _tidy(runs: Sequence[Run], root: Path) -> None:
    """Delete what runs that have finished no longer need, also what a killed process left."""
    finished = [run for run in runs if RunFolder(root, run).finished]
    for run in finished:
        RunFolder(root, run).tidy()
    stacks.end(root, (run.id for run in finished))


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


def train(study: Study, todo: Sequence[Run], root: Path, engine: Engine, worker: Worker | Inline) -> int:
    """Train runs, in stacks where possible; return how many runs failed."""
    for run in todo:
        RunFolder(root, run).try_again()
    with phase("trying each activation on a few samples"):
        faults = faults_of(todo, worker, engine.hints)
    for run in (run for run in todo if run.id in faults):
        RunFolder(root, run).fail(faults[run.id])
    for fault, number in Counter(faults.values()).items():
        print(f"{fault.rstrip('.')}; its {number} run{'s are' if number > 1 else ' is'} left out")
    todo = [run for run in todo if run.id not in faults]
    if not todo:
        return len(faults)
    runs = [run for run in study.runs() if run.id not in faults]
    with phase("trying stacks against runs alone"):
        found = arranged(worker, runs, todo, root, engine)
    for line in found.said:
        print(line)
    sizes = [len(job.runs) for job in found.jobs if len(job.runs) > 1]
    some = f", {sum(sizes)} of them" if sum(sizes) < len(todo) else ""
    stacked = f"{some} in {plural(len(sizes), 'stack')}" if sizes else ""
    workplace = f", {found.settings.jobs} processes" if found.settings.jobs > 1 else ""
    print(f"training {plural(len(todo), 'run')}{stacked}{workplace}", flush=True)
    with Display(todo, root, study.select) as display:
        busy = _trained(found, found.jobs, root, display, engine)
        while busy and (engine.wait or engine.cluster):
            busy = _trained(found, pool.freed(busy, root, display), root, display, engine)
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


def _trained(found: Arranged, jobs: Sequence[Job], root: Path, progress: Progress, engine: Engine) -> list[Job]:
    """Train jobs; return those that other starts are training."""
    if engine.cluster is not None:
        return engine.cluster.train(found, jobs, root, progress, engine.logger)
    if found.settings.jobs == 0:
        return pool.train_here(found, jobs, root, progress, engine.logger, engine.shard is None)
    return Pool(found, root, progress, engine.logger, engine.shard is None, engine.stalled).train(jobs)


def faults_of(runs: Sequence[Run], worker: Worker | Inline, hints: bool = True) -> dict[str, str]:
    """Try each activation, and build one run for each value of each grid key, before training.

    Args:
        runs: runs of one study.
        worker: builds and tries them.
        hints: whether to print hints about declarations, state and time.

    Returns:
        Faults by run id, for activations that can be built but not trained, or that end their process.

    Raises:
        ActlabError: if a config is invalid.
    """
    ended: dict[str, str] = {}
    tried: list[tuple[str, str]] = []
    while True:
        try:
            faults = worker.call(
                requests.try_units, runs, ended, hints, on=lambda _, *unit: tried.append((unit[0], unit[1]))
            )
            return {run.id: fault for run in runs if (fault := faults.get(canonical(run.unit)))}
        except EndedError as how:
            unit, name = tried[-1] if tried else (canonical(runs[0].unit), label(runs[0].unit))
            ended[unit] = untried(name, how)


def untried(name: str, ended: EndedError) -> str:
    """Return the fault of an activation whose code has ended the process that tried it."""
    return f"{name} cannot be tried: the process {ended.how}. An activation must return, not exit or crash"


def arranged(
    worker: Worker | Inline, runs: Sequence[Run], todo: Sequence[Run], root: Path, engine: Engine
) -> Arranged:
    """Return how the runs are trained; without stacks if trying one has ended the worker."""
    jobs = engine.jobs if engine.cluster is None else engine.jobs or max(2, engine.cluster.room)
    asked = Asked(engine.stacked, engine.max_stack, jobs, engine.shard)
    with nullcontext() if engine.shard else locks.alone(root, locks.DECIDING):
        try:
            found: Arranged = worker.call(requests.arrange, runs, todo, root, asked)
        except EndedError as ended:
            print(f"one by one instead of stacked: the process that tried stacks {ended.how}")
            found = worker.call(requests.arrange, runs, todo, root, asked._replace(stacked=False))
    return found


def measure(study: Study, root: Path, worker: Worker | Inline) -> int:
    """Measure the costs of all grid points unless they are known; return 1 if that failed, else 0."""
    with locks.alone(root, locks.MEASURING):
        if not (unknown := uncosted(study, root)):
            return 0
        tuned = [key for key in study.select.tune if short(key) == "lr"]
        with phase("measuring the time and memory of an update"):
            measured = measure_costs(worker, unknown, study, tuned, 1 if study.smoke else None)
        write_json(root / COSTS, [*_costs(root), *measured])
    return int(not measured)


def measure_costs(
    worker: Worker | Inline, runs: Sequence[Run], study: Study, tuned: Sequence[str], rounds: int | None
) -> list[dict[str, Any]]:
    """Return the costs of grid points, none if measuring them ends the worker; see `cost.measure`."""
    try:
        found: list[dict[str, Any]] = worker.call(
            requests.measure, runs, study.compare, study.reference, tuned, rounds
        )
    except EndedError as ended:
        print(f"costs were not measured: the process that measured them {ended.how}")
        return []
    return found


def evaluate(study: Study, runs: Sequence[Run], root: Path, engine: Engine, worker: Worker | Inline) -> int:
    """Evaluate probes; return the number of evaluations that failed."""
    if engine.shard is not None:
        runs = runs[engine.shard.part :: engine.shard.of]
    try:
        failed: int = worker.call(
            requests.evaluate, runs, root, study.probes, engine.wait, engine.shard is None
        )
    except EndedError as ended:
        print(f"the process that evaluated probes {ended.how}; start the study again for the remaining probes")
        return 1
    return failed
