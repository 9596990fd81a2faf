"""Read a study file and apply the options of the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from actlab.config.keys import (
    as_list,
    check_order,
    class_of,
    get_dotted,
    located,
    mode_of,
    plain_unit,
    set_dotted,
    short,
    value_key,
)
from actlab.errors import ActlabError, shown, unknown
from actlab.storage.mappings import read_mapping, read_word
from actlab.storage.resources import config_file, is_file
from actlab.studies import schema
from actlab.studies.plan import (
    SMOKE_SUFFIX,
    UNIT,
    Block,
    Keep,
    Probe,
    Selection,
    Stage,
    Study,
    other_length,
)

SMOKE = {"data.sample": True, "trainer.max_epochs": 1, "trainer.limit_train_batches": 4}
_SAMPLE = "data.sample"  # set only where the config has the key: other datamodules may lack the argument
SMOKE_SEEDS = 2
MOST_SEEDS = 10_000
ACTIVATION_FORMS = "a name, package.module:Name, ./file.py:Name, '{name: elu, alpha: 0.5}'"  # for help texts
# Trainer arguments that the run folder provides; they are removed from the base config.
_PROVIDED = ("logger", "default_root_dir", "enable_progress_bar", "enable_model_summary")
_CHECKPOINT = "ModelCheckpoint"


def load(
    name: str,
    smoke: bool = False,
    overrides: Iterable[str] = (),
    activations: Iterable[Any] = (),
    reference: Any = None,
    settings: Mapping[str, Any] | None = None,
) -> Study:
    """Read a study file and apply the command line to it, or the arguments of `actlab.load_study`.

    Args:
        name: path of a study file, or bare name of a study that ships with actlab.
        smoke: run briefly on samples: apply the file's ``smoke`` settings over `SMOKE` and use few seeds.
        overrides: ``key=word`` items. The key is a dotted config key, a grid key (a value or a list replaces
            its values) or ``seeds``. A word becomes a value here; see `actlab.storage.mappings.read_word`.
        activations: activations added to every grid key that ends in ``activation`` and lacks them. Read words
            with `activation`.
        reference: compared value against which the others are tested, or its full text; replaces the reference
            of the file.
        settings: values by key, as in ``overrides``.

    Raises:
        ActlabError: for an unknown key, a value of a wrong type, two equal values of a grid key or a missing
            file.
    """
    path = config_file(name, "configs/studies", piped=True)
    file = schema.checked(read_mapping(path, piped=True), path)
    whole = _blocks(file, path, SMOKE | file.smoke if smoke else {})
    changes = dict(settings or {})
    for override in overrides:
        key, word = _assignment(override)
        changes[key] = _value(override, key, word, whole, changes)
    if "seeds" in changes:
        seed_list(changes["seeds"])  # raises for null, which would otherwise look like a missing option
    seeds = changes.pop("seeds", None)
    units = [_located(unit) for unit in activations]
    blocks = [_with_activations(_with_changes(block, changes), units) for block in whole]
    keys = dict.fromkeys(key for block in blocks for key in block.grid)
    if units and not any(short(key) == UNIT for key in keys):
        raise ActlabError(f"{path} compares no activations: no grid key ends in {UNIT!r}")
    mode = file.select.mode or mode_of(file.select.metric)
    select = Selection(tuple(as_list(file.select.tune)), file.select.metric, mode)
    for key in select.tune:
        if key not in keys:
            raise unknown("tuned key", key, keys, f"'select: tune' in {path} names grid keys.")
    for stage in ({}, *(stage.set for stage in file.stages)):
        for block in blocks:
            check_order({**block.settings, **stage}, block.grid)
        for key, value in {**block.settings, **block.grid}.items():
            _check_finite(key, value)
    _check_names(file.figures, path)
    asked = file.reference if reference is None else plain_unit(_located(reference))
    given = asked is not None
    return Study(
        name=path.stem + (SMOKE_SUFFIX if smoke else ""),
        title=file.title or path.stem,
        blocks=tuple(blocks),
        seeds=_seeds(file.seeds, seeds, smoke),
        compare=file.compare,
        select=select,
        stages=_stages(file, path, seeds, smoke, changes, keys),
        table=tuple(schema.given(column) for column in file.table),
        probes=tuple(Probe(p.name, p.class_path, p.init_args, tuple(as_list(p.at))) for p in file.probes),
        keep=_keep(file, select, path),
        published=schema.given(file.published),
        cut=other_length(zip(whole, blocks, strict=True)),
        figures=tuple(schema.given(figure) for figure in file.figures),
        reference=asked if given else Study.reference,
        reference_given=given,
        notes=tuple(file.notes),
        tags=tuple(file.tags),
        added=tuple(units),
    )


def _check_finite(key: str, value: Any) -> None:
    """Check that a nested value contains no infinite or nan number.

    Raises:
        ActlabError: for the first such number.
    """
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_finite(key, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ActlabError(f"{key} is {value}: give a finite number")


def _check_names(figures: Sequence[schema.Figure], path: Path) -> None:
    """Reject figures with the same name (same file) and panels with the same title (mixed in curves.csv)."""
    for what, names in (
        ("figures", [figure.name for figure in figures]),
        *((f"panels of the figure {f.name!r}", [p.title for p in f.panels if p.title]) for f in figures),
    ):
        if twice := [name for number, name in enumerate(names) if name in names[:number]]:
            raise ActlabError(f"two {what} in {path} have the same name {twice[0]!r}: give each its own name")


def _blocks(file: schema.File, path: Path, smoke: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a study file."""
    given = file.blocks if file.blocks is not None else [schema.Block(grid=grid) for grid in as_list(file.grid)]
    if not given or not all(block.grid for block in given):
        raise ActlabError(f"the grid of {path} must map config keys to lists of values, not be empty")
    blocks = []
    for block in given:
        grid = {str(key): as_list(values) for key, values in block.grid.items()}
        full = Block(grid, _base(block.base or str(file.base), path), {**file.set, **block.set}, block.name)
        lacks = get_dotted(full.config({}), _SAMPLE) is None
        short = {key: value for key, value in smoke.items() if key != _SAMPLE or not lacks or key in file.smoke}
        grid = {key: as_list(short[key]) if key in short else values for key, values in grid.items()}
        blocks.append(replace(full, grid=grid, settings={**full.settings, **short}))
    return blocks


