"""Running a study: stage by stage, what is unfinished is trained, then probes are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from filelock import FileLock

from actlab.analysis.reading import costs
from actlab.engines import sharing
from actlab.engines.folders import RunFolder
from actlab.engines.formats import Cost
from actlab.files import DamagedError
from actlab.studies import stages
from actlab.studies.groups import groups, of_each_value
from actlab.studies.keys import identity, is_rate, label, priced
from actlab.studies.plan import Run, Study
from actlab.studies.progress import Display

if TYPE_CHECKING:
    from actlab.experiments import Experiment


class Engine(NamedTuple):
    """How runs are executed.

    Args:
        stacked: train runs that differ in seed or settings alone as stacks; else all one by one.
        max_stack: most runs in one stack; found from memory and measurement when not given.
        logger: makes a Lightning logger for a run; every member of a stack has its own.
        jobs: number of processes that train; by default one a core in a long study.
    """

    stacked: bool = True
    max_stack: int | None = None
    logger: Callable[[Run], Any] | None = None
    jobs: int | None = None


def run(study: Study, root: Path, engine: Engine, only: str | None = None) -> bool:
    """Train every unfinished run of a study, stage by stage, and evaluate its probes.

    Args:
        study: what to run.
        root: its folder.
        engine: how.
        only: the name of the one stage to run, at what has been selected for it.

    Returns:
        False in a process that Lightning has started for a further device, which has nothing to show.

    Raises:
        ActlabError: for a bad config, unit or dataset, or a stage that cannot be run yet.
    """
    from actlab.engines import queue

    if queue.is_further_device():
        from actlab.engines.settings import quiet

        with quiet():
            runs = [r for stage in stages.opened(study, root) for r in stage.runs()]
            queue.train_as_further_device(runs, root)
        return False
    if only is not None:
        run_stage(stages.until(study, root, only)[-1], root, engine)
        return True
    number = 0
    while number < len(ready := stages.opened(study, root)):
        for stage in ready[number:]:
            run_stage(stage, root, engine)
        number = len(ready)
    if number < len(study.stages):
        print(f"stage {study.stages[number].name} opens when every run before it has ended")
    return True


def run_stage(study: Study, root: Path, engine: Engine) -> None:
    """Train what is unfinished of one stage, then evaluate its probes."""
    runs = study.runs()
    for run in runs:
        RunFolder(root, run).tidy()
    todo = unfinished(runs, root)
    if todo:
        with deciding(root):
            taken = sharing.take(todo, root)
        for name, number in taken.items():
            print(f"{number} runs are those of {root.parent / name}")
        todo = unfinished(todo, root)
    print(f"{study.name}: {len(runs)} runs, {len(runs) - len(todo)} finished, {len(todo)} to run, in {root}")
    if former := unlike(runs, root):
        print(f"{len(former)} finished runs there have other settings, data or code; they do not count")
    if not todo and not study.probes and not uncosted(study, root):
        return
    from actlab.engines import cost, probes
    from actlab.engines.settings import quiet

    with quiet():
        for probe in study.probes:
            probes.made(probe)
        if todo:
            train(study, todo, root, engine)
        if unknown := uncosted(study, root):
            rounds = 1 if study.smoke else cost.ROUNDS
            tuned = list(filter(is_rate, study.select.tune))
            measured = cost.measure(unknown, study.compare, study.reference, tuned, rounds=rounds)
            cost.write(measured, root, kept=_costs(root))
        probes.execute(runs, root, study.probes, print)


def unfinished(runs: Sequence[Run], root: Path) -> list[Run]:
    """Those that have neither reached their last epoch nor diverged."""
    return [run for run in runs if not RunFolder(root, run).finished]


def uncosted(study: Study, root: Path) -> list[Run]:
    """The finished runs, if what one of their grid points costs has not been measured; else none.

    Points that differ in a learning rate alone cost the same.
    """
    if not study.reference:
        return []
    known = {entry["run"] for entry in _costs(root)}
    finished = {run.id: run for run in study.runs() if RunFolder(root, run).finished}
    alike: dict[str, set[str]] = {}
    for number, group in enumerate(groups(study)):
        for setting in group.settings:
            alike.setdefault(f"{number} {identity(priced(setting.tuned))}", set()).update(
                r.id for r in setting.runs
            )
    unknown = any(runs & finished.keys() and not runs & known for runs in alike.values())
    return list(finished.values()) if unknown else []


def _costs(root: Path) -> list[Cost]:
    """What has been measured; nothing where that is damaged, so that it is measured anew."""
    try:
        return costs(root)
    except DamagedError:
        return []


def unlike(runs: Sequence[Run], root: Path) -> list[str]:
    """Finished runs that are called like some of these but were made of something else."""
    names = {run.id for run in runs}
    alike = {name.rpartition("-")[0] for name in names}
    found = [path.parent.name for path in root.glob("*/result.json")]
    return [name for name in found if name not in names and name.rpartition("-")[0] in alike]


def train(study: Study, todo: Sequence[Run], root: Path, engine: Engine) -> None:
    """Train runs, in stacks where that applies."""
    from actlab import experiments
    from actlab.engines import packing, queue, settings, sizing, workers

    faults = faults_of(todo)
    for run in (run for run in todo if run.id in faults):
        RunFolder(root, run).fail(faults[run.id])
    for fault in dict.fromkeys(faults.values()):
        print(f"{fault}; its {list(faults.values()).count(fault)} runs are left out")
    todo = [run for run in todo if run.id not in faults]
    if not todo:
        return
    first = experiments.build(todo[0].config)
    per_epoch, single = updates_per_epoch(first), first.trainer.world_size == 1
    updates = sum((r.epochs or 1) * (per_epoch or 1) for r in todo)
    with deciding(root):
        chosen, said = settings.decide(root, updates, engine.jobs, single)
        if chosen.jobs > 1:
            workers.start_server()
        size_of = partial(
            sizing.size_of,
            most=engine.max_stack,
            by_time=updates >= settings.LONG,
            settings=chosen,
            known={},
        )
        runs = [run for run in study.runs() if run.id not in faults]
        packed = packing.pack(runs, root, size_of, engine.stacked, chosen)
    for line in said:
        print(line)
    for reason in packed.reasons:
        print(f"one by one instead of stacked: {reason}")
    with Display(todo, root, study.select) as display:
        if chosen.jobs > 1 and len(packed.jobs) > 1:
            busy = workers.work(packed.jobs, root, display, chosen, engine.logger)
        else:
            busy = queue.work(packed.jobs, root, display, engine.logger)
    if busy:
        number = sum(len(job.runs) for job in busy)
        print(f"{number} runs are being trained by another process; start the study again when it has ended")
    for run in todo:
        if failure := RunFolder(root, run).failure:
            print(f"{run.id} failed: {failure}")


def faults_of(runs: Sequence[Run]) -> dict[str, str]:
    """Build one run for each value of each grid key, so that a mistake shows before anything is trained.

    A unit that could say more of itself is told how to be trained faster.

    Returns:
        What is wrong with units that can be built but not trained, by run id.

    Raises:
        ActlabError: for a mistake in a config.
    """
    from actlab import experiments
    from actlab.engines import trial

    faults: dict[str, str | None] = {}  # by unit, each tried once
    for run in of_each_value(runs):
        experiment = experiments.build(run.config)
        if identity(run.unit) not in faults:
            hint = trial.hint_of(experiment, label(run.unit))
            faults[identity(run.unit)] = fault = trial.fault_of(experiment, label(run.unit))
            if hint and not fault:
                print(hint)
    return {run.id: fault for run in runs if (fault := faults.get(identity(run.unit)))}


def updates_per_epoch(experiment: Experiment) -> int | None:
    """Number of training batches, from the data; None where the data does not know it."""
    trainer, _, data = experiment
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    batches = len(loader) if isinstance(loader, Sized) else None
    limit = trainer.limit_train_batches
    return min(batches, limit) if batches and isinstance(limit, int) else batches


@contextmanager
def deciding(root: Path) -> Iterator[None]:
    """Let one process at a time decide which runs form a stack; the next one finds what was decided."""
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".deciding.lock"):
        yield
