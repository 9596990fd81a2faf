"""``actlab scoreboard``: compare a user-defined activation with those of the papers, on the papers' tasks.

``--budget small`` takes minutes: embedded samples, narrow networks, five epochs, two seeds, one learning rate.
It shows that an activation trains on every task, not which activation is best. ``--budget paper`` runs the full
studies whose data is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.cli import study_output
from actlab.engines.checking import check
from actlab.engines.running import Engine, run
from actlab.errors import ActlabError, Parser, unknown
from actlab.studies.plan import Study
from actlab.studies.reading import load

TASKS = {  # study → required dataset
    "gelu_mnist_classifier": "mnist",
    "gelu_mnist_autoencoder": "mnist",
    "gelu_twitter_pos": "twitter_pos",
    "gelu_timit": "timit",
    "gelu_cifar10": "cifar10",
    "gelu_cifar100": "cifar100",
}
BUDGETS = ("small", "paper")
DATA = tuple(dict.fromkeys(TASKS.values()))
_SMALL = {"trainer.max_epochs": 5, "trainer.limit_train_batches": 1.0}
_LR, _USUAL = "model.optimizer.lr", 1e-3


def parser() -> Parser:
    """Return the argument parser of ``actlab scoreboard``."""
    found = Parser(
        prog="actlab scoreboard",
        description="Compare your activation with those of the papers, on the papers' tasks. "
        "--budget small takes minutes: embedded samples, narrow networks, five epochs, two seeds, one learning "
        "rate. It shows that an activation trains on every task, not which is best. --budget paper runs the "
        "full studies whose data is given.",
        examples=[
            "actlab scoreboard --activation ./my_unit.py:MyUnit",
            "actlab scoreboard --activation silu --activation '{name: elu, alpha: 0.5}'",
            "actlab scoreboard --activation ./my_unit.py:MyUnit --budget paper --data mnist=FOLDER",
        ],
    )
    found.add_argument(
        "--activation",
        action="append",
        required=True,
        dest="activations",
        metavar="NAME",
        help="your activation: a name, package.module:Unit, ./file.py:Unit, '{name: elu, alpha: 0.5}'",
    )
    found.add_argument("--budget", choices=BUDGETS, default="small", help="default: small")
    found.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help=f"folder or hub id of a dataset; NAME is one of {', '.join(DATA)}",
    )
    found.add_argument(
        "--runs-dir", type=Path, metavar="DIR", help="default: runs/scoreboard-small or runs/scoreboard-paper"
    )
    return found


def main(argv: Sequence[str]) -> int:
    """Run ``actlab scoreboard``.

    Returns:
        0, or 1 if runs failed.

    Raises:
        ActlabError: for bad input, or if no task has its data.
    """
    args = parser().parse_args(argv)
    runs = args.runs_dir or Path("runs") / f"scoreboard-{args.budget}"
    data = folders(args.data)
    studies = [
        small(name, args.activations) if args.budget == "small" else paper(name, args.activations, data[needed])
        for name, needed in TASKS.items()
        if args.budget == "small" or needed in data
    ]
    if not studies:
        raise ActlabError(
            f"--budget paper needs data: give --data NAME=FOLDER, where NAME is one of {', '.join(DATA)}; "
            "`actlab data list` prints how to get them"
        )
    for study in studies:
        check(study)
    failed = 0
    for study in studies:
        root = runs / study.name
        failed += run(study, root, Engine())
        study_output.write(study_output.load(study, root), root, html=True)
    from actlab.analysis.scoreboard import read
    from actlab.reports.pages import index
    from actlab.reports.terminal import print_boards

    print()
    print_boards(read(runs).records)
    if args.budget == "paper" and (without := [name for name, needed in TASKS.items() if needed not in data]):
        print(f"skipped, because --data is missing: {', '.join(without)}")
    print(index.write(runs))
    return int(failed > 0)


def folders(given: Sequence[str]) -> dict[str, str]:
    """Return the folder of each dataset by name.

    Args:
        given: values of ``--data``, each ``NAME=FOLDER``.

    Raises:
        ActlabError: for a malformed value or an unknown name.
    """
    found = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not (equals and folder):
            raise ActlabError(f"--data {text!r}: give NAME=FOLDER")
        if name not in DATA:
            raise unknown("dataset", name, DATA)
        found[name] = folder
    return found


def small(name: str, activations: Sequence[str]) -> Study:
    """Return a short version of a study: on samples, with one learning rate."""
    full = load(name)
    rates = full.blocks[0].grid.get(_LR)
    rate = {_LR: _USUAL if _USUAL in rates else rates[0]} if rates else {}
    overrides = [f"{key}={value}" for key, value in {**_SMALL, **rate}.items()]
    brief = load(name, smoke=True, overrides=overrides, activations=activations)
    return replace(
        brief,
        name=name,
        title=f"{full.title}: on samples",
        stages=(),
        published={},
        cut="",
        figures=tuple(map(_without_published, brief.figures)),
        notes=("On samples and with narrow networks: nothing here says which unit is best.",),
    )


def _without_published(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a figure without published curves, their axis limits and its caption."""
    theirs = ("published", "ylim", "caption")
    panels = [{k: v for k, v in panel.items() if k not in theirs} for panel in figure.get("panels", ())]
    own = {key: value for key, value in figure.items() if key not in theirs}
    return {**own, "panels": panels} if panels else own


def paper(name: str, activations: Sequence[str], dataset: str) -> Study:
    """Return the full study on the given dataset."""
    return load(name, overrides=[f"data.dataset={dataset}"], activations=activations)
