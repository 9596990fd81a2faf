"""Checks of a study file that its schema does not express: settings, samples, names and stages."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from actlab.config.class_paths import class_of
from actlab.config.identity import ACTLAB
from actlab.config.paths import set_dotted
from actlab.config.text import check_order, check_sample
from actlab.errors import ActlabError
from actlab.studies import schema
from actlab.studies.plan import Block


def check_settings(
    file: schema.File, blocks: Iterable[Block], searched: Sequence[str]
) -> None:
    """Reject settings that grid or search would overwrite, and numbers that are not finite."""
    for stage, block in itertools.product(_settings_of_stages(file), blocks):
        settings = {**block.settings, **stage}
        check_order(settings, [*block.grid, *searched])
        for key, value in {**settings, **block.grid}.items():
            _check_finite(key, value)


def _settings_of_stages(file: schema.File) -> list[Mapping[str, Any]]:
    """Return the settings of a study as a whole, which are none, and of each of its stages."""
    return [{}, *(stage.set for stage in file.stages)]


def _check_finite(key: str, value: Any) -> None:
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            _check_finite(key, item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ActlabError(f"{key}: expected a finite number, got {value}.")


def check_samples(
    file: schema.File, path: Path, blocks: Iterable[Block], changes: Mapping[str, Any]
) -> None:
    """Reject a dataset that ``data.sample: true`` in the same or an earlier place would replace."""
    for block, stage in itertools.product(blocks, _settings_of_stages(file)):
        # Only the datamodules of actlab have samples
        data = class_of(block.config({}).get("data"))
        if str(data) not in ACTLAB["data"]:
            continue

        # In the order in which the places override each other
        point = {key: values[0] for key, values in block.grid.items()}
        places = {
            "the base config": copy.deepcopy(block.base),
            str(path): _nested_data({**block.settings, **point, **stage}),
            "the overrides": _nested_data(changes),
        }
        check_sample(places)


def _nested_data(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the data as nested values."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        if key.partition(".")[0] == "data":
            set_dotted(nested, key, copy.deepcopy(value))
    return nested


def check_names(figures: Sequence[schema.Figure], path: Path) -> None:
    """Reject equal names of figures, which name files, and equal titles of a figure's panels."""
    _check_distinct([figure.name for figure in figures], "figures", path)
    for figure in figures:
        titles = [panel.title for panel in figure.panels if panel.title]
        _check_distinct(titles, f"panels of the figure {figure.name!r}", path)


def _check_distinct(names: Sequence[str], kind: str, path: Path) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ActlabError(
                f"two {kind} in {path} have the same name {name!r}. Rename one of them."
            )


def check_stages(file: schema.File, path: Path, keys: Collection[str]) -> None:
    """Reject stages without distinct names, a selection, or settings outside the grid.

    ``keys`` are the keys of the grid.
    """
    # Names
    names = [stage.name for stage in file.stages]
    if len(set(names)) < len(names):
        message = f"two stages of {path} have the same name ({', '.join(names)})"
        raise ActlabError(f"{message}. Rename one of them.")
    if "digest" in names:
        raise ActlabError(
            f"a stage of {path} has the name 'digest', which selection.json reserves. Rename it."
        )

    # What is selected
    searching = [stage.name for stage in file.stages if stage.search]
    if searching and (searching != names[:1] or len(names) != 2 or file.select.tune):
        raise ActlabError(
            f"stage {searching[-1]} of {path} cannot search. Set 'search' in the first of two "
            "stages, and remove 'tune'."
        )
    if file.stages and not searching and not file.select.tune:
        raise ActlabError(f"{path} has stages but selects nothing. Add 'select: tune'.")

    # Settings
    for stage in file.stages:
        grid_keys = sorted(stage.set.keys() & set(keys))
        if grid_keys:
            raise ActlabError(
                f"stage {stage.name} of {path} sets the grid key {grid_keys[0]}. Remove one of the "
                "two."
            )
