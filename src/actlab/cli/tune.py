"""``actlab tune STUDY``: write a study that searches hyperparameters, and run it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.cli.parser import Parser
from actlab.cli.study import run_and_show
from actlab.cli.study_options import (
    add_run_options,
    add_stage_option,
    add_study_options,
)
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

TRIALS = 20
# Seeds of the comparison if the user does not state any
FRESH = "15"
# First fresh seed if only their number is given, unless the search uses higher seeds.
FIRST_FRESH = 100


def parser() -> Parser:
    """Return the argument parser of ``actlab tune``."""
    command = Parser(
        prog="actlab tune",
        description="Tune your activation on validation data, then compare it with a reference on "
        "fresh seeds. The search covers arguments of the activation and config keys. The reference "
        "gets as many trials for the config keys. The command writes a study file to DIR. Repeat "
        "it to resume a stopped search.",
        examples=[
            "actlab tune demo --activation elu --search alpha=0.1..3 --reference gelu --seeds 3",
            "actlab tune demo --activation ./my_activation.py:MyActivation --seeds 3 "
            "--search slope=0.1..3 --search model.optimizer.lr=1e-4..1e-2",
        ],
    )

    # What is searched
    comparison = add_study_options(command)
    search = command.add_argument_group("search")
    search.add_argument(
        "--activation",
        required=True,
        metavar="NAME",
        help=f"the activation to tune: {ACTIVATION_FORMS}",
    )
    search.add_argument(
        "--search",
        action="append",
        required=True,
        metavar="KEY=VALUES",
        help="search LOW..HIGH or [a, b, c]; repeatable. KEY is an argument of the activation, or "
        "a dotted config key, which is searched for the reference too. The values are whole "
        "numbers if LOW and HIGH are, and on a log scale if HIGH / LOW >= 10",
    )
    search.add_argument(
        "--trials",
        type=int,
        default=TRIALS,
        metavar="N",
        help=f"number of trials of each activation; default: {TRIALS}",
    )
    search.add_argument(
        "--seeds",
        metavar="N",
        help="seeds of each trial, a number or a range; default: the seeds of the study or of its "
        "first stage",
    )

    # What is compared
    comparison.add_argument(
        "--fresh",
        default=FRESH,
        metavar="N",
        help="fresh seeds of the comparison: a number, or a range (100-114); default: "
        f"{FRESH}, from seed {FIRST_FRESH}",
    )
    comparison.add_argument(
        "--reference",
        metavar="NAME",
        help="compare with this activation; default: the reference of the study",
    )
    add_stage_option(comparison)

    # How it is run
    add_run_options(command)
    # A search ends in figures and a page by default
    command.set_defaults(activations=(), report=True, html=True)
    return command


def main(argv: Sequence[str]) -> int:
    """Run ``actlab tune``; return 1 if runs failed."""
    # Find out whether the activation can be built with its default arguments
    args = parser().parse_args(argv)
    tuned = activation(args.activation)
    with Engine(jobs=args.jobs).worker() as worker:
        fault = worker.call("actlab.checks.activation_trial:fault_of_creation", tuned)

    # Write the study, and run it
    study = planned(args, tuned, as_given=fault is None)
    if fault:
        print(f"{label(tuned)} is not compared with its default arguments: {fault}")
    folder = StudyFolder(study, args.runs_dir / study.name)
    return run_and_show(folder, args, argv)


def planned(args: Namespace, tuned: Any, as_given: bool) -> Study:
    """Write a study file that searches and compares, and return its study.

    Args:
        args: the arguments of the command; the file is written to their folder of runs.
        tuned: the activation to tune.
        as_given: also try the activation with its default arguments.
    """
    # Write the study file
    source = config_file(args.file, "configs/studies", piped=True)
    mapping = read_mapping(source, piped=True)
    # The new file has stages of its own
    file = schema.without_stages(schema.checked(mapping, source))
    # The file is written, and so can be read, published and run again
    path = args.runs_dir / f"{source.stem}-tuned.yaml"
    write_atomically(path, written(_searching(file, source, args, tuned, as_given)))

    # Check that only activations are compared
    study = replace(load(str(path), args.smoke), more_seeds="--fresh {}")
    for key, values in study.blocks[0].grid.items():
        if len(values) > 1 and key != study.compare:
            labels = ", ".join(map(label, values))
            raise ActlabError(
                f"{key} in {source.stem}: expected one value, got {len(values)}. Use "
                f"--set {key}={label(values[0])}, or --search '{key}=[{labels}]'."
            )
    return study


def _searching(
    file: schema.File, source: Path, args: Namespace, tuned: Any, as_given: bool
) -> dict[str, Any]:
    """Return a study file that searches settings of two activations, and then compares them."""
    compare = _compared_key(file, source, args)
    file, length = overridden(file, source, args.overrides)

    # `_compared_key` has rejected a list of grids
    grid = file.grid if isinstance(file.grid, dict) else {}

    # Separate arguments of the activation from config keys
    spaces = _spaces(args.search)
    arguments = {}
    search: dict[str, Any] = {}
    for name, values in spaces.items():
        # Config keys have a dot, arguments of an activation have none
        if "." in name:
            search[name] = values
        else:
            arguments[name] = values

    # Find the reference, which may be the activation with other arguments
    if args.reference is None:
        reference = named(file.reference or Study.reference, as_list(grid[compare]))
    else:
        reference = activation(args.reference)
    activations = [tuned, reference]
    if same(tuned, reference):
        if not arguments:
            raise ActlabError(
                f"{label(tuned)} is also the reference. Pass another one with --reference."
            )
        # Then its default arguments are the reference, tried as they are
        activations = [tuned]
    if arguments:
        search[in_full(tuned)] = arguments

    # Set seeds of the search, and fresh seeds of the comparison
    search_seeds = seed_list(file.seeds if args.seeds is None else parse(args.seeds))
    fresh_seeds = parse(args.fresh)
    # A number means seeds that the search has not used
    if isinstance(fresh_seeds, int):
        start = max(FIRST_FRESH, max(search_seeds) + 1)
        fresh_seeds = [start + number for number in seed_list(fresh_seeds)]

    # Keep what the file says, except what is about its own comparison
    values_of_file = schema.stated(file)
    values_of_file.pop("published", None)
    values_of_file.pop("notes", None)
    select = dict(values_of_file.get("select", {}))
    select.pop("tune", None)
    # A searched key is not fixed
    fixed_grid = {name: values for name, values in grid.items() if name not in spaces}
    # The new file is in another folder
    base = source.parent / str(file.base)
    title = f"{label(tuned)} tuned against {label(reference)} in {source.stem}"
    if length:
        title = f"{title}, {length}"
    return {
        **values_of_file,
        "title": title,
        "base": str(base.resolve()) if is_file(base) else file.base,
        "grid": {**fixed_grid, compare: activations},
        "compare": compare,
        "select": select,
        "reference": in_full(reference),
        "figures": [
            {"name": "curves", "lines": compare, "y": {file.select.metric: None}}
        ],
        "stages": [
            {
                "name": "search",
                "seeds": [*search_seeds],
                "search": search,
                "trials": args.trials,
                "as_given": as_given,
            },
            {"name": "compare", "seeds": fresh_seeds},
        ],
    }


def _compared_key(file: schema.File, source: Path, args: Namespace) -> str:
    """Return the grid key of the activations; raise if there is not one, or if it is overridden."""
    # A list of several grids is rejected, too
    grid = file.grid if isinstance(file.grid, dict) else {}
    keys = [key for key in grid if is_activation(key)]
    if len(keys) != 1:
        raise ActlabError(
            f"FILE: expected a study with one grid and one key of activations, got {source.stem}. "
            "Use another study."
        )
    (key,) = keys

    # The grid would have other activations than the search
    for override in args.overrides:
        if override.partition("=")[0].strip() == key:
            raise ActlabError(
                f"--set: expected another key than {key}. Use --activation and --reference."
            )
    return key


def _spaces(texts: Sequence[str]) -> dict[str, str]:
    """Return the values to search, by key, from ``KEY=VALUES``."""
    spaces: dict[str, str] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or key in spaces:
            raise ActlabError(
                f"--search: expected {FORMS}, with each KEY once, got {text!r}."
            )
        spaces[key] = values
    return spaces
