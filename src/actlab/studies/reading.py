"""Read a study file and apply the options of the command line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from actlab.config.class_paths import class_of
from actlab.config.labels import in_full, label
from actlab.config.paths import get_dotted, is_activation, set_dotted
from actlab.config.text import SAMPLE
from actlab.config.values import (
    as_list,
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
from actlab.studies import file_checks, schema
from actlab.studies.lengths import other_length
from actlab.studies.plan import SMOKE_SUFFIX, Block, Keep, Selection, Stage, Study
from actlab.studies.seeds import SMOKE_SEEDS, of_stages
from actlab.studies.spaces import Search, Space, parse_space

SMOKE = {
    SAMPLE: True,
    "trainer.max_epochs": 1,
    "trainer.limit_train_batches": 4,
    "trainer.check_val_every_n_epoch": 1,
}
# For help texts
ACTIVATION_FORMS = (
    "a name, package.module:Name, ./file.py:Name, '{name: elu, alpha: 0.5}'"
)
# Trainer arguments that the run folder provides; they are removed from the base config.
_PROVIDED = (
    "logger",
    "default_root_dir",
    "enable_progress_bar",
    "enable_model_summary",
)
_CHECKPOINT = "ModelCheckpoint"
# The exact and the approximate form of GELU in papers: if a grid lacks the reference,
# the other form is the reference, with a note.
OTHER_FORMS = {
    "gelu": (
        "gelu_tanh",
        "Reference: gelu_tanh, GELU's tanh form, because the grid lacks gelu.",
    ),
    "gelu_tanh": (
        "gelu",
        "Reference: gelu, the exact GELU, because the grid lacks gelu_tanh.",
    ),
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
        smoke: run briefly on samples: the file's ``smoke`` settings over `SMOKE`, and few seeds.
        overrides: ``key=word`` items. The key is a dotted config key, a grid key (a value or a list
            replaces its values) or ``seeds``; see `actlab.studies.seeds.of_stages`.
        activations: activations added to every grid key that ends in ``activation`` and lacks them.
            Read words with `activation`.
        reference: compared value against which the others are tested, or its full text.
        settings: values by key, as in ``overrides``.
        staged: False for a study without the stages of its file; see `schema.without_stages`.
    """
    # The file
    path = config_file(name, "configs/studies", piped=True)
    file = schema.checked(read_mapping(path, piped=True), path)
    if not staged:
        file = schema.without_stages(file)
    brief: dict[str, Any] = {}
    if smoke:
        brief = SMOKE | file.smoke
    file_blocks = _blocks(file, path, brief)

    # Apply the changes, then append the added activations to the changed grid
    changes = _changes(settings or {}, overrides, file_blocks)
    changed_seeds = changes.pop("seeds", {})
    added = [Spec.of(spelling).located().plain for spelling in activations]
    blocks = []
    for block in file_blocks:
        changed_block = _with_changes(block, changes)
        blocks.append(_with_activations(changed_block, added))

    # A smoke run takes the sample whatever the dataset is
    if not smoke:
        file_checks.check_samples(file, path, file_blocks, changes)
    keys = _keys(blocks)
    if added and not any(map(is_activation, keys)):
        message = (
            f"{path} compares no activations, because no grid key ends in 'activation'"
        )
        raise ActlabError(f"{message}. Remove the added activations.")

    # Searched keys are tuned, too, although no grid has them
    searches: dict[str, Search] = {}
    searched: list[str] = []
    for stage in file.stages:
        if stage.search:
            searches[stage.name] = _search(stage, blocks, smoke)
            searched += searches[stage.name].keys
    select = _selection(file, path, keys)
    select = replace(select, tune=(*select.tune, *searched))

    # What the schema cannot express
    file_checks.check_settings(file, blocks, searched)
    file_checks.check_names(file.figures, path)
    file_checks.check_stages(file, path, keys)

    # A study without stages has one entry, with an empty name
    seeds_of_file = {stage.name: stage.seeds for stage in file.stages}
    seeds = of_stages(file.seeds, seeds_of_file, changed_seeds)
    if smoke:
        seeds = {stage: listed[:SMOKE_SEEDS] for stage, listed in seeds.items()}
    first_seeds = next(iter(seeds.values()))
    stages = _stages(file, seeds, searches, {*changes, *brief})

    # A stated reference must be in the grid, the default one need not
    stated_reference, form_notes = _reference(file, reference, blocks)
    study = Study(
        name=f"{path.stem}{SMOKE_SUFFIX}" if smoke else path.stem,
        title=file.title or path.stem,
        blocks=tuple(blocks),
        seeds=first_seeds,
        compare=file.compare,
        select=select,
        stages=stages,
        table=tuple(map(schema.stated, file.table)),
        probes=tuple(file.probes),
        keep=_keep(file, select, path),
        primary=schema.stated(file.primary) if file.primary else {},
        published=schema.stated(file.published),
        other_length=other_length(zip(file_blocks, blocks, strict=True)),
        figures=tuple(map(schema.stated, file.figures)),
        reference=Study.reference if stated_reference is None else stated_reference,
        reference_given=stated_reference is not None,
        notes=(*form_notes, *file.notes),
        tags=tuple(file.tags),
        added=tuple(added),
    )
    return replace(study, title=_title(study, file_blocks))


