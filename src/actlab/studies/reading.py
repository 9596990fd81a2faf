"""Read a study file and apply the options of the command line."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.config.class_paths import class_of
from actlab.config.identity import ACTLAB
from actlab.config.paths import get_dotted, is_activation, set_dotted
from actlab.config.text import SAMPLE, check_order, check_sample
from actlab.config.values import (
    as_list,
    in_full,
    label,
    located,
    named,
    plain_activation,
    same,
    value_key,
)
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage.mappings import read_mapping, read_word
from actlab.storage.resources import config_file, is_file
from actlab.storage.spec import Spec
from actlab.studies import schema
from actlab.studies.plan import SMOKE_SUFFIX, Block, Keep, Selection, Stage, Study, other_length
from actlab.studies.seeds import SMOKE_SEEDS, of_stages
from actlab.studies.spaces import Search, Space, parse_space

SMOKE = {
    **{SAMPLE: True, "trainer.max_epochs": 1, "trainer.limit_train_batches": 4},
    "trainer.check_val_every_n_epoch": 1,
}
ACTIVATION_FORMS = (
    "a name, package.module:Name, ./file.py:Name, '{name: elu, alpha: 0.5}'"  # for help texts
)
# Trainer arguments that the run folder provides; they are removed from the base config.
_PROVIDED = ("logger", "default_root_dir", "enable_progress_bar", "enable_model_summary")
_CHECKPOINT = "ModelCheckpoint"
# The papers' exact and approximate form: where a grid lacks one, the other is the reference, with a
# note.
OTHER_FORMS = {
    "gelu": ("gelu_tanh", "Reference: gelu_tanh, GELU's tanh form, because the grid lacks gelu."),
    "gelu_tanh": ("gelu", "Reference: gelu, the exact GELU, because the grid lacks gelu_tanh."),
}


def load(
    name: str,
    smoke: bool = False,
    overrides: Iterable[str] = (),
    activations: Iterable[Any] = (),
    reference: Any = None,
    settings: Mapping[str, Any] | None = None,
    staged: bool = True,
) -> Study:
    """Read a study file and apply the command line to it, or the arguments of `actlab.load_study`.

    Args:
        name: path of a study file, or bare name of a study that ships with actlab.
        smoke: run briefly on samples: apply the file's ``smoke`` settings over `SMOKE` and use few
            seeds.
        overrides: ``key=word`` items. The key is a dotted config key, a grid key (a value or a list
            replaces its values) or ``seeds``; see `actlab.studies.seeds.of_stages`.
        activations: activations added to every grid key that ends in ``activation`` and lacks them.
            Read words with `activation`.
        reference: compared value against which the others are tested, or its full text.
        settings: values by key, as in ``overrides``.
        staged: False for a study without the stages of its file; see `schema.without_stages`.
    """
    path = config_file(name, "configs/studies", piped=True)
    file = schema.checked(read_mapping(path, piped=True), path)
    file = file if staged else schema.without_stages(file)
    brief = SMOKE | file.smoke if smoke else {}
    whole = _blocks(file, path, brief)
    changes = _changes(settings or {}, overrides, whole)
    given_seeds = changes.pop("seeds", {})
    added = [Spec.of(spelling).located().plain for spelling in activations]
    blocks = [_with_activations(_with_changes(block, changes), added) for block in whole]
    if not smoke:  # which takes the sample over any dataset
        _check_samples(file, path, whole, changes)
    keys = dict.fromkeys(key for block in blocks for key in block.grid)
    if added and not any(is_activation(key) for key in keys):
        raise ActlabError(f"{path} compares no activations: no grid key ends in 'activation'")
    searches = {stage.name: _search(stage, blocks, smoke) for stage in file.stages if stage.search}
    searched = [key for search in searches.values() for key in search.keys]
    select = _selection(file, path, keys)
    select = replace(select, tune=(*select.tune, *searched))
    _check_settings(file, blocks, searched)
    _check_names(file.figures, path)
    _check_stages(file, path, keys)
    seeds = of_stages(file.seeds, {stage.name: stage.seeds for stage in file.stages}, given_seeds)
    seeds = {name: listed[:SMOKE_SEEDS] if smoke else listed for name, listed in seeds.items()}
    reference_value = file.reference if reference is None else plain_activation(located(reference))
    reference_value, form = _found_form(reference_value, blocks)
    study = Study(
        name=path.stem + (SMOKE_SUFFIX if smoke else ""),
        title=file.title or path.stem,
        blocks=tuple(blocks),
        seeds=next(iter(seeds.values())),
        compare=file.compare,
        select=select,
        stages=tuple(
            Stage(
                s.name,
                seeds[s.name],
                {k: v for k, v in s.set.items() if k not in changes | brief},
                searches.get(s.name),
            )
            for s in file.stages
        ),
        table=tuple(schema.given(column) for column in file.table),
        probes=tuple(file.probes),
        keep=_keep(file, select, path),
        primary=schema.given(file.primary) if file.primary else {},
        published=schema.given(file.published),
        cut=other_length(zip(whole, blocks, strict=True)),
        figures=tuple(schema.given(figure) for figure in file.figures),
        reference=Study.reference if reference_value is None else reference_value,
        reference_given=reference_value is not None,
        notes=(*form, *file.notes),
        tags=tuple(file.tags),
        added=tuple(added),
    )
    return replace(study, title=_title(study, whole))


def overridden(file: schema.File, path: Path, overrides: Iterable[str]) -> tuple[schema.File, str]:
    """Return a study file with one grid that holds the values of ``--set``, also for its smoke runs.

    The text says how they change the length of runs; see `other_length`.
    """
    before = _blocks(file, path, {})
    changes = _changes({}, overrides, before)
    seeds = changes.pop("seeds", file.seeds)

    # Values of the grid stay in the grid, all others are settings.
    grid = {key: changes.pop(key, values) for key, values in before[0].grid.items()}
    changed = {
        "grid": grid,
        "set": {**file.set, **changes},
        "smoke": {**file.smoke, **changes},
        "seeds": seeds,
    }
    new = file.model_copy(update=changed)
    return new, other_length(zip(before, _blocks(new, path, {}), strict=True))


def _title(study: Study, file: Iterable[Block]) -> str:
    """Return the title of a study; where it compares not all that its file does, with what it compares."""
    compared = {
        value_key(value): label(value)
        for block in study.blocks
        for value in block.grid.get(study.compare, ())
    }
    kept = all(
        value_key(value) in compared
        for block in file
        for value in block.grid.get(study.compare, ())
    )
    return study.title if kept else f"{study.title} (compared: {', '.join(compared.values())})"


def _found_form(reference: Any, blocks: Iterable[Block]) -> tuple[Any, list[str]]:
    """Return the form of GELU that the grid has where only the other one was asked for, with a note."""
    if not isinstance(reference, str) or reference not in OTHER_FORMS:
        return reference, []
    grid = {value_key(v) for block in blocks for values in block.grid.values() for v in values}
    other, note = OTHER_FORMS[reference]
    lacking = value_key(reference) not in grid and value_key(other) in grid
    return (other, [note]) if lacking else (reference, [])


def _changes(
    settings: Mapping[str, Any], overrides: Iterable[str], blocks: Sequence[Block]
) -> dict[str, Any]:
    changes = dict(settings)

    def is_text() -> bool:
        # Imported lazily: most words need no signature
        from actlab.config.signatures import (
            takes_text,
        )

        points = ({k: values[0] for k, values in block.grid.items() if values} for block in blocks)
        configs = (b.config({**point, **changes}) for b, point in zip(blocks, points, strict=True))
        return any(takes_text(config, key) for config in configs)

    for override in overrides:
        key, equals, word = override.partition("=")
        key = key.strip()
        if not (key and equals):
            raise ActlabError(
                f"--set {override!r}: write key=value, such as data.dataset=FOLDER or seeds=3"
            )
        try:
            changes[key] = read_word(word, is_text)
        except ActlabError as error:
            raise ActlabError(f"--set {override[:80]!r}: {error}") from error
    return changes


def _selection(file: schema.File, path: Path, keys: Collection[str]) -> Selection:
    stated = file.select
    select = Selection(tuple(as_list(stated.tune)), stated.metric, stated.mode or "", stated.at)
    for key in select.tune:
        if key not in keys:
            raise unknown("tuned key", key, keys, f"'select: tune' in {path} names grid keys.")
    return select


def _check_settings(file: schema.File, blocks: Iterable[Block], searched: Iterable[str]) -> None:
    for stage, block in itertools.product([{}, *(stage.set for stage in file.stages)], blocks):
        check_order({**block.settings, **stage}, [*block.grid, *searched])
        for key, value in {**block.settings, **stage, **block.grid}.items():
            _check_finite(key, value)


def _check_samples(
    file: schema.File, path: Path, blocks: Iterable[Block], changes: Mapping[str, Any]
) -> None:
    """Reject a dataset that ``data.sample: true`` in the same place or an earlier one would replace."""
    for block, stage in itertools.product(blocks, [{}, *(stage.set for stage in file.stages)]):
        if str(class_of(block.config({}).get("data"))) not in ACTLAB["data"]:
            continue
        point = {key: values[0] for key, values in block.grid.items()}
        given = {**block.settings, **point, **stage}
        places = {"the base config": copy.deepcopy(block.base), str(path): {}, "the overrides": {}}
        for place, settings in ((str(path), given), ("the overrides", changes)):
            for key in (key for key in settings if key.partition(".")[0] == "data"):
                set_dotted(places[place], key, copy.deepcopy(settings[key]))
        check_sample(places)


def _check_finite(key: str, value: Any) -> None:
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_finite(key, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ActlabError(f"{key} is {value}: give a finite number")


def _check_names(figures: Sequence[schema.Figure], path: Path) -> None:
    """Reject figures with the same name (same file) and panels with the same title (mixed in curves.csv)."""
    for what, names in (
        ("figures", [figure.name for figure in figures]),
        *(
            (f"panels of the figure {f.name!r}", [p.title for p in f.panels if p.title])
            for f in figures
        ),
    ):
        if twice := [name for number, name in enumerate(names) if name in names[:number]]:
            raise ActlabError(
                f"two {what} in {path} have the same name {twice[0]!r}: give each its own name"
            )


def _blocks(file: schema.File, path: Path, smoke: Mapping[str, Any]) -> list[Block]:
    given = (
        file.blocks
        if file.blocks is not None
        else [schema.BlockPart(grid=grid) for grid in as_list(file.grid)]
    )
    if not given or not all(block.grid for block in given):
        raise ActlabError(
            f"the grid of {path} must map config keys to lists of values, not be empty"
        )
    blocks = []
    for block in given:
        grid = {str(key): as_list(values) for key, values in block.grid.items()}
        full = Block(
            grid, _base(block.base or str(file.base), path), {**file.set, **block.set}, block.name
        )
        # Other datamodules may lack the argument
        lacks = get_dotted(full.config({}), SAMPLE) is None
        short = {
            key: value
            for key, value in smoke.items()
            if key != SAMPLE or not lacks or key in file.smoke
        }
        grid = {
            key: as_list(short[key]) if key in short else values for key, values in grid.items()
        }
        blocks.append(replace(full, grid=grid, settings={**full.settings, **short}))
    return blocks


def _base(name: str, study: Path) -> dict[str, Any]:
    beside = study.parent / name
    config = read_mapping(beside if is_file(beside) else config_file(name))
    trainer = config.get("trainer") or {}
    if not isinstance(trainer, dict):
        raise ActlabError(f"trainer in {name} is {trainer!r}: give a mapping")
    callbacks = trainer.get("callbacks") or []
    kept = [c for c in as_list(callbacks) if not str(class_of(c)).endswith(_CHECKPOINT)]
    others = {key: value for key, value in trainer.items() if key not in _PROVIDED}
    return {**config, "trainer": {**others, "callbacks": kept}}


def _with_changes(block: Block, changes: Mapping[str, Any]) -> Block:
    grid = {
        key: as_list(changes[key]) if key in changes else values
        for key, values in block.grid.items()
    }
    settings = {
        **block.settings,
        **{key: value for key, value in changes.items() if key not in block.grid},
    }
    for key, value in settings.items():
        set_dotted({}, key, value)
    if empty := [key for key, values in grid.items() if not values]:
        raise ActlabError(
            f"the grid has no value for {empty[0]!r}: give a value or a list of values"
        )
    return replace(block, grid=grid, settings=settings)


def _with_activations(block: Block, added: Sequence[Any]) -> Block:
    """Add to a block the activations that its grid lacks; ``{name: NAME}`` becomes ``NAME``."""
    grid = {}
    for key, values in block.grid.items():
        known: dict[str, Any] = {}
        for value in values:
            if (text := value_key(value)) in known:  # their runs would be the same
                both = f"{known[text]!r} and {value!r}"
                raise ActlabError(
                    f"the grid has two equal values of {key}, {both}: remove one of them"
                )
            known[text] = value
        for value in added if is_activation(key) else ():
            known.setdefault(value_key(value), value)
        grid[key] = [
            plain_activation(value) if is_activation(key) else value for value in known.values()
        ]
    return replace(block, grid=grid)


def _check_stages(file: schema.File, path: Path, keys: Collection[str]) -> None:
    names = [stage.name for stage in file.stages]
    if len(set(names)) < len(names):
        raise ActlabError(f"two stages of {path} have the same name: {', '.join(names)}")
    if "digest" in names:
        raise ActlabError(
            f"a stage of {path} has the name 'digest', reserved in selection.json: rename it"
        )
    searching = [stage.name for stage in file.stages if stage.search]
    if searching and (searching != names[:1] or len(names) != 2 or file.select.tune):
        raise ActlabError(
            f"stage {searching[-1]} of {path} searches: give 'search' to the first of two stages, and no 'tune'"
        )
    if file.stages and not searching and not file.select.tune:
        raise ActlabError(f"{path} has stages but nothing to select: give 'select: tune'")
    for stage in file.stages:
        if taken := sorted(stage.set.keys() & keys):
            raise ActlabError(
                f"stage {stage.name} of {path} sets {taken[0]}, which is a grid key: remove one"
            )


def _search(stage: schema.StagePart, blocks: Sequence[Block], smoke: bool) -> Search:
    grid = [(key, values) for block in blocks for key, values in block.grid.items()]
    activations = [searched for key, values in grid if is_activation(key) for searched in values]
    keys: dict[str, Space] = {}
    arguments: dict[str, dict[str, Space]] = {}
    for name, spaces in stage.search.items():
        if isinstance(spaces, Mapping):
            searched = named(name, activations)
            if not any(same(searched, other) for other in activations):
                raise unknown(
                    "activation to search", name, [in_full(other) for other in activations]
                )
            arguments[value_key(searched)] = {
                key: parse_space(key, value) for key, value in spaces.items()
            }
        elif "." not in name or any(key == name or name.startswith(f"{key}.") for key, _ in grid):
            raise ActlabError(
                f"search {name}: give a dotted config key that is not in the grid, or an activation of the "
                "grid with its arguments, such as {alpha: 0.1..3}"
            )
        else:
            keys[name] = parse_space(name, spaces)
    return Search(
        keys, arguments, min(stage.trials, SMOKE_SEEDS) if smoke else stage.trials, stage.as_given
    )


def _keep(file: schema.File, select: Selection, path: Path) -> Keep:
    wanted = [*file.keep, *(at for probe in file.probes for at in probe.places)]
    epochs = tuple(sorted({at for at in wanted if isinstance(at, int)}))
    if epochs and epochs[0] < 0:
        raise ActlabError(
            f"checkpoint after {epochs[0]} epochs in {path}: give a whole number from 0"
        )
    return Keep(select.metric if "best" in wanted else None, select.mode, epochs)


def activation(word: str) -> Any:
    """Return the activation that a word of the command line stands for, with an absolute path of its file.

    The word is a name, ``package.module:Name``, ``./file.py:Name``, or a mapping in YAML.
    """
    spec = read_word(word, lambda: True)
    return located(word if spec is None else spec)
