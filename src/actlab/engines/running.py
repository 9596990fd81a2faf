"""Run a study: stage by stage, train the unfinished runs, then measure costs and evaluate probes.

This process stays light: it plans, asks workers (`actlab.engines.workers`), and shows progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from actlab.analysis.comparison import too_few_seeds
from actlab.analysis.wording import few, plural
from actlab.checks import configs
from actlab.checks.cases import key_of
from actlab.config.paths import short
from actlab.engines import pool
from actlab.engines.jobs import Arranged, Job, Shard, share_of
from actlab.engines.pool import Pool
from actlab.engines.progress import Display, phase
from actlab.engines.settings import check_jobs
from actlab.engines.workers import STALLED, EndedError, Inline, Worker
from actlab.errors import ActlabError
from actlab.runtime.machine import is_busy
from actlab.runtime.signals import Stopped
from actlab.stages import opening, search
from actlab.storage.files import DamagedError
from actlab.studies import changes, locks, opened, stacks
from actlab.studies.formats import Cost
from actlab.studies.groups import by_key, by_point
from actlab.studies.plan import MAX_STACK, Run, Study
from actlab.studies.points import Point
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import FAILED
from actlab.studies.study_folder import COSTS, StudyFolder, timed_together

if TYPE_CHECKING:
    from actlab.checks.facts import Known
    from actlab.engines.cluster import Cluster


class Engine(NamedTuple):
    """How runs are executed."""

    max_stack: int = MAX_STACK  # largest number of runs in one stack
    logger: Callable[[Run], Any] | None = (
        None  # creates a Lightning logger for a run, or a member of a stack
    )
    # Training processes, 0 to train in this process; by default see
    # `actlab.engines.settings.decide`.
    jobs: int | None = None
    wait: bool = False  # for runs that other processes train, and train them if these processes end
    cluster: Cluster | None = None  # trains the jobs on its nodes; by default this machine does
    shard: Shard | None = (
        None  # trains a share of the jobs without locks; by default all, each run locked
    )
    stalled: float = STALLED  # least seconds without progress after which a worker is ended
    graphs: bool | None = None  # whether updates are replayed as CUDA graphs; by default as stored

    def worker(self) -> Worker | Inline:
        """Return a worker for everything but training."""
        return Inline() if self.jobs == 0 else Worker(stalled=self.stalled)


def run(folder: StudyFolder, engine: Engine, only: str | None = None) -> int:
    """Train every unfinished run of a study, stage by stage, and evaluate its probes.

    ``only`` names a single stage to run, at the settings selected for it. Returns the number of
    runs and evaluations that failed.

    Raises:
        ActlabError: if a config or dataset is invalid, or if the stage ``only`` cannot be run yet.
    """
    study = folder.study
    check_jobs(engine.jobs)
    with engine.worker() as worker:
        for line in check(study, worker):
            print(line)
        last = study.stages[-1].name if study.stages else None
        if only in (None, last) and (line := too_few_seeds(opening.designed(folder))):
            print(line)
        folder.path.mkdir(parents=True, exist_ok=True)
        if only is not None:
            opening.opened(folder).until(only)
        names = [stage.name for stage in study.stages] or [""]
        failed, number = 0, 0
        tried = set[str]()
        # Opened again after each stage, because its results decide what the next one runs.
        while number < len((ready := opening.opened(folder)).stages):
            stage, reached = ready.stages[number], names[number]
            if only in (None, reached) and opens_new_files(stage, engine.stalled):
                continue  # planned again, because these files count
            if only in (None, reached):
                for line in stage.study.notes[len(study.notes) :]:  # of its selection
                    print(line, flush=True)
                failed += Start(stage, engine, worker, tried).run(reached)
                if number == 0 and study.stages and study.stages[0].search:
                    for line in search.lines(stage):
                        print(line, flush=True)
            number += 1
    if only is None and number < len(names):
        print(f"stage {names[number]} starts when all runs of the stages before it have ended")
    return failed


def opens_new_files(folder: StudyFolder, stalled: float) -> bool:
    """Find and store which files users' code opens, where that is not known; return whether there are any."""
    known = folder.study.opened_files
    if not (runs := opened.unknown((run for run, *_ in by_point(folder.study.runs())), known)):
        return False
    found: dict[str, list[str]] = {}
    fresh = Worker(stalled=stalled)  # which has imported no users' code
    # Why a process ends is said where the activations are tried.
    with phase("finding the files that your code opens"), fresh, suppress(EndedError):
        found = fresh.call("actlab.checks.opened_files:find", runs, {*known}, folder.path)
        folder.store(opened.FILE, {**known, **found})
    return any(found.values())


