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
from actlab.analysis.wording import plural
from actlab.checks import configs
from actlab.checks.cases import key_of
from actlab.config.paths import short
from actlab.engines import pool
from actlab.engines.ignored_runs import ignored
from actlab.engines.jobs import Arranged, Job, Shard, share_of
from actlab.engines.pool import Pool
from actlab.engines.progress import Display, phase
from actlab.engines.settings import check_jobs
from actlab.engines.start_messages import (
    print_early,
    print_failures,
    print_held,
    summary,
)
from actlab.engines.stored_costs import stored_costs, uncosted
from actlab.engines.workers import STALLED, EndedError, Inline, Worker
from actlab.errors import ActlabError
from actlab.runtime.machine import is_busy
from actlab.runtime.signals import Stopped
from actlab.stages import opening, search
from actlab.studies import locks, opened, stacks
from actlab.studies.groups import by_point
from actlab.studies.plan import MAX_STACK, Run, Study
from actlab.studies.run_folder import RunFolder
from actlab.studies.study_folder import COSTS, StudyFolder

if TYPE_CHECKING:
    from actlab.checks.facts import BuiltFacts
    from actlab.engines.cluster import Cluster


class Engine(NamedTuple):
    """How runs are executed."""

    max_stack: int = MAX_STACK  # largest number of runs in one stack
    # Creates a Lightning logger for a run, or a member of a stack
    logger: Callable[[Run], Any] | None = None
    # Training processes, 0 to train in this process; the default is in
    # `actlab.engines.settings`
    jobs: int | None = None
    wait: bool = False  # for runs that other processes train, and train them if these processes end
    # Trains the jobs on its nodes; by default this machine does.
    cluster: Cluster | None = None
    # Trains a share of the jobs without locks; by default all jobs, with each run
    # locked
    shard: Shard | None = None
    # Least seconds without progress after which a worker is ended.
    stalled: float = STALLED
    # Whether updates are replayed as CUDA graphs; by default as stored.
    graphs: bool | None = None
    # Whether the progress names the best value and the latest run.
    verbose: bool = False

    def worker(self) -> Worker | Inline:
        """Return a worker for everything but training."""
        if self.jobs == 0:
            return Inline()
        return Worker(stalled=self.stalled)


def run(folder: StudyFolder, engine: Engine, only: str | None = None) -> int:
    """Train every unfinished run of a study, stage by stage, and evaluate its probes.

    Args:
        folder: the study and its folder.
        engine: how the runs are executed.
        only: name of a single stage to run, at the settings selected for it.

    Returns:
        The number of runs and evaluations that failed.

    Raises:
        ActlabError: if a config or dataset is invalid, or if the stage ``only`` cannot be run yet.
    """
    study = folder.study
    check_jobs(engine.jobs)
    with engine.worker() as worker:
        # Check the study
        for line in check(study, worker):
            print(line)
        last = study.stages[-1].name if study.stages else None
        if only in (None, last):
            line = too_few_seeds(opening.designed(folder))
            if line:
                print(line)

        # Check that the single stage can be run
        folder.path.mkdir(parents=True, exist_ok=True)
        if only is not None:
            opening.opened(folder).until(only)

        return _run_stages(folder, engine, worker, only)


def _run_stages(
    folder: StudyFolder, engine: Engine, worker: Worker | Inline, only: str | None
) -> int:
    """Run the stages of a study, or the stage ``only``; return how much failed."""
    study = folder.study
    names = [stage.name for stage in study.stages] or [""]
    failed = 0
    number = 0
    tried = set[str]()
    while True:
        # Open the stages again after each, because its results decide what the next one
        # runs
        stages = opening.opened(folder).stages
        if number >= len(stages):
            break
        stage = stages[number]
        if only not in (None, names[number]):
            number += 1
            continue

        # New files count for what is planned: plan again
        if opens_new_files(stage, engine.stalled):
            continue

        # Run the stage, after the notes on its selection
        for note in stage.study.notes[len(study.notes) :]:
            print(note, flush=True)
        failed += Start(stage, engine, worker, tried).run(names[number])
        if number == 0 and study.stages and study.stages[0].search:
            for line in search.lines(stage):
                print(line, flush=True)
        number += 1

    # Say why later stages have not run
    if only is None and number < len(names):
        print(
            f"stage {names[number]} starts when all runs of the stages before it have ended"
        )
    return failed


def opens_new_files(folder: StudyFolder, stalled: float) -> bool:
    """Find and store which files users' code opens, if unknown; return whether there are any."""
    # One run of each grid point is enough
    stored = folder.study.opened_files
    examples = [runs[0] for runs in by_point(folder.study.runs())]
    unknown = opened.unknown(examples, stored)
    if not unknown:
        return False

    # Ask a process that has imported no users' code. If that code ends the process, the
    # trial of activations says why.
    new_files: dict[str, list[str]] = {}
    worker = Worker(stalled=stalled)
    with phase("finding the files that your code opens"), worker, suppress(EndedError):
        new_files = worker.call(
            "actlab.checks.opened_files:find", unknown, {*stored}, folder.path
        )
        folder.store(opened.FILE, {**stored, **new_files})
    return any(new_files.values())