def _base(name: str, study: Path) -> dict[str, Any]:
    """Read a base config without the keys that run folders provide; a path is relative to the study file."""
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
    """Apply the command line to a block: replace values of grid keys, set other keys in every run."""
    grid = {key: as_list(changes[key]) if key in changes else values for key, values in block.grid.items()}
    settings = {**block.settings, **{key: value for key, value in changes.items() if key not in block.grid}}
    for key, value in settings.items():
        set_dotted({}, key, value)
    if empty := [key for key, values in grid.items() if not values]:
        raise ActlabError(f"the grid has no value for {empty[0]!r}: give a value or a list of values")
    return Block(grid, block.base, settings, block.name)


def _with_activations(block: Block, units: Sequence[Any]) -> Block:
    """Add to a block the activations that its grid lacks; ``{name: NAME}`` becomes ``NAME``.

    Raises:
        ActlabError: if a grid key has two equal values, so that their runs would be the same.
    """
    grid = {}
    for key, values in block.grid.items():
        known: dict[str, Any] = {}
        for value in values:
            if (text := value_key(value)) in known:
                both = f"{known[text]!r} and {value!r}"
                raise ActlabError(f"the grid has two equal values of {key}, {both}: remove one of them")
            known[text] = value
        for unit in units if short(key) == UNIT else ():
            known.setdefault(value_key(unit), unit)
        grid[key] = [plain_unit(value) if short(key) == UNIT else value for value in known.values()]
    return Block(grid, block.base, block.settings, block.name)


def _stages(
    file: schema.File,
    path: Path,
    seeds: Any,
    smoke: bool,
    changes: Mapping[str, Any],
    keys: Collection[str],
) -> tuple[Stage, ...]:
    """Return the stages; the command line and the smoke settings take precedence over their settings."""
    names = [stage.name for stage in file.stages]
    if len(set(names)) < len(names):
        raise ActlabError(f"two stages of {path} have the same name: {', '.join(names)}")
    if "digest" in names:
        raise ActlabError(f"a stage of {path} has the name 'digest', reserved in selection.json: rename it")
    if file.stages and not file.select.tune:
        raise ActlabError(f"{path} has stages but nothing to select: give 'select: tune'")
    for stage in file.stages:
        if taken := sorted(stage.set.keys() & keys):
            raise ActlabError(f"stage {stage.name} of {path} sets {taken[0]}, which is a grid key: remove one")
    first = {*changes, *(SMOKE | file.smoke if smoke else ())}
    return tuple(
        Stage(
            s.name,
            _seeds(file.seeds if s.seeds is None else s.seeds, seeds, smoke),
            {key: value for key, value in s.set.items() if key not in first},
        )
        for s in file.stages
    )