def check(study: Study, worker: Worker | Inline) -> list[str]:
    """Check a study before it is trained; see `configs.check`."""
    try:
        with phase("checking the configs"):
            lines: list[str] = worker.call(configs.check, study)
    except EndedError as ended:
        raise ActlabError(f"the configs cannot be checked: the process {ended.how}") from ended
    except Stopped as stop:
        stop.how = "the configs were being checked; nothing was trained or changed"
        raise
    return lines


@dataclass
class Start:
    """One start of a stage, or of a study without stages."""

    folder: StudyFolder  # of the stage as a study
    engine: Engine
    worker: Worker | Inline  # tries, measures and evaluates
    # Ids of the runs that this command has tried; those that failed are not tried again
    tried: set[str]

    def run(self, name: str) -> int:
        """Train the unfinished runs and evaluate the probes; return how many runs and evaluations failed."""
        self._tidy()
        study, path, runs = self.folder.study, self.folder.path, self.folder.runs
        todo = [folder for folder in runs if not folder.finished]
        todo = [f for f in todo if f.id not in self.tried or not f.failure_file.exists()]
        where = f"{study.name}, stage {name}" if name else study.name
        done = sum(folder.finished for folder in runs)
        print(
            f"{where}: {plural(len(runs), 'run')}, {done} finished, {len(todo)} to run, in {path}"
        )
        if line := ignored([self.folder]):
            print(line)
        failed = self.train(todo) if todo else 0
        self._tidy()
        if self.engine.shard is None:
            failed += self.measure()
        if study.probes:
            with phase("evaluating probes"):
                failed += self.evaluate()
        return failed

    def _tidy(self) -> None:
        """Delete what runs that have finished no longer need, also what a killed process left."""
        finished = [folder for folder in self.folder.runs if folder.finished]
        for folder in finished:
            folder.tidy()
        stacks.end(self.folder.path, (folder.id for folder in finished))

    def train(self, todo: Sequence[RunFolder]) -> int:
        """Train runs, in stacks where possible; return how many runs failed."""
        self.tried.update(folder.id for folder in todo)
        devices = self._devices()  # before this process uses one
        self.worker.call("actlab.checks.activation_trial:prepare", [folder.run for folder in todo])
        with phase("trying each activation on a few samples"):
            faults, known = faults_of([folder.run for folder in todo], self.worker)
        for folder in (folder for folder in todo if folder.id in faults):
            folder.fail(faults[folder.id])
        for fault, number in Counter(faults.values()).items():
            print(
                f"{fault.rstrip('.')}; its {number} run{'s are' if number > 1 else ' is'} left out"
            )
        todo = [folder for folder in todo if folder.id not in faults]
        if not todo:
            return len(faults)
        arranged = self.arranged(todo, known, devices)
        mine = {name for job in arranged.jobs for name in job.names}
        todo = [folder for folder in todo if folder.id in mine]
        for folder in todo:
            folder.try_again()
        for line in arranged.notes:
            print(line)
        if isinstance(self.worker, Worker):  # it may hold memory of an accelerator
            self.worker.end()
            self.worker.settings = arranged.settings  # for costs, which start it again
        sizes = [len(job.runs) for job in arranged.jobs if len(job.runs) > 1]
        some = f", {sum(sizes)} of them" if sum(sizes) < len(todo) else ""
        stacked = f"{some} in {plural(len(sizes), 'stack')}" if sizes else ""
        workplace = f", {arranged.settings.jobs} processes" if arranged.settings.jobs > 1 else ""
        print(f"training {plural(len(todo), 'run')}{stacked}{workplace}", flush=True)
        with Display(
            [folder.run for folder in todo], self.folder.path, self.folder.study.select
        ) as display:
            train = self._engine(arranged)
            busy = train(arranged.jobs)
            while busy and (self.engine.wait or self.engine.cluster):
                busy = train(pool.wait_for(busy, self.folder.path))
        if busy:
            number = sum(len(job.runs) for job in busy)
            print(
                f"{plural(number, 'run')} {'is' if number == 1 else 'are'} being trained by another process; "
                "start the study again when it has ended, or wait for it with --wait"
            )
        if display.early:
            after = " to ".join(
                f"{epoch:g}" for epoch in sorted({min(display.early), max(display.early)})
            )
            print(
                f"{plural(len(display.early), 'run')} ended before the last epoch, after epoch {after}"
            )
        states = {folder.id: folder.state for folder in todo}
        failed = {name: state.reason for name, state in states.items() if state.kind == FAILED}
        for name, failure in failed.items():
            print(f"{name} failed: {failure}")
        return len(faults) + len(failed)

    def arranged(self, todo: Sequence[RunFolder], known: Known, devices: Sequence[str]) -> Arranged:
        """Return how the runs are trained; as plain modules if trying a stack has ended the worker."""
        engine, root, runs = self.engine, self.folder.path, self.folder.study.planned()
        jobs = engine.jobs if engine.cluster is None else engine.jobs or max(2, engine.cluster.room)
        given = (
            runs,
            [folder.run for folder in todo],
            root,
            engine.max_stack,
            jobs,
            engine.shard,
            known,
        )
        plan = partial(self.worker.call, "actlab.engines.packing:arrange", *given)
        deciding = nullcontext() if engine.shard else locks.alone(root, locks.DECIDING)
        with deciding, phase("trying stacks against runs alone"):
            try:
                arranged: Arranged = plan(engine.graphs, devices)
            except EndedError as ended:
                arranged = plan(
                    engine.graphs, devices, f"the process that tried stacks {ended.how}"
                )
        return arranged

    def _devices(self) -> list[str]:
        """Return the accelerators, which the worker then sees in this order, by falling free memory."""
        if isinstance(self.worker, Inline):
            return []
        names: list[str] = self.worker.call("actlab.runtime.devices:accelerators")
        if len(names) > 1:
            self.worker.end()  # it has begun to use each
            self.worker.device = ",".join(names)
        return names

    def _engine(self, arranged: Arranged) -> Callable[[Sequence[Job]], list[Job]]:
        """Return what trains jobs, and returns those that other starts are training."""
        engine, root, locked = self.engine, self.folder.path, self.engine.shard is None
        if engine.cluster is not None:
            return partial(engine.cluster.train, arranged, root=root, logger=engine.logger)
        if isinstance(worker := self.worker, Worker):
            return Pool(arranged, root, engine.logger, locked, engine.stalled).train
        arranged.settings.apply()
        return lambda jobs: [
            job for job in jobs if not worker.call(*arranged.call(job, root, engine.logger, locked))
        ]

    def measure(self) -> int:
        """Measure the costs of all grid points unless they are known; return 1 if that failed, else 0."""
        study = self.folder.study
        with locks.alone(self.folder.path, locks.MEASURING):
            if not (unknown := uncosted(self.folder)):
                return 0
            tuned = [key for key in study.select.tune if short(key) == "lr"]
            with phase("measuring the time and memory of an update"):
                rounds = 1 if study.smoke else None
                measured = measure_costs(self.worker, unknown, study, tuned, rounds)
            if how := busy(measured):
                print(
                    f"costs are left out: other programs kept the machine busy ({how}); the same command "
                    "measures them again when it is idle"
                )
                return 0
            self.folder.store(COSTS, [*_costs(self.folder), *measured])
        return int(not measured)

    def evaluate(self) -> int:
        """Evaluate probes; return the number of evaluations that failed."""
        shard = self.engine.shard
        mine = share_of(shard, self.folder.runs)
        runs, probes = [folder.run for folder in mine], self.folder.study.probes
        given = (runs, self.folder.path, probes, self.engine.wait, shard is None)
        try:
            return int(self.worker.call("actlab.engines.evaluation:execute", *given))
        except EndedError as ended:
            print(
                f"the process that evaluated probes {ended.how}; start the study again for the remaining probes"
            )
            return 1


