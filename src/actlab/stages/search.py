"""A stage that searches: a block for each trial, and the lines that are printed about trials."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from actlab.analysis import results, selection
from actlab.analysis.wording import plural
from actlab.config.paths import is_activation
from actlab.storage.spec import Spec
from actlab.studies.formats import Selected
from actlab.studies.groups import Group
from actlab.studies.plan import Block, Keep, Study, Trial
from actlab.studies.points import Point
from actlab.studies.spaces import Search, points
from actlab.studies.study_folder import StudyFolder

SEARCHED = "searched"  # key of the group's name in its point


def study_of(grid: Study, search: Search) -> Study:
    """Return the study that trains the trials of a search over a grid; it compares nothing."""
    plain: dict[str, Any] = {
        "probes": (),
        "published": {},
        "figures": (),
        "keep": Keep(),
        "reference": "",
    }
    return replace(grid, blocks=blocks_of(grid, search), **plain)


def blocks_of(grid: Study, search: Search) -> tuple[Block, ...]:
    """Return a block for each trial of a search at each grid point."""
    blocks = []
    for block in grid.blocks:
        activations = [key for key in block.grid if is_activation(key)]
        several = [
            key for key, values in block.grid.items() if len(values) > 1 or key in activations
        ]
        for values in itertools.product(*block.grid.values()):
            point = Point(dict(zip(block.grid, values, strict=True)))
            name = point.only(several).in_words(next(iter(activations), ""))

            for space in search.spaces(point[key] for key in activations):
                given = point | {SEARCHED: name}
                for tuned in points(space, search.trials):
                    trial = Trial(given, tuned, space)
                    blocks.append(replace(block, grid=_grid(point, tuned), trial=trial))
                name = f"{name} as given"  # in the second space
    return tuple(blocks)


def _grid(point: Mapping[str, Any], tuned: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the grid of one point with values of config keys and arguments of the activation."""
    arguments = {key: value for key, value in tuned.items() if "." not in key}
    values = {**point, **{key: value for key, value in tuned.items() if "." in key}}
    for key in point:
        if is_activation(key) and arguments:
            values[key] = Spec.of(point[key]).with_params(arguments).plain
    return {key: [value] for key, value in values.items()}


def compared(study: Study, grid: Study, choices: Sequence[tuple[Group, Selected]]) -> Study:
    """Return the stage after a search with what its tables say of the search.

    Its `Study.question` is the digest of what is compared, its code, data and settings that are not
    searched.
    """
    tried = []
    for group, entry in choices:
        space = ", ".join(f"{key} {values}" for key, values in group.space.items())
        within = f" ({space})" if space else ""
        tried.append(f"{group.point[SEARCHED]} tried {plural(entry['tried'], 'setting')}{within}")

    seeds = f"{'seeds' if len(grid.seeds) > 1 else 'seed'} {', '.join(map(str, grid.seeds))}"
    note = (
        f"Tuned on {seeds}, which this table does not use: {', '.join(tried)}. The settings are points "
        f"of a Sobol sequence; the median over seeds of the {grid.select.value} selected one for each."
    )
    identities = [run.identity for run in replace(grid, seeds=(0,)).runs()]
    question = sha256(json.dumps(identities).encode()).hexdigest()
    return replace(study, notes=(*study.notes, note), question=question)


def lines(folder: StudyFolder) -> Iterator[str]:
    """Yield a line for each trial that has ended, with the keys of a best one that are at an edge."""
    loaded = results.load(folder)
    for group in folder.groups:
        best = selection.chosen(loaded, group)
        for number, setting in enumerate(group.settings, 1):
            if any(run.id not in loaded.results for run in setting.runs):
                continue

            # Print the value of a trial.
            (score,) = selection.scores(loaded, [setting])
            value = f"{folder.study.select.metric} {score:.4g}"
            if math.isinf(score):
                value = "diverged"
            elif setting is best:
                edges = "".join(f"; {key} at the edge" for key in group.edges(setting.tuned))
                value += f" (best{edges})"
            words = ", ".join(filter(None, [group.point[SEARCHED], setting.tuned.in_words()]))
            yield f"trial {number}, {words}: {value}"