def _stages(
    file: schema.File,
    seeds: Mapping[str, tuple[int, ...]],
    searches: Mapping[str, Search],
    changed_keys: Collection[str],
) -> tuple[Stage, ...]:
    """Return the stages of a study, without settings of keys that are changed for all stages."""
    stages = []
    for part in file.stages:
        settings = {
            key: value for key, value in part.set.items() if key not in changed_keys
        }
        stages.append(
            Stage(part.name, seeds[part.name], settings, searches.get(part.name))
        )
    return tuple(stages)


def _keys(blocks: Iterable[Block]) -> list[str]:
    """Return the grid keys of all blocks, each once."""
    keys: dict[str, None] = {}
    for block in blocks:
        keys |= dict.fromkeys(block.grid)
    return [*keys]


def overridden(
    file: schema.File, path: Path, overrides: Iterable[str]
) -> tuple[schema.File, str]:
    """Return a study file with the values of ``--set`` in its grid, also for its smoke runs.

    The file has one grid. The text says how they change the length of runs; see `other_length`.
    """
    # The blocks before the changes, to compare lengths
    blocks = _blocks(file, path, {})
    changes = _changes({}, overrides, blocks)
    seeds = changes.pop("seeds", file.seeds)

    # Values of the grid stay in the grid, all others are settings.
    grid = {key: changes.pop(key, values) for key, values in blocks[0].grid.items()}
    changed = {
        "grid": grid,
        "set": {**file.set, **changes},
        "smoke": {**file.smoke, **changes},
        "seeds": seeds,
    }

    # The changed file, and how its runs differ in length
    new_file = file.model_copy(update=changed)
    new_blocks = _blocks(new_file, path, {})
    return new_file, other_length(zip(blocks, new_blocks, strict=True))


def _title(study: Study, file_blocks: Iterable[Block]) -> str:
    """Return the title of a study, with what it compares if that is not all that its file does."""
    labels = {
        value_key(value): label(value)
        for value in _compared(study.blocks, study.compare)
    }
    for value in _compared(file_blocks, study.compare):
        if value_key(value) not in labels:
            return f"{study.title} (compared: {', '.join(labels.values())})"
    return study.title


def _compared(blocks: Iterable[Block], key: str) -> Iterator[Any]:
    for block in blocks:
        yield from block.grid.get(key, ())