def _keep(file: schema.File, select: Selection, path: Path) -> Keep:
    """Return the checkpoints to keep: those listed in the file and those that its probes need."""
    wanted = [*file.keep, *(at for probe in file.probes for at in as_list(probe.at))]
    for at in wanted:
        if isinstance(at, bool) or (isinstance(at, str) and at not in ("last", "best")) or at == "":
            raise unknown("checkpoint", str(at), ("last", "best"), f"Or give a number of epochs. In {path}.")
        if isinstance(at, int) and at < 0:
            raise ActlabError(f"checkpoint after {at} epochs in {path}: give a whole number from 0")
    epochs = tuple(sorted({at for at in wanted if isinstance(at, int)}))
    return Keep(select.metric if "best" in wanted else None, select.mode, epochs)


def _seeds(value: Any, override: Any = None, smoke: bool = False) -> tuple[int, ...]:
    """Expand seeds: ``5`` means 0 … 4, ``5-19`` means 5 … 19; a list stays unchanged.

    Args:
        value: seeds in the file.
        override: seeds on the command line: the seeds themselves, or a number of seeds beginning with the
            file's first seed.
        smoke: return only the first `SMOKE_SEEDS` seeds.
    """
    seeds = seed_list(value)
    if isinstance(override, int) and not isinstance(override, bool):
        number = len(seed_list(override))
        seeds = seeds[:number] if number <= len(seeds) else tuple(range(seeds[0], seeds[0] + number))
    elif override is not None:
        seeds = seed_list(override)
    return seeds[:SMOKE_SEEDS] if smoke else seeds


def seed_list(value: Any) -> tuple[int, ...]:
    """Return seeds given as their number, as a range such as ``5-19`` or as a list.

    Raises:
        ActlabError: for any other value, or for a seed given twice.

    >>> seed_list(3), seed_list("5-7"), seed_list([4, 2])
    ((0, 1, 2), (5, 6, 7), (4, 2))
    """
    seeds: Sequence[Any] = value if isinstance(value, list) else ()
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}-\d{1,9}", value):
        first, last = map(int, value.split("-"))
        seeds = range(first, last + 1)
    elif isinstance(value, int) and not isinstance(value, bool):
        seeds = range(min(value, MOST_SEEDS + 1))
    fits = 0 < len(seeds) <= MOST_SEEDS and all(type(s) is int and s >= 0 for s in seeds)
    if not fits or len(set(seeds)) < len(seeds):
        raise ActlabError(
            f"seeds {shown(value)}: give how many (a whole number from 1 to {MOST_SEEDS}), a range such as "
            "5-19, or a list of different whole numbers"
        )
    return tuple(seeds)


def _assignment(override: str) -> tuple[str, str]:
    key, equals, word = override.partition("=")
    if not (key and equals):
        raise ActlabError(f"--set {override!r}: write key=value, such as data.dataset=FOLDER or seeds=3")
    return key.strip(), word


def _value(override: str, key: str, word: str, blocks: Sequence[Block], changes: Mapping[str, Any]) -> Any:
    """Return the value of a word on the command line; ``changes`` are the values given before it."""

    def is_text() -> bool:
        from actlab.config.signatures import takes_text  # imported lazily: most words need no signature

        points = ({key: values[0] for key, values in block.grid.items() if values} for block in blocks)
        configs = (b.config({**point, **changes}) for b, point in zip(blocks, points, strict=True))
        return any(takes_text(config, key) for config in configs)

    try:
        return read_word(word, is_text)
    except ActlabError as error:
        raise ActlabError(f"--set {override[:80]!r}: {error}") from error


def activation(word: str) -> Any:
    """Return the activation that a word of the command line stands for, with an absolute path of its file.

    Args:
        word: a name, ``package.module:Name``, ``./file.py:Name``, or a mapping in YAML.

    Raises:
        ActlabError: for a malformed mapping.
    """
    spec = read_word(word, lambda: True)
    return _located(word if spec is None else spec)


def _located(spec: Any) -> Any:
    """Return an activation with an absolute path of its file."""
    return {**spec, "name": located(spec.get("name"))} if isinstance(spec, Mapping) else located(spec)