def check(study: Study, worker: Worker | Inline) -> list[str]:
    """Check a study before it is trained; see `configs.check`."""
    try:
        with phase("checking the configs"):
            lines: list[str] = worker.call(configs.check, study)
    except EndedError as ended:
        raise ActlabError(
            f"the configs cannot be checked: the process {ended.ending}"
        ) from ended
    except Stopped as stop:
        stop.explanation = (
            "the configs were being checked; nothing was trained or changed"
        )
        raise
    return lines


@dataclass
class Start:
    """One start of a stage, or of a study without stages.

    It decides what is done with the runs of a stage, and in which order: it tries, arranges and
    trains the unfinished runs, measures costs and evaluates probes. Workers do all of this; a
    `Pool` or a `Cluster` trains the jobs.
    """

    folder: StudyFolder  # of the stage as a study
    engine: Engine
    worker: Worker | Inline  # tries, measures and evaluates
    # Ids of the runs that this command has tried; those that failed are not tried again
    tried: set[str]

    def run(self, name: str) -> int:
        """Train the unfinished runs and evaluate the probes; return how much failed.

        ``name`` is the name of the stage, empty for a study without stages.
        """
        self._tidy()

        # Find the runs to train
        runs = self.folder.runs
        finished = 0
        todo = []
        for folder in runs:
            if folder.finished:
                finished += 1
            elif folder.id not in self.tried or not folder.failure_file.exists():
                todo.append(folder)

        # Say what will be done
        study = self.folder.study
        title = f"{study.name}, stage {name}" if name else study.name
        counts = f"{plural(len(runs), 'run')}, {finished} finished, {len(todo)} to run"
        print(f"{title}: {counts}, in {self.folder.path}")
        line = ignored([self.folder])
        if line:
            print(line)

        # Train, measure and evaluate
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

        # Try each activation, and leave out the runs that cannot be trained
        runs = [folder.run for folder in todo]
        self.worker.call("actlab.checks.activation_trial:prepare", runs)
        with phase("trying each activation on a few samples"):
            faults, built_facts = faults_of(runs, self.worker)
        todo = _without_faults(todo, faults)
        if not todo:
            return len(faults)

        # Arrange the other runs in jobs; of several shards, this one trains some of
        # them
        arranged = self.arranged(todo, built_facts, devices)
        arranged_ids = set[str]()
        for job in arranged.jobs:
            arranged_ids.update(job.names)
        todo = [folder for folder in todo if folder.id in arranged_ids]
        for folder in todo:
            folder.try_again()
        for line in arranged.notes:
            print(line)
        if isinstance(self.worker, Worker):  # it may hold memory of an accelerator
            self.worker.end()
            self.worker.settings = arranged.settings  # for costs, which start it again

        # Train them
        print(summary(len(todo), arranged), flush=True)
        runs = [folder.run for folder in todo]
        select = self.folder.study.select
        with Display(runs, self.folder.path, select, self.engine.verbose) as display:
            train = self._train_function(arranged)
            held = train(arranged.jobs)
            while held and (self.engine.wait or self.engine.cluster):
                unfinished = pool.wait_for(held, self.folder.path)
                held = train(unfinished)

        # Say how they ended
        print_held(held)
        print_early(display.early)
        return len(faults) + print_failures(todo)

    def arranged(
        self, todo: Sequence[RunFolder], built_facts: BuiltFacts, devices: Sequence[str]
    ) -> Arranged:
        """Return how the runs are trained: as plain modules if trying a stack ended the worker."""
        engine = self.engine
        root = self.folder.path

        # Fill the cluster, unless the number of jobs is set
        jobs = engine.jobs
        if engine.cluster is not None and not jobs:
            jobs = max(2, engine.cluster.room)

        # The worker decides, because trials of stacks load torch
        arrange = partial(
            self.worker.call,
            "actlab.engines.packing:arrange",
            self.folder.study.planned(),
            [folder.run for folder in todo],
            root,
            engine.max_stack,
            jobs,
            engine.shard,
            built_facts,
            engine.graphs,
            devices,
        )

        # One start decides at a time. Shards, whose file systems may have no locks, do
        # not wait.
        deciding = nullcontext() if engine.shard else locks.alone(root, locks.DECIDING)
        with deciding, phase("trying stacks against runs alone"):
            try:
                arranged: Arranged = arrange()
            except EndedError as ended:
                arranged = arrange(f"the process that tried stacks {ended.ending}")
        return arranged

    def _devices(self) -> list[str]:
        """Return the accelerators by falling free memory; the worker then sees this order."""
        if isinstance(self.worker, Inline):
            return []
        names: list[str] = self.worker.call("actlab.runtime.devices:accelerators")
        if len(names) > 1:
            self.worker.end()  # it has begun to use each
            self.worker.device = ",".join(names)
        return names

    def _train_function(
        self, arranged: Arranged
    ) -> Callable[[Sequence[Job]], list[Job]]:
        """Return what trains jobs, and returns the jobs that other starts are training."""
        engine = self.engine
        worker = self.worker
        root = self.folder.path
        is_locked = engine.shard is None
        # On nodes of a cluster, in processes of this machine, or in this process
        if engine.cluster is not None:
            return partial(
                engine.cluster.train, arranged, root=root, logger=engine.logger
            )
        if isinstance(worker, Worker):
            return Pool(arranged, root, engine.logger, is_locked, engine.stalled).train

        # This process trains, one job after the other
        arranged.settings.apply()

        # A job that is not over is locked elsewhere
        def train_here(jobs: Sequence[Job]) -> list[Job]:
            held = []
            for job in jobs:
                call = arranged.call(job, root, engine.logger, is_locked)
                is_over = worker.call(*call)
                if not is_over:
                    held.append(job)
            return held

        return train_here

    def measure(self) -> int:
        """Measure the costs of all grid points unless they are known; return how much failed."""
        study = self.folder.study

        # Wait for other starts, which may measure some points
        with locks.alone(self.folder.path, locks.MEASURING):
            runs = uncosted(self.folder)
            if not runs:
                return 0

            # Measure
            tuned = [key for key in study.select.tune if short(key) == "lr"]
            rounds = 1 if study.smoke else None
            with phase("measuring the time and memory of an update"):
                measured = measure_costs(self.worker, runs, study, tuned, rounds)

            # Store the costs, unless other programs disturbed them
            load = busy(measured)
            if load:
                print(
                    f"costs are left out: other programs kept the machine busy ({load}); the same "
                    "command measures them again when it is idle"
                )
                return 0
            self.folder.store(COSTS, [*stored_costs(self.folder), *measured])
        return 0 if measured else 1

    def evaluate(self) -> int:
        """Evaluate probes; return the number of evaluations that failed."""
        shard = self.engine.shard
        # A shard evaluates a part of the runs, without locks
        runs = [folder.run for folder in share_of(shard, self.folder.runs)]
        try:
            failed: int = self.worker.call(
                "actlab.engines.evaluation:execute",
                runs,
                self.folder.path,
                self.folder.study.probes,
                self.engine.wait,
                shard is None,
            )
        except EndedError as ended:
            remedy = "Start the study again for the remaining probes."
            print(f"the process that evaluated probes {ended.ending}. {remedy}")
            return 1  # the rest is not counted one by one
        return failed


