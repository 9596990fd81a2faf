"""``actlab tune STUDY``: write a study that searches an activation's hyperparameters, and run it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.cli.parser import Parser
from actlab.cli.study import add_run_options, run_and_show
from actlab.cli.study_output import add_study_options
from actlab.config.labels import in_full, label
from actlab.config.paths import is_activation
from actlab.config.values import as_list, named, same
from actlab.engines.running import Engine
from actlab.errors import ActlabError
from actlab.storage.files import write_atomically
from actlab.storage.mappings import parse, read_mapping, written
from actlab.storage.resources import config_file, is_file
from actlab.studies import schema
from actlab.studies.plan import Study
from actlab.studies.reading import ACTIVATION_FORMS, activation, load, overridden
from actlab.studies.seeds import seed_list
from actlab.studies.spaces import FORMS
from actlab.studies.study_folder import StudyFolder

TRIALS, FRESH = 20, "15"
FIRST_FRESH = (
    100  # first fresh seed if only their number is given, unless the search uses higher seeds
)


def parser() -> Parser:
    """Return the argument parser of ``actlab tune``."""
    command = Parser(
        prog="actlab tune",
        description="Search arguments of an activation and config keys on validation data, then "
        "compare the activation with a reference on fresh seeds. Config keys are searched for the reference "
        "too, with as many trials. It writes a study file to DIR. The same command resumes a stopped search.",
        examples=[
            "actlab tune demo --activation elu --search alpha=0.1..3 --reference gelu --seeds 3",
            "actlab tune demo --activation ./my_activation.py:MyActivation --seeds 3 --search slope=0.1..3 "
            "--search model.optimizer.lr=1e-4..1e-2",
        ],
    )
    add_study_options(command)
    command.add_argument(
        "--activation",
        required=True,
        metavar="NAME",
        help=f"the activation to tune: {ACTIVATION_FORMS}",
    )
    command.add_argument(
        "--search",
        action="append",
        required=True,
        metavar="KEY=VALUES",
        help="LOW..HIGH or [a, b, c]; KEY is an argument of the activation, or a dotted config key, which is "
        "searched for the reference too. Whole numbers if both ends are; on a log scale if HIGH / LOW >= 10",
    )
    command.add_argument(
        "--trials",
        type=int,
        default=TRIALS,
        metavar="N",
        help=f"trials of each activation; default: {TRIALS}",
    )
    command.add_argument(
        "--seeds",
        metavar="N",
        help="seeds of each trial, a number or a range; default: the study's own, those of its first stage",
    )
    command.add_argument(
        "--fresh",
        default=FRESH,
        metavar="N",
        help=f"seeds of the comparison, none of which a trial has; default: {FRESH}, from seed 100",
    )
    command.add_argument(
        "--reference", metavar="NAME", help="the activation to compare with; default: the study's"
    )
    add_run_options(command)
    command.set_defaults(activations=(), report=True, html=True)
    return command


def main(argv: Sequence[str]) -> int:
    """Run ``actlab tune``; return 1 if runs failed."""
    args = parser().parse_args(argv)
    tuned = activation(args.activation)
    with Engine(jobs=args.jobs).worker() as worker:
        fault = worker.call("actlab.checks.activation_trial:fault_of_creation", tuned)
    study = planned(args, tuned, as_given=fault is None)
    if fault:
        print(f"without {label(tuned)} as given: {fault}")
    return run_and_show(StudyFolder(study, args.runs_dir / study.name), args, argv)


def planned(args: Namespace, tuned: Any, as_given: bool) -> Study:
    """Write the study of the options ``args`` to their folder of runs, and return it."""
    source = config_file(args.file, "configs/studies", piped=True)
    file = schema.without_stages(schema.checked(read_mapping(source, piped=True), source))
    path = args.runs_dir / f"{source.stem}-tuned.yaml"
    write_atomically(path, written(_searching(file, source, args, tuned, as_given)))
    study = replace(load(str(path), args.smoke), more_seeds="--fresh {}")
    for key, values in study.blocks[0].grid.items():
        if len(values) > 1 and key != study.compare:
            raise ActlabError(
                f"{source.stem} has {len(values)} values of {key}: give one, --set {key}={label(values[0])}, "
                f"or search them with --search '{key}=[{', '.join(map(label, values))}]'"
            )
    return study


def _searching(
    file: schema.File, source: Path, args: Namespace, tuned: Any, as_given: bool
) -> dict[str, Any]:
    """Return the values of a study file: a search for an activation and for a reference, then a comparison."""
    grid = file.grid if isinstance(file.grid, dict) else {}
    keys = [key for key in grid if is_activation(key)]
    if len(keys) != 1:
        raise ActlabError(
            f"{source.stem} cannot be tuned: give a study with one grid, one key of which is an activation"
        )
    (key,) = keys
    if any(text.partition("=")[0].strip() == key for text in args.overrides):
        raise ActlabError(f"--set {key}: expected another key. Use --activation and --reference.")
    file, length = overridden(file, source, args.overrides)
    grid = file.grid if isinstance(file.grid, dict) else {}
    spaces = dict[str, str]()
    for text in args.search:
        name, equals, values = text.partition("=")
        if not equals or name.strip() in spaces:
            raise ActlabError(f"--search {text!r}: {FORMS}, and each KEY once")
        spaces[name.strip()] = values
    arguments = {name: values for name, values in spaces.items() if "." not in name}
    searched: dict[str, Any] = {name: values for name, values in spaces.items() if "." in name}
    if args.reference is None:
        reference = named(file.reference or Study.reference, as_list(grid[key]))
    else:
        reference = activation(args.reference)
    alone = same(tuned, reference)
    if alone and not arguments:
        raise ActlabError(
            f"{label(tuned)} is also the reference: give another one with --reference"
        )
    if arguments:
        searched[in_full(tuned)] = arguments
    tried = seed_list(file.seeds if args.seeds is None else parse(args.seeds))
    fresh = parse(args.fresh)
    if isinstance(fresh, int):
        first = max(FIRST_FRESH, max(tried) + 1)
        fresh = [first + number for number in seed_list(fresh)]
    base = source.parent / str(file.base)
    given = schema.given(file)
    title = f"{label(tuned)} tuned against {label(reference)} in {source.stem}"
    return {
        **{name: value for name, value in given.items() if name not in ("published", "notes")},
        "title": ", ".join(filter(None, [title, length])),
        "base": str(base.resolve()) if is_file(base) else file.base,
        "grid": {name: values for name, values in grid.items() if name not in spaces}
        | {key: [tuned] if alone else [tuned, reference]},
        "compare": key,
        "select": {
            name: value for name, value in given.get("select", {}).items() if name != "tune"
        },
        "reference": in_full(reference),
        "figures": [{"name": "curves", "lines": key, "y": {file.select.metric: None}}],
        "stages": [
            {
                "name": "search",
                "seeds": [*tried],
                "search": searched,
                "trials": args.trials,
                "as_given": as_given,
            },
            {"name": "compare", "seeds": fresh},
        ],
    }
