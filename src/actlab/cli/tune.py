"""``actlab tune STUDY``: search an activation's hyperparameters, then compare it on fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from actlab.cli import study_output
from actlab.config.keys import check_order, short
from actlab.config.values import label, plain_unit, same, value_key
from actlab.engines import stages
from actlab.engines.requests import faults_of_creation
from actlab.engines.running import Engine, run
from actlab.engines.search import require_optuna, settings, sides
from actlab.engines.workers import EndedError
from actlab.errors import ActlabError, Parser
from actlab.reports.captions import spans
from actlab.storage.mappings import parse
from actlab.studies import locks
from actlab.studies.folders import RunFolder
from actlab.studies.plan import SMOKE_SUFFIX, UNIT, Stage, Study
from actlab.studies.reading import ACTIVATION_FORMS, activation, load
from actlab.studies.seeds import seed_list
from actlab.studies.spaces import FORMS, Search, Space, parse_space
from actlab.studies.states import OVER, state_of

TRIALS, FRESH = 20, "15"
FIRST_FRESH = 100  # first fresh seed if only their number is given, unless the search uses higher seeds

Spaces = dict[str, Space]


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
    study_output.add_study_options(found)
    found.add_argument(
        "--activation", required=True, metavar="NAME", help=f"the activation to tune: {ACTIVATION_FORMS}"
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
    found.add_argument("--jobs", type=int, metavar="N", help="training processes, as for `actlab study run`")
    return found


def main(argv: Sequence[str]) -> int:
    """Run ``actlab tune``; return 1 if runs failed.

    Raises:
        ActlabError: for bad input, without Optuna, or if each side of the search has a failed run.
    """
    args = parser().parse_args(argv)
    if args.trials < 1:
        raise ActlabError(f"--trials {args.trials}: give a whole number from 1")
    require_optuna()
    seeds = [] if args.seeds is None else [f"seeds={args.seeds}"]
    study = load(args.file, args.smoke, [*args.overrides, *seeds], staged=False)
    unit = activation(args.activation)
    reference = study.reference if args.reference is None else activation(args.reference)
    engine = Engine(jobs=args.jobs)
    planned = plan(study, unit, reference, _spaces(args.space), args.trials, args.fresh)
    study, untunable = as_given(planned, engine)
    root = args.runs_dir / study.name
    search, compared = study.stages
    assert search.search is not None
    rule = study.select
    print(f"searching on {rule.metric}, the {rule.at} of each run, as a median over {_seeds(search.seeds)}")
    for side in sides(study, search.search):
        print(f"  {side.name}: {settings(side, search.search.trials if side.space else 1)}")
    if untunable:
        print(f"without {label(unit)} as given: {untunable}")
    failed = run(study, root, engine)
    opened = stages.load(study, root)
    if len(opened) < len(study.stages):
        states = [state_of(RunFolder(root, one)) for one in opened[0].runs]
        reasons = [state.reason for state in states if state.reason]
        if all(state.kind in OVER for state in states):
            reasons.append("all trials diverged: search other values")
        raise ActlabError(next(iter(reasons), "another process trains runs of the search: repeat the command"))
    with locks.alone(root, locks.DECIDING):
        study_output.record_look(opened[-1])
    print(f"compared on fresh {_seeds(compared.seeds)}")
    study_output.show(opened[-1])
    from actlab.reports import output  # imported lazily: loads templates and figures

    *_, page = output.write(opened, root, html=True)
    print(f"\ntable, figures and page: {page}")
    return int(failed > 0)


def as_given(study: Study, engine: Engine) -> tuple[Study, str | None]:
    """Return a study that compares the activation also as given if it can be created so, and why not or None.

    Raises:
        ActlabError: if it cannot be created with searched values.
    """
    stage = study.stages[0]
    assert stage.search is not None
    if not stage.search.arguments:
        return study, None
    mine = sides(study, stage.search)[0]
    first = mine.at({key: space.ends[0] for key, space in mine.space.items()})
    with engine.worker() as worker:
        try:
            units = [point[study.compare] for point in (first, mine.point)]
            fault, untunable = worker.call(faults_of_creation, units)
        except EndedError as ended:
            raise ActlabError(f"activation {mine.name} cannot be tried: the process {ended.how}") from ended
    if fault:
        raise ActlabError(f"activation {mine.name} fails: {fault}")
    changed = replace(stage, search=replace(stage.search, as_given=not untunable))
    return replace(study, stages=(changed, *study.stages[1:])), untunable


def plan(study: Study, unit: Any, reference: Any, spaces: Spaces, trials: int, fresh: str) -> Study:
    """Return a study of two stages: a search for an activation and for a reference, and their comparison.

    Raises:
        ActlabError: for a study with several blocks, without activations or with further grid keys of several
            values, for a key that cannot be searched, or for seeds that the search uses too.
    """
    keys = [key for key in study.keys if short(key) == UNIT]
    if len(study.blocks) > 1 or len(keys) != 1:
        raise ActlabError(
            f"{study.name} cannot be tuned: give a study with one grid, one key of which is an activation"
        )
    (key,), (block,) = keys, study.blocks
    shared = {name: space for name, space in spaces.items() if "." in name}
    own = {name: space for name, space in spaces.items() if "." not in name}
    for name in shared:
        if name == key or name.startswith(f"{key}."):
            raise ActlabError(
                f"--search {name}: write the name of the activation's argument alone, such as slope"
            )
    check_order({*block.settings}, [*block.grid, *shared])
    for name, values in block.grid.items():
        if len(values) > 1 and name not in (key, *shared):
            one, all_ = label(values[0]), ", ".join(map(label, values))
            raise ActlabError(
                f"{study.name} has {len(values)} values of {name}: give one with --set {name}={one}, or search "
                f"them with --search '{name}=[{all_}]'"
            )
    if not own and same(unit, reference):
        raise ActlabError(f"{label(unit)} is also the reference: give another one with --reference")
    grid = {name: values for name, values in block.grid.items() if name not in shared}
    grid[key] = [unit] if same(unit, reference) else [unit, reference]
    search = Search(shared, {value_key(unit): own} if own else {}, trials)
    stem = study.name.removesuffix(SMOKE_SUFFIX)
    return replace(
        study,
        name=f"{stem}-tuned{SMOKE_SUFFIX * study.smoke}",
        title=f"{label(unit)} tuned against {label(reference)} in {stem}",
        blocks=(replace(block, grid=grid),),
        compare=key,
        select=replace(study.select, tune=tuple(shared)),
        stages=(
            Stage("search", study.seeds, search=search),
            Stage("compare", _fresh_seeds(fresh, study.seeds)),
        ),
        published={},
        figures=({"name": "curves", "lines": key, "y": {study.select.metric: None}},),
        reference=plain_unit(reference),
        reference_given=True,
        notes=(),
        cut="",
        more_seeds="--fresh {}",
    )


def _spaces(texts: Sequence[str]) -> Spaces:
    found: dict[str, Space] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals:
            raise ActlabError(f"--search {text!r}: {FORMS}")
        if (key := key.strip()) in found:
            raise ActlabError(f"--search {key} is given twice: give each key once")
        found[key] = parse_space(key, values)
    return found


def _fresh_seeds(text: str, used: Sequence[int]) -> tuple[int, ...]:
    value = parse(text)
    seeds = seed_list(value)
    if isinstance(value, int):
        first = max(FIRST_FRESH, max(used) + 1)
        seeds = tuple(range(first, first + len(seeds)))
    if both := sorted(set(seeds) & set(used)):
        raise ActlabError(
            f"--fresh {text}: the search uses seed {both[0]} too; give other seeds or their number"
        )
    return seeds


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {spans(list(seeds))}"