def _without_faults(
    folders: Sequence[RunFolder], faults: Mapping[str, str]
) -> list[RunFolder]:
    """Record and print the runs with faults, by id; return all other runs."""
    trainable = []
    for folder in folders:
        if folder.id in faults:
            folder.fail(faults[folder.id])
        else:
            trainable.append(folder)

    for fault, number in Counter(faults.values()).items():
        runs = "1 run is" if number == 1 else f"{number} runs are"
        print(f"{fault.rstrip('.')}; its {runs} left out")
    return trainable


def busy(costs: Iterable[Mapping[str, Any]]) -> str:
    """Return how busy the machine was with other programs during measurements; empty if idle."""
    for cost in costs:
        machine = cost.get("machine", {})
        load = machine.get("load", 0)
        cores = machine.get("cores", 1)
        share = machine.get("cpu_per_second")
        if is_busy(load, cores, share):
            description = f"load {load:.1f} on {cores} cores"
            if share is not None:
                description += f", {share:.2f} s of processor time a second"
            return description
    return ""


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


def faults_of(
    runs: Sequence[Run], worker: Worker | Inline
) -> tuple[dict[str, str], BuiltFacts]:
    """Try each activation in each network, and build a run for each value of each grid key.

    Returns:
        Faults by run id, of activations that can be built but not trained, or that end their
        process; and the facts of the builds.

    Raises:
        ActlabError: if a config is invalid.
    """
    deadly: dict[
        str, str
    ] = {}  # faults of activations that ended their process, by case
    tried: list[tuple[str, str]] = []  # cases and names of the activations

    def note(_: str, case: str, name: str) -> None:
        tried.append((case, name))

    # Try again without the activations that ended the process
    while True:
        try:
            faults, built_facts = worker.call(
                "actlab.checks.activation_trial:try_activations", runs, deadly, on=note
            )
            break
        except EndedError as ended:
            if not tried:
                raise
            case, name = tried[-1]
            deadly[case] = untried(name, ended)

    # Name the runs
    faults_by_run = {}
    for run in runs:
        fault = faults.get(key_of(run))
        if fault:
            faults_by_run[run.id] = fault
    return faults_by_run, built_facts


def untried(name: str, ended: EndedError) -> str:
    """Return the fault of an activation whose code has ended the process that tried it."""
    rule = "An activation must return, not exit or crash"
    return f"{name} cannot be tried: the process {ended.ending}. {rule}"