def busy(costs: Iterable[Mapping[str, Any]]) -> str:
    """Return how busy the machine was with other programs while costs were measured; empty if it was idle."""
    for machine in (cost.get("machine", {}) for cost in costs):
        share, load, cores = (
            machine.get("cpu_per_second"),
            machine.get("load", 0),
            machine.get("cores", 1),
        )
        if is_busy(load, cores, share):
            got = "" if share is None else f", {share:.2f} s of processor time a second"
            return f"load {load:.1f} on {cores} cores{got}"
    return ""


def uncosted(folder: StudyFolder) -> list[Run]:
    """Return the finished runs unless the costs of all their grid points were measured together.

    Points that differ only in a learning rate have the same cost.
    """
    if not folder.study.reference:
        return []
    together = [{entry["run"] for entry in entries} for entries in timed_together(_costs(folder))]
    finished = {run.id: run.run for run in folder.runs if run.finished}
    alike: dict[tuple[int, Point], set[str]] = {}
    for number, group in enumerate(folder.groups):
        for setting in group.settings:
            priced_alike = alike.setdefault((number, setting.priced), set())
            priced_alike.update(run.id for run in setting.runs)
    wanted = [runs for runs in alike.values() if runs & finished.keys()]
    known = not wanted or any(all(runs & timed for runs in wanted) for timed in together)
    return [] if known else list(finished.values())


