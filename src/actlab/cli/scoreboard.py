"""``actlab scoreboard``: compare a user-defined activation on the papers' tasks and today's networks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from actlab.analysis.statistics import FEWEST
from actlab.analysis.wording import duration
from actlab.checks import configs
from actlab.cli import estimates
from actlab.config.keys import get_dotted
from actlab.engines.running import Engine, run
from actlab.engines.workers import Worker
from actlab.errors import ActlabError, Parser, unknown
from actlab.stages import opening
from actlab.studies.folders import StudyFolder
from actlab.studies.plan import EPOCHS, Study
from actlab.studies.reading import ACTIVATION_FORMS, activation, load
from actlab.studies.seeds import SMOKE_SEEDS


class Needs(NamedTuple):
    """What a study needs on the scoreboard."""

    data: str  # name of its dataset; empty if it needs none
    rate: float | None = 1e-3  # its learning rate in the short budgets; None if the study has only one


TASKS = {
    "gelu_mnist_classifier": Needs("mnist"),
    "gelu_mnist_autoencoder": Needs("mnist"),
    "gelu_twitter_pos": Needs("twitter_pos"),
    "gelu_timit": Needs("timit"),
    "gelu_cifar10": Needs("cifar10"),
    "gelu_cifar100": Needs("cifar100", rate=None),
    "gpt_plain": Needs("wikitext", rate=3e-3),
    "pinn_helmholtz": Needs("", rate=1e-2),
    "inr_image": Needs("cifar10", rate=1e-2),
}
BUDGETS = {"minutes": 15 * 60.0, "hours": 12 * 3600.0, "paper": math.inf}  # seconds that all tasks may take
DATA = tuple(dict.fromkeys(task.data for task in TASKS.values() if task.data))
_DAYS = ("gelu_cifar10", "gelu_cifar100")  # days on a CPU, even with few epochs
_LEARNING_RATE, _UPDATES = "model.optimizer.lr", "data.updates_per_epoch"
_FEW_EPOCHS, _MOST_EPOCHS = 5, 25  # of --budget minutes and hours
_ROUNDS = 2  # of timed updates before the start


def parser() -> Parser:
    """Return the argument parser of ``actlab scoreboard``."""
    command = Parser(
        prog="actlab scoreboard",
        description="Compare your activation with others: the papers' tasks, a GPT, an equation, an image. "
        f"--budget minutes: embedded samples, narrow networks, at most {_FEW_EPOCHS} epochs, two seeds, one "
        "learning rate; it shows that an activation trains on every task, not which is best. --budget hours: "
        f"the studies' networks on the given data, at most {_MOST_EPOCHS} epochs, {FEWEST} seeds, one learning "
        "rate, without classifying CIFAR. --budget paper: the full studies whose data is given. The time is "
        f"estimated before training starts; tasks that do not fit into {_allowed('minutes')} or "
        f"{_allowed('hours')} are left out.",
        examples=[
            "actlab scoreboard --activation ./my_activation.py:MyActivation",
            "actlab scoreboard --activation silu --activation '{name: elu, alpha: 0.5}'",
            "actlab scoreboard --activation ./my_activation.py:MyActivation --budget hours --data mnist=FOLDER",
        ],
    )
    command.add_argument(
        "--activation",
        action="append",
        required=True,
        dest="activations",
        metavar="NAME",
        help=f"your activation: {ACTIVATION_FORMS}",
    )
    command.add_argument("--budget", choices=BUDGETS, default="minutes", help="default: minutes")
    command.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help=f"folder, file or hub id of a dataset; NAME is one of {', '.join(DATA)}",
    )
    command.add_argument("--runs-dir", type=Path, metavar="DIR", help="default: runs/scoreboard-BUDGET")
    return command


def main(argv: Sequence[str]) -> int:
    """Run ``actlab scoreboard``; return 1 if runs failed."""
    args = parser().parse_args(argv)
    runs = args.runs_dir or Path("runs") / f"scoreboard-{args.budget}"
    data = folders(args.data)
    studies = planned(args.budget, [*map(activation, args.activations)], data)
    start, limit = time.monotonic(), BUDGETS[args.budget]
    with Worker() as worker:  # one for all studies, which have the same activations
        for study in studies:
            worker.call(configs.check, study)
        seconds = timed(studies, runs, worker)
    total = f"all tasks: about {duration(sum(seconds.values()))} one by one"
    print(f"{total}; --budget {args.budget} allows {_allowed(args.budget)}", flush=True)
    from actlab.reports import output

    failed, late = 0, list[str]()
    for study in studies:
        if time.monotonic() - start + seconds[study.name] > limit:
            late.append(study.name)
            continue
        folder = StudyFolder(study, runs / study.name)
        failed += run(folder, Engine())
        output.write(opening.load(folder), folder.path, html=True)
    from actlab.analysis.scoreboard import boards, read
    from actlab.reports import boards as files
    from actlab.reports.pages import index
    from actlab.reports.terminal import print_boards

    stored = read(runs)
    print()
    print_boards(stored.records)
    if args.budget != "minutes" and (left := [name for name in TASKS if name not in {s.name for s in studies}]):
        reason = "--data is missing, or days are needed" if args.budget == "hours" else "--data is missing"
        print(f"skipped, because {reason}: {', '.join(left)}")
    if late:
        print(f"left out, because they do not fit into {_allowed(args.budget)}: {', '.join(late)}")
    for path in files.write(boards(stored.records), runs):
        print(path)
    print(index.write(runs, stored))
    return int(failed > 0)


def planned(budget: str, activations: Sequence[Any], data: Mapping[str, str]) -> list[Study]:
    """Return the studies of a budget, with its seeds; ``data`` has the folder or hub id of datasets by name."""
    if budget == "minutes":
        return [replace(minutes(name, activations), more_seeds="") for name in TASKS]
    make, left_out = (hours, _DAYS) if budget == "hours" else (paper, ())
    able = {name: task.data for name, task in TASKS.items() if name not in left_out}
    if data.keys().isdisjoint(able.values()):
        names = ", ".join(dict.fromkeys(filter(None, able.values())))
        raise ActlabError(
            f"--budget {budget} needs data: give --data NAME=FOLDER, where NAME is one of {names}; "
            "`actlab data list` prints how to get them"
        )
    given = {"": {}, **{of: {"data.dataset": folder} for of, folder in data.items()}}
    studies = (make(name, activations, given[of]) for name, of in able.items() if of in given)
    return [replace(study, more_seeds="") for study in studies]


def _allowed(budget: str) -> str:
    return duration(BUDGETS[budget]) if math.isfinite(BUDGETS[budget]) else "any time"


def timed(studies: Sequence[Study], runs: Path, worker: Worker) -> dict[str, float]:
    """Print and return how many seconds each study will take, from updates timed on this machine."""
    times = dict[str, float]()
    for study in studies:
        begun = time.monotonic()
        try:
            updates = estimates.remaining(StudyFolder(study, runs / study.name), worker, _ROUNDS)
        except estimates.NoEstimateError as reason:
            print(f"{study.name}: {reason}")
        else:
            # All else takes about twice as long as trying and timing the updates here.
            times[study.name] = updates + 2 * (time.monotonic() - begun)
            print(f"{study.name}: about {duration(times[study.name])}")
    mean = sum(times.values()) / max(1, len(times))
    if unknown := [study.name for study in studies if study.name not in times]:
        print(f"not timed, counted as the mean of the others: {', '.join(unknown)}")
    return {study.name: times.get(study.name, mean) for study in studies}


def folders(given: Sequence[str]) -> dict[str, str]:
    """Return the folder of each dataset by name, from the values of ``--data``."""
    named = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not (equals and folder):
            raise ActlabError(f"--data {text!r}: give NAME=FOLDER")
        if name not in DATA:
            raise unknown("dataset", name, DATA)
        named[name] = folder
    return named


def minutes(name: str, activations: Sequence[Any]) -> Study:
    """Return a study on samples, with narrow networks and one learning rate."""
    whole = load(name).blocks[0].config({})
    changes = {EPOCHS: min(get_dotted(whole, EPOCHS), _FEW_EPOCHS), "trainer.limit_train_batches": 1.0}
    if updates := get_dotted(whole, _UPDATES):  # schedules have the length of all of them
        # A whole number counts as cut down, as samples do, also where there is no sample: for an equation.
        changes |= {_UPDATES: updates, "trainer.limit_train_batches": updates}
    settings = {**changes, "seeds": SMOKE_SEEDS, **_rate(name)}
    brief = load(name, smoke=True, activations=activations, settings=settings, staged=False)
    note = "On samples and with narrow networks: nothing here says which activation is best."
    return _shortened(replace(brief, name=name, cut=""), "on samples", note)


def hours(name: str, activations: Sequence[Any], dataset: Mapping[str, Any]) -> Study:
    """Return a study on a given dataset with fewer epochs and seeds, and one learning rate."""
    epochs = get_dotted(load(name).blocks[0].config({}), EPOCHS)
    settings = {**dataset, EPOCHS: min(epochs, _MOST_EPOCHS), "seeds": FEWEST, **_rate(name)}
    brief = load(name, activations=activations, settings=settings, staged=False)
    note = (
        f"At one learning rate, for at most {_MOST_EPOCHS} epochs: --budget paper trains as long as the study "
        "and selects learning rates on validation data."
    )
    return _shortened(brief, "in hours", note)


def _rate(name: str) -> dict[str, float]:
    rate = TASKS[name].rate
    return {} if rate is None else {_LEARNING_RATE: rate}


def _shortened(brief: Study, how: str, note: str) -> Study:
    return replace(
        brief,
        title=f"{brief.title}: {how}",
        published={},
        figures=tuple(map(_without_published, brief.figures)),
        notes=(note,),
    )


def _without_published(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a figure, or a panel of one, without published curves, their axis limits and its caption."""
    kept = {key: value for key, value in figure.items() if key not in ("published", "ylim", "caption")}
    return {**kept, "panels": [*map(_without_published, kept["panels"])]} if kept.get("panels") else kept


def paper(name: str, activations: Sequence[Any], dataset: Mapping[str, Any]) -> Study:
    """Return the full study on a given dataset."""
    return load(name, activations=activations, settings=dataset)
