"""``actlab study plan | run | show | report FILE``."""

from __future__ import annotations

import inspect
import json
import logging
import pydoc
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from actlab.engines.folders import RunFolder, write_atomically
from actlab.errors import ActlabError, Parser
from actlab.studies import plan
from actlab.studies.plan import Run, Study
from actlab.studies.progress import Display

ENGINES = ("auto", "sequential")
LONG = 20_000  # updates from which compiling the masks and timing sizes of stacks pays


def parser() -> Parser:
    """The command line of ``actlab study``."""
    top = Parser(prog="actlab study", description="Plan, run and compare the runs of a study file.")
    commands = top.add_subparsers(dest="command", required=True, metavar="plan|run|show|report")
    about = {
        "plan": "list the runs and what they cost",
        "run": "train what is unfinished, then print the table",
        "show": "print the table: medians over seeds, intervals, published values",
        "report": "draw the figures beside the published curves",
    }
    for name, text in about.items():
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument(
            "file", metavar="FILE", help="a study file, or the name of one that travels with actlab"
        )
        sub.add_argument("--smoke", action="store_true", help="on samples, in seconds; under runs/FILE-smoke")
        sub.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            dest="overrides",
            help="override a config key, a grid key (one value or a list) or seeds",
        )
        sub.add_argument(
            "--activation",
            action="append",
            default=[],
            metavar="NAME",
            dest="activations",
            help="add a unit to the grid: a name, package.module:Unit, ./file.py:Unit, "
            "'{name: elu, alpha: 0.5}'",
        )
        sub.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
        if name == "run":
            sub.add_argument("--report", action="store_true", help="draw the figures as well")
            sub.add_argument(
                "--engine",
                choices=ENGINES,
                default="auto",
                help="auto: stack runs where that applies, say where not",
            )
            sub.add_argument("--logger", metavar="CLASS", help="a Lightning logger for each run")
            sub.add_argument("--max-stack", type=int, metavar="R", help="most runs in one stack")
    return top


def main(argv: Sequence[str]) -> None:
    """Run ``actlab study`` with the words after it.

    Raises:
        ActlabError: for bad input.
    """
    args = parser().parse_args(argv)
    study = plan.load(args.file, args.smoke, args.overrides, args.activations)
    root = args.runs_dir / study.name
    if args.command == "plan":
        show_plan(study, root)
    elif args.command == "run":
        run(study, root, args.engine, args.max_stack, logger_factory(args.logger, study, root))
        show(study, root)
        if args.report:
            report(study, root)
    elif args.command == "show":
        show(study, root)
    else:
        report(study, root)


def run(
    study: Study,
    root: Path,
    engine: str = "auto",
    max_stack: int | None = None,
    logger: Callable[[Run], Any] | None = None,
) -> None:
    """Train every unfinished run of a study.

    Args:
        study: what to run.
        root: its folder.
        engine: ``auto`` trains runs that differ in seed, learning rate, weight decay or dropout as stacks and
            the rest one by one; ``sequential`` trains all one by one.
        max_stack: most runs in one stack; found from memory and measurement when not given.
        logger: makes a Lightning logger for a run; every member of a stack has its own.

    Raises:
        ActlabError: for a bad config, unit or dataset, or when another process runs the study.
    """
    if max_stack is not None and max_stack < 1:
        raise ActlabError(f"--max-stack {max_stack}: give a whole number from 1")
    runs = study.runs()
    todo = [r for r in runs if not RunFolder(root, r).finished]
    print(f"{study.name}: {len(runs)} runs, {len(runs) - len(todo)} finished, {len(todo)} to run, in {root}")
    if not todo:
        return
    from actlab.engines import cost, sequential, stacked
    from actlab.engines.packing import Stack, plan_stacks
    from actlab.experiments import without_denormals

    with quiet(), only_one(root), without_denormals():
        check(todo)
        updates = updates_per_epoch(todo[0]) * sum(epochs(r) for r in todo)
        compile_masks(root, updates)
        stacks: list[Stack] = []
        alone, reasons = todo, set[str]()
        if engine == "auto":
            find_size = stacked.find_size if updates >= LONG else None
            stacks, alone, reasons = plan_stacks(runs, root, max_stack, find_size)
        for reason in reasons:
            print(f"one by one instead of stacked: {reason}")
        with Display(todo) as display:
            stacked.execute(runs, stacks, root, display, logger)
            sequential.execute(alone, root, display, logger)
        if study.reference:
            cost.write(cost.measure(runs, study.reference), root)