def _costs(folder: StudyFolder) -> list[Cost]:
    """Return the measured costs; empty if the file is damaged, so that costs are measured again."""
    try:
        return folder.costs
    except DamagedError:
        return []


def measure_costs(
    worker: Worker | Inline,
    runs: Sequence[Run],
    study: Study,
    tuned: Sequence[str],
    rounds: int | None,
    processor: bool = False,
) -> list[dict[str, Any]]:
    """Return the costs of grid points, none if measuring them fails; see `cost.measure`."""
    try:
        entries: list[dict[str, Any]] = worker.call(
            "actlab.checks.cost:measure", runs, study.compare, tuned, rounds, processor
        )
    except ActlabError as error:  # the table does not need them
        print(f"costs were not measured: {error}")
        return []
    return entries


def ignored(stages: Sequence[StudyFolder]) -> str:
    """Return a line about finished runs that share names with runs of ``stages`` but differ; empty without any.

    It names the files that have changed since, and which settings differ in the first 20 of the
    other runs.
    """
    runs, root = [run.run for stage in stages for run in stage.runs], stages[0].path
    names = {run.id for run in runs}
    alike = by_key((run.id.rpartition("-")[0], run) for run in runs)
    unlike = [n for n in stages[0].finished() if n not in names and n.rpartition("-")[0] in alike]
    if not unlike:
        return ""

    # Runs that use a changed file
    now = changes.digests(runs)
    changed = {name: changes.changed(root / name, now) for name in unlike}
    edited = [name for name in unlike if changed[name]]
    reasons = []
    if edited:
        files = dict.fromkeys(file for name in edited for file in changed[name])
        number = plural(len(edited), "finished run")
        reasons.append(f"{number}, because {few([*files])} has been changed since")

    # All others
    others = [name for name in unlike if not changed[name]]
    if others:
        planned = ((name, alike[name.rpartition("-")[0]]) for name in others[:20])
        settings = dict.fromkeys(
            text for name, runs in planned for text in changes.other_settings(root / name, runs)
        )
        why = "of other settings, data or code, or of an earlier version of actlab"
        if settings:
            why = f"with other settings: {few([*settings])}"
        reasons.append(f"{plural(len(others), 'finished run')} {why}")

    return f"ignored in {root}: {'; '.join(reasons)}"


def faults_of(runs: Sequence[Run], worker: Worker | Inline) -> tuple[dict[str, str], Known]:
    """Try each activation in each network, and build one run for each value of each grid key, before training.

    Returns faults by run id, for activations that can be built but not trained, or that end their
    process; and the facts of what was built. Raises `ActlabError` for an invalid config.
    """
    ended: dict[str, str] = {}
    tried: list[tuple[str, str]] = []

    def note(_: str, *case: str) -> None:
        tried.append((case[0], case[1]))

    while True:
        try:
            faults, known = worker.call(
                "actlab.checks.activation_trial:try_activations", runs, ended, on=note
            )
            return {run.id: fault for run in runs if (fault := faults.get(key_of(run)))}, known
        except EndedError as how:
            if not tried:
                raise
            key, name = tried[-1]
            ended[key] = untried(name, how)


def untried(name: str, ended: EndedError) -> str:
    """Return the fault of an activation whose code has ended the process that tried it."""
    return f"{name} cannot be tried: the process {ended.how}. An activation must return, not exit or crash"