def _reference(
    file: schema.File, stated: Any, blocks: Iterable[Block]
) -> tuple[Any, Sequence[str]]:
    """Return the reference that the user or the file states; None without one.

    If the grid has only the other form of GELU, this form is the reference, with a note.
    """
    # The reference of the user takes precedence
    reference = file.reference
    if stated is not None:
        reference = plain_activation(located(stated))

    # Only GELU has another form
    if not isinstance(reference, str) or reference not in OTHER_FORMS:
        return reference, ()

    # The form that the grid has
    grid: set[str] = set()
    for block in blocks:
        for values in block.grid.values():
            grid.update(map(value_key, values))
    other_form, note = OTHER_FORMS[reference]
    if value_key(reference) not in grid and value_key(other_form) in grid:
        return other_form, (note,)
    return reference, ()


def _changes(
    settings: Mapping[str, Any], overrides: Iterable[str], blocks: Sequence[Block]
) -> dict[str, Any]:
    """Return the values of ``settings`` and of ``key=word`` items, by key."""
    # Later overrides take precedence over earlier ones
    changes = dict(settings)
    for override in overrides:
        key, equals, word = override.partition("=")
        key = key.strip()
        if not (key and equals):
            raise ActlabError(
                "--set: expected KEY=VALUE, such as data.dataset=FOLDER or seeds=3, got "
                f"{override!r}."
            )

        # Read the word by the type of the key
        try:
            changes[key] = read_word(word, partial(_takes_text, key, blocks, changes))
        except ActlabError as error:
            raise ActlabError(f"--set {override[:80]!r}: {error}") from error
    return changes


def _takes_text(key: str, blocks: Sequence[Block], changes: Mapping[str, Any]) -> bool:
    # Imported lazily: most words need no signature
    from actlab.config.signatures import takes_text

    for block in blocks:
        point = {name: values[0] for name, values in block.grid.items() if values}
        if takes_text(block.config({**point, **changes}), key):
            return True
    return False


def _selection(file: schema.File, path: Path, keys: Collection[str]) -> Selection:
    stated = file.select
    select = Selection(
        tuple(as_list(stated.tune)), stated.metric, stated.mode or "", stated.at
    )
    for key in select.tune:
        if key not in keys:
            raise unknown(
                "tuned key", key, keys, f"Set 'select: tune' in {path} to grid keys."
            )
    return select