def compile_masks(root: Path, updates: int) -> None:
    """Compile the mask functions for a long study; a restart does as the first start did."""
    from actlab import streams

    path = root / "engine.json"
    decided = json.loads(path.read_text(encoding="utf-8"))["compiled"] if path.exists() else None
    wanted = updates >= LONG if decided is None else decided
    reason = streams.compile_masks() if wanted else None
    if reason and decided:
        reason += "; when the study was started they were compiled, so last digits may differ from then on"
    if reason:
        print(reason)
    if decided is None:
        write_atomically(path, json.dumps({"compiled": wanted and not reason}) + "\n")


def logger_factory(name: str | None, study: Study, root: Path) -> Callable[[Run], Any] | None:
    """Makes loggers of a class, each named after its run, grouped by study and given the run's config.

    Raises:
        ActlabError: when ``name`` is no class of Lightning loggers.
    """
    if name is None:
        return None
    from pytorch_lightning.loggers import Logger

    found = pydoc.locate(name)
    if not (isinstance(found, type) and issubclass(found, Logger)):
        raise ActlabError(
            f"--logger {name!r} is no Lightning logger class; one is actlab.reports.wandb.RunLogger"
        )
    accepted = inspect.signature(found).parameters

    def make(run: Run) -> Any:
        settings = {"save_dir": str(root), "name": run.id, "group": study.name}
        logger = found(**{key: value for key, value in settings.items() if key in accepted})
        logger.log_hyperparams(run.config)
        return logger

    return make


def epochs(run: Run) -> int:
    """How many epochs a run trains."""
    return int(plan.get_dotted(run.config, "trainer.max_epochs", 1))


def check(runs: Sequence[Run]) -> None:
    """Build one run for each value of each grid key, so that a typo is told before anything is trained."""
    from actlab import experiments

    seen: set[str] = set()
    for run in runs:
        values = {f"{key}={value}" for key, value in run.point.items()}
        if values - seen:
            experiments.build(run.config)
            seen |= values


def show_plan(study: Study, root: Path) -> None:
    """List the runs with their state, and what is left to do costs."""
    from actlab.engines import cost

    runs = study.runs()
    states = {
        r.id: "finished" if (f := RunFolder(root, r)).finished else "started" if f.started else "to run"
        for r in runs
    }
    for r in runs:
        print(f"{states[r.id]:<9}{r.id}")
    todo = [r for r in runs if states[r.id] != "finished"]
    left = sum(epochs(r) for r in todo)
    print(f"{study.name}: {len(runs)} runs, {len(todo)} not finished, {left} epochs of training left")
    if not todo:
        return
    with quiet():
        check(todo)
        seconds = {
            c["activation"]: c["seconds_per_update"] for c in cost.measure(runs, study.reference, rounds=8)
        }
        updates = updates_per_epoch(todo[0])
    total = sum(seconds[plan.label(r.point.get(plan.ACTIVATION, ""))] * updates * epochs(r) for r in todo)
    print(f"about {duration(total)} one by one, updates alone ({updates} updates an epoch, timed just now)")


def updates_per_epoch(run: Run) -> int:
    """Number of training batches, from the data."""
    from actlab import experiments

    data: Any = experiments.build(run.config).data
    data.setup("fit")
    limit = plan.get_dotted(run.config, "trainer.limit_train_batches")
    batches = len(data.train_dataloader())
    return min(batches, limit) if isinstance(limit, int) else batches


def show(study: Study, root: Path) -> None:
    """Print the table."""
    from actlab.analysis import results
    from actlab.reports import tables

    tables.print_table(results.load(study, root), sys.stdout)


def report(study: Study, root: Path) -> None:
    """Write the table and the figures into the study's folder and say where."""
    from actlab.analysis import results
    from actlab.reports import figures, tables

    loaded = results.load(study, root)
    drawn = figures.draw(loaded, root / "figures")
    for path in [*tables.write(loaded, root), *drawn]:
        print(path)


def duration(seconds: float) -> str:
    """Seconds for people: ``42 s``, ``5 min``, ``1 h 20 min``."""
    minutes = round(seconds / 60)
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{minutes} min"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Refuse to run a study that another process is running."""
    root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(root / ".lock", timeout=0):
            yield
    except Timeout:
        raise ActlabError(f"another process is running the study in {root}; wait for it or stop it") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's announcements of every single run off the screen."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
