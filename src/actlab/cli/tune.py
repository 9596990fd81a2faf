"""``actlab tune STUDY``: search an activation's hyperparameters, then compare it on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from actlab.analysis import looks, verdict
from actlab.analysis.points import in_words, plural
from actlab.analysis.results import check_selection
from actlab.cli import study_output
from actlab.engines import stages, tuning
from actlab.engines.running import Engine, run
from actlab.engines.tuning import Search, Trial
from actlab.errors import ActlabError, Parser
from actlab.reports.captions import spans
from actlab.studies import locks
from actlab.studies.reading import ACTIVATION_FORMS, activation, load
from actlab.studies.tuning import Side, Tuning, parse_space, plan

TRIALS, FRESH = 20, "15"


def parser() -> Parser:
    """Return the argument parser of ``actlab tune``."""
    found = Parser(
        prog="actlab tune",
        description="Search arguments of an activation and config keys with Optuna on validation data, then "
        "compare the activation with a reference on fresh seeds. Config keys are searched for the reference "
        "too, with as many trials. The same command resumes a search that was stopped.",
        examples=[
            "actlab tune demo --activation elu --search alpha=0.1..3 --reference gelu",
            "actlab tune demo --activation ./my_activation.py:MyActivation --search slope=0.1..3 "
            "--search model.optimizer.lr=1e-4..1e-2",
        ],
    )
    found.add_argument(
        "file", metavar="FILE", help="a study file, or the name of a study that ships with actlab"
    )
    found.add_argument(
        "--activation",
        required=True,
        metavar="NAME",
        help=f"the activation to tune: {ACTIVATION_FORMS}",
    )
    found.add_argument(
        "--search",
        action="append",
        required=True,
        metavar="KEY=VALUES",
        dest="space",
        help="LOW..HIGH or [a, b, c]; KEY is an argument of the activation, or a dotted config key, which is "
        "searched for the reference too. Whole numbers if both ends are; on a log scale if HIGH / LOW >= 10",
    )
    found.add_argument(
        "--trials", type=int, default=TRIALS, metavar="N", help=f"trials of each activation; default: {TRIALS}"
    )
    found.add_argument(
        "--seeds",
        metavar="N",
        help="seeds of each trial, a number or a range; default: the study's own, those of its first stage",
    )
    found.add_argument(
        "--fresh",
        default=FRESH,
        metavar="N",
        help=f"seeds of the comparison, none of which a trial has; default: {FRESH}, from seed 100",
    )
    found.add_argument(
        "--reference", metavar="NAME", help="the activation to compare with; default: the study's"
    )
    found.add_argument("--smoke", action="store_true", help="train a few updates on samples")
    found.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a config key, or a grid key by one value",
    )
    found.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    return found


def main(argv: Sequence[str]) -> int:
    """Run ``actlab tune``.

    Returns:
        0, or 1 if runs of the comparison failed.

    Raises:
        ActlabError: for bad input, without Optuna, or if a run of the search failed.
    """
    args = parser().parse_args(argv)
    if args.trials < 1:
        raise ActlabError(f"--trials {args.trials}: give a whole number from 1")
    tuning.require_optuna()
    seeds = [] if args.seeds is None else [f"seeds={args.seeds}"]
    study = load(args.file, args.smoke, [*args.overrides, *seeds], staged=False)
    check_selection(study.select.metric)
    reference = study.reference if args.reference is None else activation(args.reference)
    asked = plan(study, activation(args.activation), reference, parse_space(args.space), args.fresh)
    starts = [Trial(side, 0, side.first) for side in asked.sides]
    first = asked.comparison([_point(asked, trial) for trial in starts], [1, 1], ())
    fault, untunable = tuning.faults_of_creation(asked)
    if fault:
        raise ActlabError(f"activation {asked.mine.name} fails: {fault}")
    root = args.runs_dir / first.name
    searches = search(asked, args.trials, root)
    return compare(asked, searches, root, without_untuned=untunable)


def search(asked: Tuning, trials: int, root: Path) -> list[Search]:
    """Train the missing trials of both activations, and print each trial and the best so far.

    Returns:
        The searches of both activations, in the order of `Tuning.sides`.

    Raises:
        ActlabError: if a run failed, or if all trials of an activation diverged.
    """
    metric = asked.study.select.metric
    print(f"searching on {metric}, the best of each run, as a median over {_seeds(asked.study.seeds)}")
    searches = [Search(asked, side) for side in asked.sides]
    for one in searches:
        print(f"  {one.side.name}: {_settings(one.side, trials if one.side.space else 1)}")
    searched = [one for one in searches if one.side.space]
    for batch in tuning.train(asked, searched, trials, root):
        for trial in batch:
            print(f"trial {trial.number + 1}, {_text(trial, metric)}")
        best = "; ".join(_text(one.best, metric) for one in searched if one.finished)
        print(f"best so far: {best}", flush=True)
    for one in searched:
        print(f"chosen of {one.tried}: {_text(one.best, metric)}")
        if math.isinf(one.best.value):
            raise ActlabError(f"all trials of {one.side.name} diverged: search other values")
    return searches


def compare(asked: Tuning, searches: Sequence[Search], root: Path, without_untuned: str | None) -> int:
    """Train and compare the tuned activation, the same as given and the reference; print table and verdict.

    Args:
        asked: the search.
        searches: the finished searches of both activations.
        root: the study's folder.
        without_untuned: why the activation cannot be created with its arguments as given; None if it can.

    Returns:
        1 if runs failed, else 0.
    """
    from actlab.reports import output  # imported lazily: loads templates and figures

    mine, theirs = searches
    points, tried = [_point(asked, mine.best)], [mine.tried]
    if asked.untuned is not None and without_untuned:
        print(f"without {asked.mine.name} as given: {without_untuned}")
    elif asked.untuned is not None:
        points.append(asked.point(asked.untuned, mine.best.values))
        tried.append(mine.tried if asked.reference.space else 1)
    points.append(_point(asked, theirs.best))
    tried.append(theirs.tried)
    study = asked.comparison(points, tried, _notes(asked, searches, len(points) > 2))
    print(f"comparing on fresh {_seeds(asked.fresh)}")
    failed = run(study, root, Engine())
    opened = stages.load(study, root)
    with locks.alone(root, locks.DECIDING):
        looks.record_search(study, root, [one.outcome for one in verdict.verdicts(opened[-1])])
    study_output.show(opened[-1])
    *_, page = output.write(opened, root, html=True)
    print(f"\ntable, figures and page: {page}")
    return int(failed > 0)


def _point(asked: Tuning, trial: Trial) -> dict[str, Any]:
    return asked.point(trial.side.unit(trial.values), trial.values)


def _notes(asked: Tuning, searches: Sequence[Search], with_untuned: bool) -> Iterator[str]:
    """Yield how the settings of the comparison were chosen."""
    tried = ", ".join(f"{one.side.name} tried {_settings(one.side, one.tried)}" for one in searches)
    yield (
        f"Tuned on {_seeds(asked.study.seeds)}, which this table does not use: {tried}. Optuna's TPE sampler "
        f"proposed them; the median over seeds of the best {asked.study.select.metric} chose one for each."
    )
    if with_untuned:
        shared = "; config keys as chosen for the tuned activation" if asked.reference.space else ""
        yield f"{asked.mine.name} without chosen arguments: arguments as given{shared}."


def _settings(side: Side, number: int) -> str:
    """Return a number of settings and the search space in words: ``20 settings (alpha 0.1 to 3)``."""
    space = ", ".join(f"{key} {part}" for key, part in side.space.items())
    return plural(number, "setting") + (f" ({space})" if space else "")


def _text(trial: Trial, metric: str) -> str:
    """Return a trial in words: ``elu, alpha 0.52: val/loss 0.2931``."""
    value = "diverged" if math.isinf(trial.value) else f"{metric} {trial.value:.4g}"
    return f"{trial.side.name}, {in_words(trial.values)}: {value}"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {spans(list(seeds))}"