def _blocks(file: schema.File, path: Path, smoke: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a file, with its settings for smoke runs if these are asked for."""
    # Without blocks, all grids share the base of the study
    parts = file.blocks
    if parts is None:
        parts = [schema.BlockPart(grid=grid) for grid in as_list(file.grid)]

    # An empty grid has no runs
    if not parts or not all(part.grid for part in parts):
        raise ActlabError(
            f"grid of {path}: expected config keys with lists of values, got an empty grid. Add a "
            "key."
        )

    base_of = cache(partial(_base, study=path))  # blocks usually share a base
    blocks = []
    for part in parts:
        grid = {str(key): as_list(values) for key, values in part.grid.items()}
        base = base_of(part.base or str(file.base))
        block = Block(grid, base, {**file.set, **part.set}, part.name)

        # Other datamodules may lack the argument
        brief = dict(smoke)
        has_sample = get_dotted(block.config({}), SAMPLE) is not None
        if not has_sample and SAMPLE not in file.smoke:
            brief.pop(SAMPLE, None)
        settings = {**block.settings, **brief}
        blocks.append(
            replace(block, grid=_changed_grid(grid, brief), settings=settings)
        )
    return blocks


def _changed_grid(
    grid: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a grid with the values of some keys replaced."""
    changed = dict(grid)
    for key in changes.keys() & grid.keys():
        changed[key] = as_list(changes[key])
    return changed


def _base(name: str, study: Path) -> dict[str, Any]:
    """Return the base config that a study names, without what run folders provide."""
    # A file next to the study, or a shipped config
    path = study.parent / name
    if not is_file(path):
        path = config_file(name)
    config = read_mapping(path)

    # A base may have no trainer
    trainer = config.get("trainer") or {}
    if not isinstance(trainer, dict):
        raise ActlabError(f"trainer in {name}: expected a mapping, got {trainer!r}.")

    # A run folder has the checkpoints
    callbacks = []
    for callback in as_list(trainer.get("callbacks") or []):
        if not str(class_of(callback)).endswith(_CHECKPOINT):
            callbacks.append(callback)
    arguments = {key: value for key, value in trainer.items() if key not in _PROVIDED}
    return {**config, "trainer": {**arguments, "callbacks": callbacks}}


def _with_changes(block: Block, changes: Mapping[str, Any]) -> Block:
    """Replace values of the grid of a block, and set all others."""
    grid = _changed_grid(block.grid, changes)
    settings = dict(block.settings)
    for key, value in changes.items():
        if key not in block.grid:
            settings[key] = value
    for key, value in settings.items():
        set_dotted({}, key, value)  # for the error of an invalid key

    empty = [key for key, values in grid.items() if not values]
    if empty:
        raise ActlabError(
            f"grid key {empty[0]!r}: expected a value or a list of values, got none. Add a value."
        )
    return replace(block, grid=grid, settings=settings)


def _with_activations(block: Block, added: Sequence[Any]) -> Block:
    """Add to a block the activations that its grid lacks; ``{name: NAME}`` becomes ``NAME``."""
    grid = {}
    for key, values in block.grid.items():
        # Distinct values
        by_key: dict[str, Any] = {}
        for value in values:
            text = value_key(value)
            if text in by_key:  # their runs would be the same
                pair = f"{by_key[text]!r} and {value!r}"
                raise ActlabError(
                    f"the grid has two equal values of {key}, {pair}. Remove one of them."
                )
            by_key[text] = value

        # Added activations
        grid[key] = [*by_key.values()]
        if is_activation(key):
            for value in added:
                by_key.setdefault(value_key(value), value)
            grid[key] = [plain_activation(value) for value in by_key.values()]
    return replace(block, grid=grid)


def _search(stage: schema.StagePart, blocks: Sequence[Block], smoke: bool) -> Search:
    # Grid keys cannot be searched, activations of the grid can
    keys = _keys(blocks)
    activations: list[Any] = []
    for block in blocks:
        for key, values in block.grid.items():
            if is_activation(key):
                activations += values

    # Spaces by config key, and by activation and argument
    spaces: dict[str, Space] = {}
    spaces_of_activations: dict[str, dict[str, Space]] = {}
    for name, value in stage.search.items():
        # Arguments of an activation
        if isinstance(value, Mapping):
            searched = named(name, activations)
            if not any(map(partial(same, searched), activations)):
                raise unknown(
                    "activation to search", name, [*map(in_full, activations)]
                )
            arguments = {key: parse_space(key, text) for key, text in value.items()}
            spaces_of_activations[value_key(searched)] = arguments
            continue

        # A config key
        if "." not in name or any(
            name == key or name.startswith(f"{key}.") for key in keys
        ):
            raise ActlabError(
                "search: expected a dotted config key that is not in the grid, or an activation of "
                f"the grid with its arguments, such as {{alpha: 0.1..3}}, got {name!r}."
            )
        spaces[name] = parse_space(name, value)

    # Smoke runs need only a few trials
    trials = stage.trials
    if smoke:
        trials = min(trials, SMOKE_SEEDS)
    return Search(spaces, spaces_of_activations, trials, stage.as_given)


def _keep(file: schema.File, select: Selection, path: Path) -> Keep:
    checkpoints = [*file.keep]
    for probe in file.probes:
        checkpoints += probe.places

    epochs = sorted({at for at in checkpoints if isinstance(at, int)})
    if epochs and epochs[0] < 0:
        raise ActlabError(
            f"checkpoints in {path}: expected epochs from 0, got {epochs[0]}."
        )
    best = select.metric if "best" in checkpoints else None
    return Keep(best, select.mode, tuple(epochs))


def activation(word: str) -> Any:
    """Return the activation that a word of the command line means, with its file's absolute path.

    The word is a name, ``package.module:Name``, ``./file.py:Name``, or a mapping in YAML.
    """
    spec = read_word(word, lambda: True)
    if spec is None:  # an activation may be named null
        spec = word
    return located(spec)
