"""``actlab scoreboard``: compare a user-defined activation with those of the papers, on the papers' tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.analysis.statistics import FEWEST
from actlab.cli import estimates
from actlab.config.keys import get_dotted
from actlab.engines import requests, stages
from actlab.engines.running import Engine, run
from actlab.engines.workers import Worker
from actlab.errors import ActlabError, Parser, unknown
from actlab.studies.plan import EPOCHS, Study
from actlab.studies.reading import ACTIVATION_FORMS, activation, load
from actlab.studies.seeds import SMOKE_SEEDS

TASKS = {  # study → required dataset
    "gelu_mnist_classifier": "mnist",
    "gelu_mnist_autoencoder": "mnist",
    "gelu_twitter_pos": "twitter_pos",
    "gelu_timit": "timit",
    "gelu_cifar10": "cifar10",
    "gelu_cifar100": "cifar100",
}
BUDGETS = ("minutes", "hours", "paper")
DATA = tuple(dict.fromkeys(TASKS.values()))
_DAYS = ("gelu_cifar10", "gelu_cifar100")  # days on a CPU, even with few epochs
_MINUTES = {"trainer.max_epochs": 5, "trainer.limit_train_batches": 1.0, "seeds": SMOKE_SEEDS}
_LEARNING_RATE, _USUAL = "model.optimizer.lr", 1e-3
_MOST_EPOCHS = 25  # of --budget hours
_ROUNDS = 2  # of timed updates before the start


def parser() -> Parser:
    """Return the argument parser of ``actlab scoreboard``."""
    found = Parser(
        prog="actlab scoreboard",
        description="Compare your activation with those of the papers, on the papers' tasks. "
        "--budget minutes: embedded samples, narrow networks, five epochs, two seeds, one learning rate; it "
        "shows that an activation trains on every task, not which is best. --budget hours: the papers' "
        f"networks on the given data, at most {_MOST_EPOCHS} epochs, {FEWEST} seeds, one learning rate, "
        "without CIFAR. --budget paper: the full studies whose data is given. The time is estimated before "
        "training starts.",
        examples=[
            "actlab scoreboard --activation ./my_activation.py:MyActivation",
            "actlab scoreboard --activation silu --activation '{name: elu, alpha: 0.5}'",
            "actlab scoreboard --activation ./my_activation.py:MyActivation --budget hours --data mnist=FOLDER",
        ],
    )
    found.add_argument(
        "--activation",
        action="append",
        required=True,
        dest="activations",
        metavar="NAME",
        help=f"your activation: {ACTIVATION_FORMS}",
    )
    found.add_argument("--budget", choices=BUDGETS, default="minutes", help="default: minutes")
    found.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help=f"folder or hub id of a dataset; NAME is one of {', '.join(DATA)}",
    )
    found.add_argument("--runs-dir", type=Path, metavar="DIR", help="default: runs/scoreboard-BUDGET")
    return found


def main(argv: Sequence[str]) -> int:
    """Run ``actlab scoreboard``; return 1 if runs failed."""
    args = parser().parse_args(argv)
    runs = args.runs_dir or Path("runs") / f"scoreboard-{args.budget}"
    data = folders(args.data)
    studies = planned(args.budget, [*map(activation, args.activations)], data)
    with Worker() as worker:  # one for all studies, which have the same activations
        for study in studies:
            worker.call(requests.check, study)
        tell_time(studies, runs, worker)
    from actlab.reports import output

    failed = 0
    for number, study in enumerate(studies):
        root = runs / study.name
        failed += run(study, root, Engine(hints=number == 0))
        output.write(stages.load(study, root), root, html=True)
    from actlab.analysis.scoreboard import boards, read
    from actlab.reports import boards as files
    from actlab.reports.pages import index
    from actlab.reports.terminal import print_boards

    found = read(runs)
    print()
    print_boards(found.records)
    if args.budget != "minutes" and (left := [name for name in TASKS if name not in {s.name for s in studies}]):
        reason = "--data is missing, or days are needed" if args.budget == "hours" else "--data is missing"
        print(f"skipped, because {reason}: {', '.join(left)}")
    for path in files.write(boards(found.records), runs):
        print(path)
    print(index.write(runs, found))
    return int(failed > 0)


def planned(budget: str, activations: Sequence[Any], data: Mapping[str, str]) -> list[Study]:
    """Return the studies of a budget, with its seeds; ``data`` has the folder or hub id of datasets by name."""
    if budget == "minutes":
        return [replace(minutes(name, activations), more_seeds="") for name in TASKS]
    make, left_out = (hours, _DAYS) if budget == "hours" else (paper, ())
    able = {name: needed for name, needed in TASKS.items() if name not in left_out}
    if not (found := [make(name, activations, data[of]) for name, of in able.items() if of in data]):
        names = ", ".join(dict.fromkeys(able.values()))
        raise ActlabError(
            f"--budget {budget} needs data: give --data NAME=FOLDER, where NAME is one of {names}; "
            "`actlab data list` prints how to get them"
        )
    return [replace(study, more_seeds="") for study in found]


def tell_time(studies: Sequence[Study], runs: Path, worker: Worker) -> None:
    """Print how long each study and all of them will take, from updates timed on this machine."""
    from actlab.reports.notes import duration

    total = 0.0
    for study in studies:
        try:
            seconds = estimates.remaining(study, runs / study.name, worker, _ROUNDS)
        except estimates.NoEstimateError as reason:
            print(f"{study.name}: {reason}")
        else:
            total += seconds
            print(f"{study.name}: about {duration(seconds)}")
    print(f"all tasks: about {duration(total)} one by one, for updates only (timed just now)", flush=True)


def folders(given: Sequence[str]) -> dict[str, str]:
    """Return the folder of each dataset by name, from the values of ``--data``."""
    found = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not (equals and folder):
            raise ActlabError(f"--data {text!r}: give NAME=FOLDER")
        if name not in DATA:
            raise unknown("dataset", name, DATA)
        found[name] = folder
    return found


def minutes(name: str, activations: Sequence[Any]) -> Study:
    """Return a study on samples, with narrow networks and one learning rate."""
    changes = _settings(name, _MINUTES)
    brief = load(name, smoke=True, activations=activations, settings=changes, staged=False)
    note = "On samples and with narrow networks: nothing here says which activation is best."
    return _shortened(replace(brief, name=name, cut=""), "on samples", note)


def hours(name: str, activations: Sequence[Any], dataset: str) -> Study:
    """Return a study on the given dataset with fewer epochs and seeds, and one learning rate."""
    epochs = get_dotted(load(name).blocks[0].config({}), EPOCHS)
    changes = {"data.dataset": dataset, EPOCHS: min(epochs, _MOST_EPOCHS), "seeds": FEWEST}
    brief = load(name, activations=activations, settings=_settings(name, changes), staged=False)
    note = (
        f"At one learning rate, for at most {_MOST_EPOCHS} epochs: --budget paper trains as long as the paper "
        "and selects learning rates on validation data."
    )
    return _shortened(brief, "in hours", note)


def _settings(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes of a study, with one learning rate if the study has several."""
    rates = load(name).blocks[0].grid.get(_LEARNING_RATE)
    rate = {_LEARNING_RATE: _USUAL if _USUAL in rates else rates[0]} if rates else {}
    return {**changes, **rate}


def _shortened(brief: Study, how: str, note: str) -> Study:
    """Return a study without what was published for the whole one."""
    return replace(
        brief,
        title=f"{brief.title}: {how}",
        published={},
        figures=tuple(map(_without_published, brief.figures)),
        notes=(note,),
    )


def _without_published(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a figure, or a panel of one, without published curves, their axis limits and its caption."""
    own = {key: value for key, value in figure.items() if key not in ("published", "ylim", "caption")}
    return {**own, "panels": [*map(_without_published, own["panels"])]} if own.get("panels") else own


def paper(name: str, activations: Sequence[Any], dataset: str) -> Study:
    """Return the full study on the given dataset."""
    return load(name, activations=activations, settings={"data.dataset": dataset})
