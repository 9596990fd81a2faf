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
        # The keys that name a grid point
        activation_keys, naming_keys = [], []
        for key, values in block.grid.items():
            if is_activation(key):
                activation_keys.append(key)
            if len(values) > 1 or is_activation(key):
                naming_keys.append(key)
        compare = activation_keys[0] if activation_keys else ""

        # Each grid point has its own trials
        for combination in itertools.product(*block.grid.values()):
            point = Point(dict(zip(block.grid, combination, strict=True)))
            name = point.only(naming_keys).in_words(compare)
            activations = [point[key] for key in activation_keys]

            for space in search.spaces(activations):
                named_point = point | {SEARCHED: name}
                for tuned in points(space, search.trials):
                    # Trials of one named point form a group, from which one is selected
                    trial = Trial(named_point, tuned, space)
                    blocks.append(replace(block, grid=_grid(point, tuned), trial=trial))
                name = f"{name} as given"  # in the second space
    return tuple(blocks)


def _grid(point: Mapping[str, Any], tuned: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the grid of one point with values of config keys and arguments of the activation."""
    # Config keys have a dot, arguments have none
    values = dict(point)
    arguments = {}
    for key, value in tuned.items():
        if "." in key:
            values[key] = value
        else:
            arguments[key] = value

    # All activations of the point get the arguments
    if arguments:
        for key in point:
            if is_activation(key):
                values[key] = Spec.of(point[key]).with_params(arguments).plain
    return {key: [value] for key, value in values.items()}


def compared(
    study: Study, grid: Study, choices: Sequence[tuple[Group, Selected]]
) -> Study:
    """Return the stage after a search with what its tables say of the search.

    Its `Study.question` is the digest of what is compared, its code, data and settings that are not
    searched.
    """
    # How many settings were tried, by group
    tried = []
    for group, entry in choices:
        text = f"{group.point[SEARCHED]} tried {plural(entry['tried'], 'setting')}"
        if group.space:
            ranges = [f"{key} {space}" for key, space in group.space.items()]
            text += f" ({', '.join(ranges)})"
        tried.append(text)

    # Other seeds than the table has
    seeds = ", ".join(map(str, grid.seeds))
    word = "seeds" if len(grid.seeds) > 1 else "seed"
    note = (
        f"Tuned on {word} {seeds}, which this table does not use: {', '.join(tried)}. "
        "The settings are points of a Sobol sequence; the median over seeds of the "
        f"{grid.select.value} selected one for each."
    )

    # What is compared, whatever the seeds
    identities = [run.identity for run in replace(grid, seeds=(0,)).runs()]
    question = sha256(json.dumps(identities).encode()).hexdigest()
    return replace(study, notes=(*study.notes, note), question=question)


def lines(folder: StudyFolder) -> Iterator[str]:
    """Yield a line for each trial that has ended.

    The line of a best trial names the keys whose value is at an edge of the space.
    """
    loaded = results.load(folder)
    for group in folder.groups:
        best = selection.selected_setting(loaded, group)
        for number, setting in enumerate(group.settings, 1):
            # A trial with runs missing has no median yet
            if any(run.id not in loaded.results for run in setting.runs):
                continue

            # The value of the trial
            (score,) = selection.scores(loaded, [setting])
            value = f"{folder.study.select.metric} {score:.4g}"
            if math.isinf(score):
                value = "diverged"
            elif setting is best:
                edges = [f"; {key} at the edge" for key in group.edges(setting.tuned)]
                value += f" (best{''.join(edges)})"

            words = filter(None, [group.point[SEARCHED], setting.tuned.in_words()])
            yield f"trial {number}, {', '.join(words)}: {value}"
